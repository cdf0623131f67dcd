// Calls of libpmix for Go, with plain types. shim.c describes the functions.
#ifndef FERRY_PMIXC_SHIM_H
#define FERRY_PMIXC_SHIM_H

#include "abi.h"

typedef struct fpmix_lib fpmix_lib;

// Kinds of values.
enum { FPMIX_OTHER, FPMIX_NUMBER, FPMIX_TEXT };

// fpmix_result is a value. The caller frees its bytes.
typedef struct fpmix_result {
	int kind;
	int type; // type of libpmix
	int64_t number;
	char *bytes; // FPMIX_TEXT, a string or a byte object
	size_t n;
} fpmix_result;

// fpmix_event is one event.
typedef struct fpmix_event {
	int code;
	fpmix_proc proc; // affected process, or the source if the event has none
} fpmix_event;

int fpmix_load(const char *path, fpmix_lib **lib, char *why, size_t room);
const char *fpmix_version(fpmix_lib *lib);
const char *fpmix_text(fpmix_lib *lib, int status);

int fpmix_init(fpmix_lib *lib, fpmix_proc *self);
int fpmix_initialized(fpmix_lib *lib);
int fpmix_finalize(fpmix_lib *lib);
int fpmix_abort(fpmix_lib *lib, int status, const char *message);

int fpmix_put(fpmix_lib *lib, const char *key, void *bytes, size_t n);
int fpmix_commit(fpmix_lib *lib);
int fpmix_get(fpmix_lib *lib, const char *nspace, uint32_t rank, const char *key, int seconds, fpmix_result *out);
int fpmix_fence(fpmix_lib *lib, const char *nspace, const uint32_t *ranks, size_t n, int seconds);

int fpmix_group(fpmix_lib *lib, const char *name, const char *nspace, const uint32_t *ranks, size_t n, int seconds, uint64_t *id);
int fpmix_pset_names(fpmix_lib *lib, fpmix_result *out);
int fpmix_nodes(fpmix_lib *lib, const char *nspace, char **nodes);
int fpmix_peers(fpmix_lib *lib, const char *node, const char *nspace, fpmix_proc **procs, size_t *n);
int fpmix_pset_members(fpmix_lib *lib, const char *pset, fpmix_proc **members, size_t *n);

int fpmix_spawn(fpmix_lib *lib, fpmix_app *app, int is_independent, char *nspace);

int fpmix_watch(fpmix_lib *lib, int code);
int fpmix_next(fpmix_event *out);
uint64_t fpmix_dropped(void);
int fpmix_event_fd(void);

#endif
