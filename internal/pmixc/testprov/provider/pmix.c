// A libpmix for tests: one process of one namespace, with its own values, without a server.
//
// TESTPMIX_FAULTS names calls that fail, with commas between them. NAME fails with status -1, NAME=STATUS with that status, NAME=0
// reports success without a result, and NAME=1 success with a count of results and no results.
#include "../../abi.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { ERROR = -1, NO_RESULT = 0, NO_ARRAY = 1, WORKS = 2, CONTEXT_ID = 77 };

static fpmix_handler handler;
static char *stored;
static size_t stored_size;

static int outcome(const char *call)
{
	size_t n = strlen(call);
	for (const char *at = getenv("TESTPMIX_FAULTS"); at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, call, n) && (!at[n] || at[n] == ',' || at[n] == '='))
			return at[n] == '=' ? atoi(at + n + 1) : ERROR;
	return WORKS;
}

#define MAY_FAIL() \
	do { \
		int outcome_ = outcome(__func__); \
		if (outcome_ <= 0) \
			return outcome_; \
	} while (0)

EXPORT const char *PMIx_Get_version(void) { return outcome(__func__) == WORKS ? "OpenPMIx 4.2.2" : NULL; }

EXPORT const char *PMIx_Error_string(int status)
{
	if (outcome(__func__) != WORKS)
		return NULL;
	switch (status) {
	case ERROR: return "ERROR";
	case FPMIX_ERR_NOT_FOUND: return "NOT-FOUND";
	}
	return "UNKNOWN";
}

// PMIx_Init fills the namespace to its end with NO_ARRAY.
EXPORT int PMIx_Init(fpmix_proc *self, fpmix_info info[], size_t n)
{
	(void)info, (void)n;
	MAY_FAIL();
	memset(self->nspace, outcome(__func__) == NO_ARRAY ? 'j' : 0, sizeof(self->nspace));
	memcpy(self->nspace, "job", 3);
	self->rank = 0;
	return FPMIX_SUCCESS;
}

EXPORT int PMIx_Initialized(void)
{
	MAY_FAIL();
	return 1;
}

EXPORT int PMIx_Finalize(const fpmix_info info[], size_t n)
{
	(void)info, (void)n;
	MAY_FAIL();
	return FPMIX_SUCCESS;
}

EXPORT int PMIx_Abort(int status, const char message[], fpmix_proc procs[], size_t n)
{
	(void)status, (void)message, (void)procs, (void)n;
	MAY_FAIL();
	return FPMIX_SUCCESS;
}

EXPORT int PMIx_Put(uint8_t scope, const char key[], fpmix_value *v)
{
	(void)scope, (void)key;
	MAY_FAIL();
	free(stored);
	stored_size = v->data.bo.size;
	stored = malloc(stored_size + 1);
	if (!stored)
		return FPMIX_ERR_NOMEM;
	memcpy(stored, v->data.bo.bytes, stored_size);
	return FPMIX_SUCCESS;
}

EXPORT int PMIx_Commit(void)
{
	MAY_FAIL();
	return FPMIX_SUCCESS;
}

EXPORT int PMIx_Get(const fpmix_proc *proc, const char key[], const fpmix_info info[], size_t n, fpmix_value **out)
{
	(void)proc, (void)key, (void)info, (void)n;
	MAY_FAIL();
	fpmix_value *v = calloc(1, sizeof(*v));
	if (!v)
		return FPMIX_ERR_NOMEM;
	v->type = FPMIX_BYTE_OBJECT;
	v->data.bo.size = stored_size;
	if (outcome(__func__) == WORKS && stored_size > 0) {
		if (!(v->data.bo.bytes = malloc(stored_size)))
			abort();
		memcpy(v->data.bo.bytes, stored, stored_size);
	}
	*out = v;
	return FPMIX_SUCCESS;
}

// PMIx_Fence reports the death of rank 1 to the handler.
EXPORT int PMIx_Fence(const fpmix_proc procs[], size_t n, const fpmix_info info[], size_t ninfo)
{
	(void)n, (void)info, (void)ninfo;
	MAY_FAIL();
	fpmix_proc dead = procs[0];
	dead.rank = 1;
	fpmix_info about = {.key = FPMIX_EVENT_AFFECTED_PROC, .value = {.type = FPMIX_PROC, .data.proc = &dead}};
	if (handler)
		handler(1, FPMIX_ERR_PROC_ABORTED, NULL, outcome(__func__) == WORKS ? &about : NULL, 1, NULL, 0, NULL, NULL);
	return FPMIX_SUCCESS;
}

EXPORT int PMIx_Register_event_handler(int codes[], size_t ncodes, fpmix_info info[], size_t n, fpmix_handler h, fpmix_registered done, void *data)
{
	(void)codes, (void)ncodes, (void)info, (void)n, (void)done, (void)data;
	MAY_FAIL();
	handler = h;
	return 1;
}

static int give(const char *call, fpmix_info **out, size_t *n)
{
	*n = 1;
	if (outcome(call) == WORKS && !(*out = calloc(1, sizeof(**out))))
		return FPMIX_ERR_NOMEM;
	return FPMIX_SUCCESS;
}

EXPORT int PMIx_Group_construct(const char group[], const fpmix_proc procs[], size_t n, const fpmix_info how[], size_t nhow, fpmix_info **out, size_t *nout)
{
	(void)group, (void)procs, (void)n, (void)how, (void)nhow;
	MAY_FAIL();
	int r = give(__func__, out, nout);
	if (*out) {
		strcpy((*out)->key, FPMIX_GROUP_CONTEXT_ID);
		(*out)->value = (fpmix_value){.type = FPMIX_SIZE, .data.size = CONTEXT_ID};
	}
	return r;
}

EXPORT int PMIx_Query_info(fpmix_query queries[], size_t n, fpmix_info **out, size_t *nout)
{
	(void)n;
	MAY_FAIL();
	int r = give(__func__, out, nout);
	if (!*out)
		return r;
	fpmix_value *v = &(*out)->value;
	if (!strcmp(queries[0].keys[0], FPMIX_QUERY_PSET_NAMES)) {
		*v = (fpmix_value){.type = FPMIX_STRING, .data.string = strdup("all")};
		return r;
	}
	static fpmix_proc member = {"job", 0};
	static fpmix_array members = {FPMIX_PROC, 1, &member};
	*v = (fpmix_value){.type = FPMIX_DATA_ARRAY, .data.darray = &members};
	return r;
}

// PMIx_Spawn requires a program with arguments and an environment. It fills the namespace to its end with NO_ARRAY.
EXPORT int PMIx_Spawn(const fpmix_info job_info[], size_t ninfo, const fpmix_app apps[], size_t napps, char nspace[])
{
	(void)job_info, (void)ninfo;
	MAY_FAIL();
	if (napps != 1 || !apps[0].cmd || !apps[0].argv[0] || apps[0].argv[2] || !apps[0].env[0] || apps[0].env[1] || apps[0].maxprocs != 2)
		return FPMIX_ERR_BAD_PARAM;
	memset(nspace, outcome(__func__) == NO_ARRAY ? 's' : 0, FPMIX_NSPACE_ROOM);
	memcpy(nspace, "spawned", 7);
	return FPMIX_SUCCESS;
}
