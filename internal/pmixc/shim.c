// Calls of libpmix. The library is loaded at run time, and abi.h replaces its headers. There is no
// policy here. Go chooses calls and deadlines, and interprets results.
//
// All functions may be called concurrently, as the library's own. Most of them wait for the
// library's thread or its server, and may never return.
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fpmix_lib {
	fpmix_calls f;
};

// fpmix_load loads the library at path. A name without a slash is searched. A library in use is
// never unloaded, because it leaves a thread behind.
int fpmix_load(const char *path, fpmix_lib **out, char *why, size_t room)
{
	void *h = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!h) {
		const char *text = dlerror();
		snprintf(why, room, "%s", text ? text : "dlopen gives no reason");
		return FPMIX_ERR_NOT_FOUND;
	}
	fpmix_lib *lib = calloc(1, sizeof(*lib));
	if (!lib) {
		snprintf(why, room, "no memory");
		return FPMIX_ERR_NOMEM;
	}
#define CALL(name) {#name, (void **)&lib->f.name}
	const struct { const char *name; void **at; } need[] = {
		CALL(PMIx_Get_version), CALL(PMIx_Error_string), CALL(PMIx_Init), CALL(PMIx_Initialized),
		CALL(PMIx_Finalize), CALL(PMIx_Abort), CALL(PMIx_Put), CALL(PMIx_Commit), CALL(PMIx_Get),
		CALL(PMIx_Fence), CALL(PMIx_Register_event_handler), CALL(PMIx_Group_construct), CALL(PMIx_Query_info),
		CALL(PMIx_Spawn),
	};
#undef CALL
	for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		*need[i].at = dlsym(h, need[i].name);
		if (!*need[i].at) {
			snprintf(why, room, "it has no %s", need[i].name);
			free(lib);
			dlclose(h); // none of its code has been called
			return FPMIX_ERR_NOT_FOUND;
		}
	}
	*(void **)&lib->f.PMIx_Resolve_nodes = dlsym(h, "PMIx_Resolve_nodes");
	*(void **)&lib->f.PMIx_Resolve_peers = dlsym(h, "PMIx_Resolve_peers");
	*(void **)&lib->f.PMIx_Value_destruct = dlsym(h, "PMIx_Value_destruct");
	*out = lib;
	return 0;
}

const char *fpmix_version(fpmix_lib *lib) { return lib->f.PMIx_Get_version(); }

const char *fpmix_text(fpmix_lib *lib, int status) { return lib->f.PMIx_Error_string(status); }

// fpmix_init connects to the server that the environment names. It starts the library's thread with
// all signals blocked, so that those for the process go to Go's threads.
int fpmix_init(fpmix_lib *lib, fpmix_proc *self)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = lib->f.PMIx_Init(self, NULL, 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	self->nspace[FPMIX_NSPACE_ROOM - 1] = 0;
	return r;
}

int fpmix_initialized(fpmix_lib *lib) { return lib->f.PMIx_Initialized(); }

int fpmix_finalize(fpmix_lib *lib) { return lib->f.PMIx_Finalize(NULL, 0); }

int fpmix_abort(fpmix_lib *lib, int status, const char *message) { return lib->f.PMIx_Abort(status, message, NULL, 0); }

// fpmix_put stores a copy of the bytes for all processes. The next commit sends them.
int fpmix_put(fpmix_lib *lib, const char *key, void *bytes, size_t n)
{
	fpmix_value v = {.type = FPMIX_BYTE_OBJECT, .data.bo = {bytes, n}};
	return lib->f.PMIx_Put(FPMIX_GLOBAL, key, &v);
}

int fpmix_commit(fpmix_lib *lib) { return lib->f.PMIx_Commit(); }

// destroy frees the memory that v points to. Before 4.2 the library has no function for that, and
// values of types that ferry does not request leak memory.
static void destroy(fpmix_lib *lib, fpmix_value *v)
{
	if (lib->f.PMIx_Value_destruct)
		lib->f.PMIx_Value_destruct(v);
	else if (v->type == FPMIX_STRING)
		free(v->data.string);
	else if (v->type == FPMIX_BYTE_OBJECT)
		free(v->data.bo.bytes);
}

static void free_infos(fpmix_lib *lib, fpmix_info *infos, size_t n)
{
	for (size_t i = 0; i < n; i++)
		destroy(lib, &infos[i].value);
	free(infos);
}

static int keep(fpmix_result *out, const char *bytes, size_t n)
{
	out->kind = FPMIX_TEXT;
	out->n = 0;
	out->bytes = NULL;
	if (!bytes || n == 0)
		return 0;
	if (!(out->bytes = malloc(n)))
		return FPMIX_ERR_NOMEM;
	memcpy(out->bytes, bytes, n);
	out->n = n;
	return 0;
}

// read_value copies v. Servers use different types for a number.
static int read_value(const fpmix_value *v, fpmix_result *out)
{
	out->kind = FPMIX_NUMBER;
	out->type = v->type;
	switch (v->type) {
	case FPMIX_BOOL: out->number = v->data.flag; return 0;
	case FPMIX_SIZE: out->number = (int64_t)v->data.size; return 0;
	case FPMIX_INT: out->number = v->data.integer; return 0;
	case FPMIX_INT8: out->number = v->data.int8; return 0;
	case FPMIX_INT16: out->number = v->data.int16; return 0;
	case FPMIX_INT32: out->number = v->data.int32; return 0;
	case FPMIX_INT64: out->number = v->data.int64; return 0;
	case FPMIX_UINT: out->number = v->data.uint; return 0;
	case FPMIX_UINT8: out->number = v->data.uint8; return 0;
	case FPMIX_UINT16: out->number = v->data.uint16; return 0;
	case FPMIX_UINT32: out->number = v->data.uint32; return 0;
	case FPMIX_UINT64: out->number = (int64_t)v->data.uint64; return 0;
	case FPMIX_PROC_RANK: out->number = v->data.rank; return 0;
	case FPMIX_STRING: return keep(out, v->data.string, v->data.string ? strlen(v->data.string) : 0);
	case FPMIX_BYTE_OBJECT: return keep(out, v->data.bo.bytes, v->data.bo.size);
	}
	out->kind = FPMIX_OTHER;
	return 0;
}

static void set_key(fpmix_info *i, const char *key)
{
	memset(i, 0, sizeof(*i));
	strncpy(i->key, key, FPMIX_KEY_ROOM - 1);
}

static void set_flag(fpmix_info *i, const char *key)
{
	set_key(i, key);
	i->value.type = FPMIX_BOOL;
	i->value.data.flag = 1;
}

// set_timeout sets the timeout. Servers of 4.2 read the number as unsigned.
static void set_timeout(fpmix_info *i, int seconds)
{
	set_key(i, FPMIX_TIMEOUT);
	i->value.type = FPMIX_INT;
	i->value.data.integer = seconds;
}

// fpmix_get reads a value of a process. With seconds 0 it asks the server of this node for its
// present values only. Otherwise that server may ask others for that time.
int fpmix_get(fpmix_lib *lib, const char *nspace, uint32_t rank, const char *key, int seconds, fpmix_result *out)
{
	fpmix_proc p = {.rank = rank};
	strncpy(p.nspace, nspace, FPMIX_NSPACE_ROOM - 1);
	fpmix_info how;
	if (seconds > 0)
		set_timeout(&how, seconds);
	else
		set_flag(&how, FPMIX_IMMEDIATE);
	fpmix_value *v = NULL;
	int r = lib->f.PMIx_Get(&p, key, &how, 1, &v);
	if (r == FPMIX_SUCCESS && !v)
		r = FPMIX_ERR_NOT_FOUND;
	if (r == FPMIX_SUCCESS)
		r = read_value(v, out);
	if (v) {
		destroy(lib, v);
		free(v);
	}
	return r;
}

static fpmix_proc *procs_of(const char *nspace, const uint32_t *ranks, size_t n)
{
	fpmix_proc *p = calloc(n, sizeof(*p));
	for (size_t i = 0; p && i < n; i++) {
		strncpy(p[i].nspace, nspace, FPMIX_NSPACE_ROOM - 1);
		p[i].rank = ranks[i];
	}
	return p;
}

// fpmix_fence waits until all of these ranks have called it with the same list.
int fpmix_fence(fpmix_lib *lib, const char *nspace, const uint32_t *ranks, size_t n, int seconds)
{
	fpmix_proc *procs = procs_of(nspace, ranks, n);
	if (!procs)
		return FPMIX_ERR_NOMEM;
	fpmix_info limit;
	set_timeout(&limit, seconds);
	int r = lib->f.PMIx_Fence(procs, n, &limit, 1);
	free(procs);
	return r;
}

// fpmix_group waits until all of these ranks have called it, and draws a context id. It ignores the
// result of a failed construct, whose id is uninitialized.
int fpmix_group(fpmix_lib *lib, const char *name, const char *nspace, const uint32_t *ranks, size_t n, int seconds, uint64_t *id)
{
	fpmix_proc *procs = procs_of(nspace, ranks, n);
	if (!procs)
		return FPMIX_ERR_NOMEM;
	fpmix_info how[2], *results = NULL;
	size_t nresults = 0;
	set_flag(&how[0], FPMIX_GROUP_ASSIGN_CONTEXT_ID);
	set_timeout(&how[1], seconds);
	int r = lib->f.PMIx_Group_construct(name, procs, n, how, 2, &results, &nresults);
	free(procs);
	if (r != FPMIX_SUCCESS)
		return r;
	if (!results)
		nresults = 0;
	r = FPMIX_ERR_NOT_FOUND;
	fpmix_result got;
	for (size_t i = 0; i < nresults; i++)
		if (!strncmp(results[i].key, FPMIX_GROUP_CONTEXT_ID, FPMIX_KEY_ROOM) &&
		    read_value(&results[i].value, &got) == 0 && got.kind == FPMIX_NUMBER) {
			*id = (uint64_t)got.number;
			r = FPMIX_SUCCESS;
		}
	free_infos(lib, results, nresults);
	return r;
}

// query sends one query to the server. It never queries the supported attributes, which crashes in
// 4.2.2.
static int query(fpmix_lib *lib, char *key, fpmix_info *qualifier, fpmix_info **results, size_t *n)
{
	char *keys[] = {key, NULL};
	fpmix_query q = {keys, qualifier, qualifier ? 1 : 0};
	*results = NULL;
	*n = 0;
	int r = lib->f.PMIx_Query_info(&q, 1, results, n);
	if (!*results)
		*n = 0;
	return r == FPMIX_OPERATION_SUCCEEDED ? FPMIX_SUCCESS : r;
}

// fpmix_pset_names lists the process sets, separated by commas.
int fpmix_pset_names(fpmix_lib *lib, fpmix_result *out)
{
	fpmix_info *results;
	size_t n;
	int r = query(lib, FPMIX_QUERY_PSET_NAMES, NULL, &results, &n);
	if (r != FPMIX_SUCCESS)
		return r;
	r = n > 0 ? read_value(&results[0].value, out) : FPMIX_ERR_NOT_FOUND;
	free_infos(lib, results, n);
	return r;
}

// fpmix_nodes lists the nodes of a namespace, separated by commas. The caller frees the list.
int fpmix_nodes(fpmix_lib *lib, const char *nspace, char **nodes)
{
	*nodes = NULL;
	if (!lib->f.PMIx_Resolve_nodes)
		return FPMIX_ERR_NOT_SUPPORTED;
	int r = lib->f.PMIx_Resolve_nodes(nspace, nodes);
	if (r == FPMIX_SUCCESS && !*nodes)
		return FPMIX_ERR_NOT_FOUND;
	return r;
}

// fpmix_peers lists the processes of a namespace on a node. The caller frees the list.
int fpmix_peers(fpmix_lib *lib, const char *node, const char *nspace, fpmix_proc **procs, size_t *n)
{
	*procs = NULL;
	*n = 0;
	if (!lib->f.PMIx_Resolve_peers)
		return FPMIX_ERR_NOT_SUPPORTED;
	int r = lib->f.PMIx_Resolve_peers(node, nspace, procs, n);
	if (!*procs)
		*n = 0;
	for (size_t i = 0; r == FPMIX_SUCCESS && i < *n; i++)
		(*procs)[i].nspace[FPMIX_NSPACE_ROOM - 1] = 0;
	return r;
}

// fpmix_pset_members copies the members of a process set. The caller frees them.
int fpmix_pset_members(fpmix_lib *lib, const char *pset, fpmix_proc **members, size_t *count)
{
	fpmix_info which, *results;
	size_t n;
	set_key(&which, FPMIX_PSET_NAME);
	which.value.type = FPMIX_STRING;
	which.value.data.string = (char *)pset;
	int r = query(lib, FPMIX_QUERY_PSET_MEMBERSHIP, &which, &results, &n);
	if (r != FPMIX_SUCCESS)
		return r;
	r = FPMIX_ERR_NOT_FOUND;
	if (n > 0 && results[0].value.type == FPMIX_DATA_ARRAY) {
		fpmix_array *a = results[0].value.data.darray;
		if (a && a->type == FPMIX_PROC && a->array && (*members = calloc(a->size + 1, sizeof(**members)))) {
			memcpy(*members, a->array, a->size * sizeof(**members));
			for (size_t i = 0; i < a->size; i++)
				(*members)[i].nspace[FPMIX_NSPACE_ROOM - 1] = 0;
			*count = a->size;
			r = FPMIX_SUCCESS;
		}
	}
	free_infos(lib, results, n);
	return r;
}

// fpmix_spawn starts the processes of app, and copies their namespace to nspace, which has room for
// FPMIX_NSPACE_ROOM bytes. The strings of app stay the caller's, and the library may replace them.
int fpmix_spawn(fpmix_lib *lib, fpmix_app *app, int is_independent, char *nspace)
{
	fpmix_info how;
	set_flag(&how, FPMIX_SPAWN_CHILD_SEP);
	memset(nspace, 0, FPMIX_NSPACE_ROOM);
	int r = lib->f.PMIx_Spawn(is_independent ? &how : NULL, is_independent ? 1 : 0, app, 1, nspace);
	nspace[FPMIX_NSPACE_ROOM - 1] = 0;
	return r == FPMIX_OPERATION_SUCCEEDED ? FPMIX_SUCCESS : r;
}

// Queue of events until Go takes them. They are rare, deaths and the loss of the server. Without
// room, further events are dropped and counted.
enum { ROOM = 1024 };
static struct {
	pthread_mutex_t lock;
	int event_fd; // eventfd that is readable if there are events; negative until it is requested
	size_t first, n;
	uint64_t dropped;
	fpmix_event events[ROOM];
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .event_fd = -1};

// notify is called with the lock held.
static void notify(void)
{
	const uint64_t one = 1;
	if (queue.event_fd >= 0 && write(queue.event_fd, &one, sizeof(one)) < 0)
		return; // it is readable already
}

// on_event runs on the library's thread. Other handlers of the process receive the event too.
static void on_event(size_t id, int status, const fpmix_proc *source, fpmix_info info[], size_t ninfo,
		     fpmix_info results[], size_t nresults, fpmix_event_done done, void *cbdata)
{
	(void)id, (void)results, (void)nresults;
	const fpmix_proc *who = source;
	for (size_t i = 0; info && i < ninfo; i++)
		if (!strncmp(info[i].key, FPMIX_EVENT_AFFECTED_PROC, FPMIX_KEY_ROOM) && info[i].value.type == FPMIX_PROC &&
		    info[i].value.data.proc)
			who = info[i].value.data.proc;
	pthread_mutex_lock(&queue.lock);
	if (queue.n < ROOM) {
		fpmix_event *n = &queue.events[(queue.first + queue.n++) % ROOM];
		n->code = status;
		memset(&n->proc, 0, sizeof(n->proc));
		if (who)
			n->proc = *who;
		n->proc.nspace[FPMIX_NSPACE_ROOM - 1] = 0;
	} else {
		queue.dropped++;
	}
	notify();
	pthread_mutex_unlock(&queue.lock);
	if (done)
		done(FPMIX_EVENT_NO_ACTION_TAKEN, NULL, 0, NULL, NULL, cbdata);
}

// fpmix_watch registers a handler for one code. A handler for all codes, or a default one, does not
// receive all events.
int fpmix_watch(fpmix_lib *lib, int code)
{
	int r = lib->f.PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, NULL, NULL);
	return r > 0 ? 0 : r; // without a callback the result is the handler's number
}

// fpmix_next removes the oldest event. It returns 0 if there is none.
int fpmix_next(fpmix_event *out)
{
	pthread_mutex_lock(&queue.lock);
	int any = queue.n > 0;
	if (any) {
		*out = queue.events[queue.first];
		queue.first = (queue.first + 1) % ROOM;
		queue.n--;
	}
	pthread_mutex_unlock(&queue.lock);
	return any;
}

uint64_t fpmix_dropped(void)
{
	pthread_mutex_lock(&queue.lock);
	uint64_t n = queue.dropped;
	pthread_mutex_unlock(&queue.lock);
	return n;
}

// fpmix_event_fd returns a descriptor that is readable if events may have arrived since it was
// read. It is a duplicate for the caller to close.
int fpmix_event_fd(void)
{
	pthread_mutex_lock(&queue.lock);
	if (queue.event_fd < 0)
		queue.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (queue.n > 0)
		notify();
	int fd = queue.event_fd < 0 ? -1 : fcntl(queue.event_fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		fd = -errno;
	pthread_mutex_unlock(&queue.lock);
	return fd;
}
