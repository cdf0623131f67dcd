// The part of libpmix's binary interface that ferry uses. These layouts, numbers and names are
// unchanged since PMIx 4.1, so that compiling needs no header of the library. testdata/abi.c
// compares them with the library's own headers.
#ifndef FERRY_PMIXC_ABI_H
#define FERRY_PMIXC_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { FPMIX_NSPACE_ROOM = 256, FPMIX_KEY_ROOM = 512 }; // with the byte that ends them

// All ranks of a namespace.
#define FPMIX_RANK_WILDCARD (UINT32_MAX - 1)

// Statuses.
enum {
	FPMIX_SUCCESS = 0,
	FPMIX_ERR_PROC_ABORTED = -7,
	FPMIX_ERR_TIMEOUT = -24,
	FPMIX_ERR_UNREACH = -25,
	FPMIX_ERR_BAD_PARAM = -27,
	FPMIX_ERR_INIT = -31,
	FPMIX_ERR_NOMEM = -32,
	FPMIX_ERR_NOT_FOUND = -46,
	FPMIX_ERR_NOT_SUPPORTED = -47,
	FPMIX_ERR_PARTIAL_SUCCESS = -52,
	FPMIX_ERR_LOST_CONNECTION = -61,
	FPMIX_OPERATION_SUCCEEDED = -157,
	FPMIX_ERR_PROC_TERM_WO_SYNC = -200,
	FPMIX_EVENT_NO_ACTION_TAKEN = -331,
	FPMIX_ERR_PROC_ABORTED_BY_SIG = -402,
	FPMIX_ERR_EXIT_NONZERO_TERM = -404,
};

// Types of values.
enum {
	FPMIX_BOOL = 1,
	FPMIX_STRING = 3,
	FPMIX_SIZE = 4,
	FPMIX_INT = 6,
	FPMIX_INT8 = 7,
	FPMIX_INT16 = 8,
	FPMIX_INT32 = 9,
	FPMIX_INT64 = 10,
	FPMIX_UINT = 11,
	FPMIX_UINT8 = 12,
	FPMIX_UINT16 = 13,
	FPMIX_UINT32 = 14,
	FPMIX_UINT64 = 15,
	FPMIX_PROC = 22,
	FPMIX_INFO = 24,
	FPMIX_BYTE_OBJECT = 27,
	FPMIX_DATA_ARRAY = 39,
	FPMIX_PROC_RANK = 40,
};

// Scope of values.
enum { FPMIX_GLOBAL = 3 };

// Attributes.
#define FPMIX_IMMEDIATE "pmix.immediate"
#define FPMIX_TIMEOUT "pmix.timeout"
#define FPMIX_EVENT_AFFECTED_PROC "pmix.evproc"
#define FPMIX_GROUP_ASSIGN_CONTEXT_ID "pmix.grp.actxid"
#define FPMIX_GROUP_CONTEXT_ID "pmix.grp.ctxid"
#define FPMIX_QUERY_PSET_NAMES "pmix.qry.psets"
#define FPMIX_QUERY_PSET_MEMBERSHIP "pmix.qry.pmems"
#define FPMIX_PSET_NAME "pmix.pset.nm"
#define FPMIX_SPAWN_CHILD_SEP "pmix.spchildsep" // since 5.0

typedef struct fpmix_proc {
	char nspace[FPMIX_NSPACE_ROOM];
	uint32_t rank;
} fpmix_proc;

typedef struct fpmix_bytes {
	char *bytes;
	size_t size;
} fpmix_bytes;

typedef struct fpmix_array {
	uint16_t type;
	size_t size;
	void *array;
} fpmix_array;

typedef struct fpmix_value {
	uint16_t type;
	union {
		_Bool flag;
		char *string;
		size_t size;
		int integer;
		int8_t int8;
		int16_t int16;
		int32_t int32;
		int64_t int64;
		unsigned uint;
		uint8_t uint8;
		uint16_t uint16;
		uint32_t uint32;
		uint64_t uint64;
		uint32_t rank;
		fpmix_proc *proc;
		fpmix_bytes bo;
		fpmix_array *darray;
		struct {
			char *name, *value;
			char separator;
		} envar; // the largest
	} data;
} fpmix_value;

typedef struct fpmix_info {
	char key[FPMIX_KEY_ROOM];
	uint32_t flags;
	fpmix_value value;
} fpmix_info;

typedef struct fpmix_query {
	char **keys; // ends with NULL
	fpmix_info *qualifiers;
	size_t nqual;
} fpmix_query;

typedef struct fpmix_app {
	char *cmd;
	char **argv; // ends with NULL, as env
	char **env;
	char *cwd;
	int maxprocs;
	fpmix_info *info;
	size_t ninfo;
} fpmix_app;

typedef void (*fpmix_op_done)(int status, void *cbdata);

// Callback of a handler that has processed an event.
typedef void (*fpmix_event_done)(int status, fpmix_info *results, size_t nresults, fpmix_op_done release, void *release_data, void *cbdata);

typedef void (*fpmix_handler)(size_t id, int status, const fpmix_proc *source, fpmix_info info[], size_t ninfo,
			      fpmix_info results[], size_t nresults, fpmix_event_done done, void *cbdata);

typedef void (*fpmix_registered)(int status, size_t id, void *cbdata);

// Functions by their names in the library.
typedef struct fpmix_calls {
	const char *(*PMIx_Get_version)(void);
	const char *(*PMIx_Error_string)(int status);
	int (*PMIx_Init)(fpmix_proc *proc, fpmix_info info[], size_t ninfo);
	int (*PMIx_Initialized)(void);
	int (*PMIx_Finalize)(const fpmix_info info[], size_t ninfo);
	int (*PMIx_Abort)(int status, const char msg[], fpmix_proc procs[], size_t nprocs);
	int (*PMIx_Put)(uint8_t scope, const char key[], fpmix_value *val);
	int (*PMIx_Commit)(void);
	int (*PMIx_Get)(const fpmix_proc *proc, const char key[], const fpmix_info info[], size_t ninfo, fpmix_value **val);
	int (*PMIx_Fence)(const fpmix_proc procs[], size_t nprocs, const fpmix_info info[], size_t ninfo);
	int (*PMIx_Register_event_handler)(int codes[], size_t ncodes, fpmix_info info[], size_t ninfo,
					   fpmix_handler handler, fpmix_registered done, void *cbdata);
	int (*PMIx_Group_construct)(const char group[], const fpmix_proc procs[], size_t nprocs,
				    const fpmix_info directives[], size_t ndirs, fpmix_info **results, size_t *nresults);
	int (*PMIx_Query_info)(fpmix_query queries[], size_t nqueries, fpmix_info **results, size_t *nresults);
	int (*PMIx_Spawn)(const fpmix_info job_info[], size_t ninfo, const fpmix_app apps[], size_t napps, char nspace[]);
	// Optional. NULL if the library has none.
	int (*PMIx_Resolve_nodes)(const char nspace[], char **nodes);
	int (*PMIx_Resolve_peers)(const char node[], const char nspace[], fpmix_proc **procs, size_t *n);
	// Since 4.2. NULL before, because it is inline in the library's headers.
	void (*PMIx_Value_destruct)(fpmix_value *val);
} fpmix_calls;

#endif
