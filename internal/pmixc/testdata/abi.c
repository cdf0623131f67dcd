// Compares abi.h with libpmix's own headers. It says what differs, and exits with the
// number of differences.
#include "../abi.h"

#include <pmix.h>
#include <stdio.h>
#include <string.h>

static int wrong;

static void same(const char *what, unsigned long long ours, unsigned long long theirs)
{
	if (ours != theirs) {
		printf("%s: %llu here, %llu in the library's headers\n", what, ours, theirs);
		wrong++;
	}
}

#define SIZE(ours, theirs) same("size of " #theirs, sizeof(ours), sizeof(theirs))
#define AT(ours, theirs, field) same(#theirs "." #field, offsetof(ours, field), offsetof(theirs, field))
#define WIDTH(ours, theirs, field) same("size of " #theirs "." #field, sizeof(((ours *)0)->field), sizeof(((theirs *)0)->field))
#define NUMBER(name) same(#name, (unsigned long long)F##name, (unsigned long long)(name))
#define KEY(name)                                                                      \
	do {                                                                           \
		if (strcmp(F##name, name)) {                                           \
			printf("%s: %s here, %s in the headers\n", #name, F##name, name); \
			wrong++;                                                       \
		}                                                                      \
	} while (0)

int main(void)
{
	SIZE(fpmix_proc, pmix_proc_t);
	AT(fpmix_proc, pmix_proc_t, nspace);
	AT(fpmix_proc, pmix_proc_t, rank);
	SIZE(fpmix_bytes, pmix_byte_object_t);
	AT(fpmix_bytes, pmix_byte_object_t, bytes);
	AT(fpmix_bytes, pmix_byte_object_t, size);
	SIZE(fpmix_array, pmix_data_array_t);
	AT(fpmix_array, pmix_data_array_t, type);
	AT(fpmix_array, pmix_data_array_t, size);
	AT(fpmix_array, pmix_data_array_t, array);
	SIZE(fpmix_value, pmix_value_t);
	AT(fpmix_value, pmix_value_t, type);
	AT(fpmix_value, pmix_value_t, data);
	WIDTH(fpmix_value, pmix_value_t, type);
	WIDTH(fpmix_value, pmix_value_t, data);
	WIDTH(fpmix_value, pmix_value_t, data.flag);
	WIDTH(fpmix_value, pmix_value_t, data.size);
	WIDTH(fpmix_value, pmix_value_t, data.integer);
	WIDTH(fpmix_value, pmix_value_t, data.uint);
	WIDTH(fpmix_value, pmix_value_t, data.rank);
	SIZE(fpmix_info, pmix_info_t);
	AT(fpmix_info, pmix_info_t, key);
	AT(fpmix_info, pmix_info_t, flags);
	AT(fpmix_info, pmix_info_t, value);
	WIDTH(fpmix_info, pmix_info_t, flags);
	SIZE(fpmix_query, pmix_query_t);
	AT(fpmix_query, pmix_query_t, keys);
	AT(fpmix_query, pmix_query_t, qualifiers);
	AT(fpmix_query, pmix_query_t, nqual);
	SIZE(fpmix_app, pmix_app_t);
	AT(fpmix_app, pmix_app_t, cmd);
	AT(fpmix_app, pmix_app_t, argv);
	AT(fpmix_app, pmix_app_t, env);
	AT(fpmix_app, pmix_app_t, cwd);
	AT(fpmix_app, pmix_app_t, maxprocs);
	AT(fpmix_app, pmix_app_t, info);
	AT(fpmix_app, pmix_app_t, ninfo);
	WIDTH(fpmix_app, pmix_app_t, maxprocs);
	same("size of a status", sizeof(int), sizeof(pmix_status_t));
	same("size of a scope", sizeof(uint8_t), sizeof(pmix_scope_t));
	same("room of a namespace", FPMIX_NSPACE_ROOM, sizeof(pmix_nspace_t));
	same("room of a key", FPMIX_KEY_ROOM, sizeof(pmix_key_t));

	NUMBER(PMIX_RANK_WILDCARD);
	NUMBER(PMIX_SUCCESS);
	NUMBER(PMIX_ERR_PROC_ABORTED);
	NUMBER(PMIX_ERR_TIMEOUT);
	NUMBER(PMIX_ERR_UNREACH);
	NUMBER(PMIX_ERR_BAD_PARAM);
	NUMBER(PMIX_ERR_INIT);
	NUMBER(PMIX_ERR_NOMEM);
	NUMBER(PMIX_ERR_NOT_FOUND);
	NUMBER(PMIX_ERR_NOT_SUPPORTED);
	NUMBER(PMIX_ERR_PARTIAL_SUCCESS);
	NUMBER(PMIX_ERR_LOST_CONNECTION);
	NUMBER(PMIX_OPERATION_SUCCEEDED);
	NUMBER(PMIX_ERR_PROC_TERM_WO_SYNC);
	NUMBER(PMIX_EVENT_NO_ACTION_TAKEN);
#ifdef PMIX_ERR_PROC_ABORTED_BY_SIG // from 4.2 on
	NUMBER(PMIX_ERR_PROC_ABORTED_BY_SIG);
#endif
#ifdef PMIX_ERR_EXIT_NONZERO_TERM // from 4.2 on
	NUMBER(PMIX_ERR_EXIT_NONZERO_TERM);
#endif
	NUMBER(PMIX_BOOL);
	NUMBER(PMIX_STRING);
	NUMBER(PMIX_SIZE);
	NUMBER(PMIX_INT);
	NUMBER(PMIX_INT8);
	NUMBER(PMIX_INT16);
	NUMBER(PMIX_INT32);
	NUMBER(PMIX_INT64);
	NUMBER(PMIX_UINT);
	NUMBER(PMIX_UINT8);
	NUMBER(PMIX_UINT16);
	NUMBER(PMIX_UINT32);
	NUMBER(PMIX_UINT64);
	NUMBER(PMIX_PROC);
	NUMBER(PMIX_INFO);
	NUMBER(PMIX_BYTE_OBJECT);
	NUMBER(PMIX_DATA_ARRAY);
	NUMBER(PMIX_PROC_RANK);
	NUMBER(PMIX_GLOBAL);

	KEY(PMIX_IMMEDIATE);
	KEY(PMIX_TIMEOUT);
	KEY(PMIX_EVENT_AFFECTED_PROC);
	KEY(PMIX_GROUP_ASSIGN_CONTEXT_ID);
	KEY(PMIX_GROUP_CONTEXT_ID);
	KEY(PMIX_QUERY_PSET_NAMES);
	KEY(PMIX_QUERY_PSET_MEMBERSHIP);
	KEY(PMIX_PSET_NAME);
#ifdef PMIX_SPAWN_CHILD_SEP // from 5.0 on
	KEY(PMIX_SPAWN_CHILD_SEP);
#endif

	// Keys that Go knows, from the compiler's command line.
	same("PMIX_JOB_SIZE is " GO_JOB_SIZE, 0, strcmp(GO_JOB_SIZE, PMIX_JOB_SIZE) != 0);
	same("PMIX_LOCAL_PEERS is " GO_LOCAL_PEERS, 0, strcmp(GO_LOCAL_PEERS, PMIX_LOCAL_PEERS) != 0);

	// The functions: what is the same but for the names of structures can be called
	// with the same arguments, and has results of the same size.
#define CALL(name, ...)                                                                      \
	do {                                                                                 \
		fpmix_calls ours;                                                            \
		same("size of the result of " #name, sizeof(ours.name(__VA_ARGS__)), sizeof(name(__VA_ARGS__))); \
	} while (0)
	CALL(PMIx_Get_version);
	CALL(PMIx_Error_string, 0);
	CALL(PMIx_Init, NULL, NULL, 0);
	CALL(PMIx_Initialized);
	CALL(PMIx_Finalize, NULL, 0);
	CALL(PMIx_Abort, 0, "", NULL, 0);
	CALL(PMIx_Put, 0, "", NULL);
	CALL(PMIx_Commit);
	CALL(PMIx_Get, NULL, "", NULL, 0, NULL);
	CALL(PMIx_Fence, NULL, 0, NULL, 0);
	CALL(PMIx_Register_event_handler, NULL, 0, NULL, 0, NULL, NULL, NULL);
	CALL(PMIx_Group_construct, "", NULL, 0, NULL, 0, NULL, NULL);
	CALL(PMIx_Query_info, NULL, 0, NULL, NULL);
	CALL(PMIx_Spawn, NULL, 0, NULL, 0, NULL);
	return wrong;
}
