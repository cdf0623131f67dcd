// The part of UCX's binary interface (libucp.so.0) that ferry uses, from version 1.13 on, so that the
// library's headers are not needed: structures up to the last field that is used, calls and
// constants. Each name is that of UCX with the prefix f or F. testdata/abi.c compares them with the
// library's headers.
//
// Newer versions append fields, and read only fields whose bits are set in the mask at the
// beginning. Our structures have zeroed space at their end.
#ifndef FERRY_UCP_ABI_H
#define FERRY_UCP_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FUCP_BIT(n) ((uint64_t)1 << (n))
#define FUCP_ROOM void *later[8]

// A result: an enumeration of one byte.
typedef signed char fucs_status_t;
enum {
	FUCS_OK = 0,
	FUCS_INPROGRESS = 1,
	FUCS_ERR_NO_RESOURCE = -2,
	FUCS_ERR_IO_ERROR = -3,
	FUCS_ERR_NO_MEMORY = -4,
	FUCS_ERR_UNREACHABLE = -6,
	FUCS_ERR_INVALID_ADDR = -7,
	FUCS_ERR_MESSAGE_TRUNCATED = -9,
	FUCS_ERR_NO_DEVICE = -14,
	FUCS_ERR_BUSY = -15,
	FUCS_ERR_CANCELED = -16,
	FUCS_ERR_UNSUPPORTED = -22,
	FUCS_ERR_CONNECTION_RESET = -25,
	FUCS_ERR_ENDPOINT_TIMEOUT = -80,
	FUCS_ERR_LAST = -100,
};

// A request in progress, NULL for a completed one, or one of the errors above as a pointer.
typedef void *fucs_status_ptr_t;
static inline int fucs_is_error(fucs_status_ptr_t p) { return (uintptr_t)p >= (uintptr_t)FUCS_ERR_LAST; }
static inline int fucs_error(fucs_status_ptr_t p) { return (int)(intptr_t)p; }

// Opaque objects of the library.
typedef struct fucp_config fucp_config_t;
typedef struct fucp_context fucp_context_t;
typedef struct fucp_worker fucp_worker_t;
typedef struct fucp_ep fucp_ep_t;
typedef struct fucp_address fucp_address_t;
typedef struct fucp_message fucp_message_t;

enum {
	FUCP_PARAM_FIELD_FEATURES = FUCP_BIT(0),
	FUCP_PARAM_FIELD_TAG_SENDER_MASK = FUCP_BIT(4),
	FUCP_FEATURE_TAG = FUCP_BIT(0),
	FUCP_FEATURE_WAKEUP = FUCP_BIT(4),
};

typedef struct fucp_params {
	uint64_t field_mask;
	uint64_t features;
	size_t request_size;
	void (*request_init)(void *request);
	void (*request_cleanup)(void *request);
	uint64_t tag_sender_mask;
	FUCP_ROOM;
} fucp_params_t;

enum {
	FUCP_WORKER_PARAM_FIELD_THREAD_MODE = FUCP_BIT(0),
	FUCP_WORKER_PARAM_FIELD_EVENTS = FUCP_BIT(2),
	FUCS_THREAD_MODE_SERIALIZED = 1,
	FUCP_WAKEUP_TAG_SEND = FUCP_BIT(2),
	FUCP_WAKEUP_TAG_RECV = FUCP_BIT(3),
	FUCP_WAKEUP_TX = FUCP_BIT(10),
	FUCP_WAKEUP_RX = FUCP_BIT(11),
};

typedef struct fucp_worker_params {
	uint64_t field_mask;
	int thread_mode;
	unsigned long cpu_mask[1024 / (8 * sizeof(unsigned long))];
	unsigned events;
	FUCP_ROOM;
} fucp_worker_params_t;

enum {
	FUCP_EP_PARAM_FIELD_REMOTE_ADDRESS = FUCP_BIT(0),
	FUCP_EP_PARAM_FIELD_ERR_HANDLING_MODE = FUCP_BIT(1),
	FUCP_EP_PARAM_FIELD_ERR_HANDLER = FUCP_BIT(2),
	FUCP_ERR_HANDLING_MODE_NONE = 0,
	FUCP_ERR_HANDLING_MODE_PEER = 1,
	FUCP_EP_CLOSE_FLAG_FORCE = FUCP_BIT(0),
};

typedef struct fucp_err_handler {
	void (*cb)(void *arg, fucp_ep_t *ep, fucs_status_t status);
	void *arg;
} fucp_err_handler_t;

typedef struct fucp_ep_params {
	uint64_t field_mask;
	const fucp_address_t *address;
	int err_mode;
	fucp_err_handler_t err_handler;
	FUCP_ROOM;
} fucp_ep_params_t;

// Description of a message.
typedef struct fucp_tag_recv_info {
	uint64_t sender_tag;
	size_t length;
} fucp_tag_recv_info_t;

enum {
	FUCP_OP_ATTR_FIELD_CALLBACK = FUCP_BIT(1),
	FUCP_OP_ATTR_FIELD_USER_DATA = FUCP_BIT(2),
	FUCP_OP_ATTR_FIELD_DATATYPE = FUCP_BIT(3),
	FUCP_OP_ATTR_FIELD_FLAGS = FUCP_BIT(4),
	FUCP_OP_ATTR_FIELD_MEMORY_TYPE = FUCP_BIT(6),
	FUCP_OP_ATTR_FLAG_NO_IMM_CMPL = FUCP_BIT(16),
	FUCP_OP_ATTR_FLAG_FORCE_IMM_CMPL = FUCP_BIT(18),
	FUCS_MEMORY_TYPE_HOST = 0,
};

// Parameters of an operation. The default datatype is bytes.
typedef struct fucp_request_param {
	uint32_t op_attr_mask;
	uint32_t flags;
	void *request;
	union {
		void (*send)(void *request, fucs_status_t status, void *user_data);
		void (*recv)(void *request, fucs_status_t status, const fucp_tag_recv_info_t *info, void *user_data);
	} cb;
	uint64_t datatype;
	void *user_data;
	void *reply_buffer;
	int memory_type;
	FUCP_ROOM;
} fucp_request_param_t;

// Functions that pack and unpack a custom layout. UCX copies the structure when the datatype is made.
typedef struct fucp_generic_dt_ops {
	void *(*start_pack)(void *context, const void *buffer, size_t count);
	void *(*start_unpack)(void *context, void *buffer, size_t count);
	size_t (*packed_size)(void *state);
	size_t (*pack)(void *state, size_t offset, void *dest, size_t max);
	fucs_status_t (*unpack)(void *state, size_t offset, const void *src, size_t length);
	void (*finish)(void *state);
} fucp_generic_dt_ops_t;

// Events of memory that the program reports itself if they are declared external.
enum {
	FUCM_EVENT_VM_MAPPED = FUCP_BIT(16),
	FUCM_EVENT_VM_UNMAPPED = FUCP_BIT(17),
	FUCM_EVENT_MEM_TYPE_ALLOC = FUCP_BIT(20),
	FUCM_EVENT_MEM_TYPE_FREE = FUCP_BIT(21),
};

// The functions by their names in the library.
typedef struct fucp_calls {
	void (*ucp_get_version)(unsigned *major, unsigned *minor, unsigned *release);
	fucs_status_t (*ucp_config_read)(const char *prefix, const char *file, fucp_config_t **out);
	void (*ucp_config_release)(fucp_config_t *config);
	fucs_status_t (*ucp_config_modify)(fucp_config_t *config, const char *name, const char *value);
	fucs_status_t (*ucp_init_version)(unsigned major, unsigned minor, const fucp_params_t *params, const fucp_config_t *config, fucp_context_t **out);
	void (*ucp_cleanup)(fucp_context_t *context);
	void (*ucp_context_print_info)(const fucp_context_t *context, FILE *to);
	fucs_status_t (*ucp_worker_create)(fucp_context_t *context, const fucp_worker_params_t *params, fucp_worker_t **out);
	void (*ucp_worker_destroy)(fucp_worker_t *worker);
	fucs_status_t (*ucp_worker_get_address)(fucp_worker_t *worker, fucp_address_t **out, size_t *length);
	void (*ucp_worker_release_address)(fucp_worker_t *worker, fucp_address_t *address);
	unsigned (*ucp_worker_progress)(fucp_worker_t *worker);
	fucs_status_t (*ucp_worker_get_efd)(fucp_worker_t *worker, int *fd);
	fucs_status_t (*ucp_worker_arm)(fucp_worker_t *worker);
	fucs_status_t (*ucp_ep_create)(fucp_worker_t *worker, const fucp_ep_params_t *params, fucp_ep_t **out);
	fucs_status_ptr_t (*ucp_ep_close_nbx)(fucp_ep_t *ep, const fucp_request_param_t *param);
	fucs_status_ptr_t (*ucp_ep_flush_nbx)(fucp_ep_t *ep, const fucp_request_param_t *param);
	fucs_status_ptr_t (*ucp_tag_send_nbx)(fucp_ep_t *ep, const void *buf, size_t n, uint64_t tag, const fucp_request_param_t *param);
	fucs_status_ptr_t (*ucp_tag_send_sync_nbx)(fucp_ep_t *ep, const void *buf, size_t n, uint64_t tag, const fucp_request_param_t *param);
	fucs_status_ptr_t (*ucp_tag_recv_nbx)(fucp_worker_t *worker, void *buf, size_t n, uint64_t tag, uint64_t mask, const fucp_request_param_t *param);
	fucp_message_t *(*ucp_tag_probe_nb)(fucp_worker_t *worker, uint64_t tag, uint64_t mask, int remove, fucp_tag_recv_info_t *info);
	fucs_status_ptr_t (*ucp_tag_msg_recv_nbx)(fucp_worker_t *worker, void *buf, size_t n, fucp_message_t *message, const fucp_request_param_t *param);
	fucs_status_t (*ucp_dt_create_generic)(const fucp_generic_dt_ops_t *ops, void *context, uint64_t *out);
	void (*ucp_request_cancel)(fucp_worker_t *worker, void *request);
	void (*ucp_request_free)(void *request);
	const char *(*ucs_status_string)(fucs_status_t status); // In libucs, a dependency of libucp.
	void (*ucm_set_external_event)(int events);		// In libucm, a dependency of libucp.
	void (*ucm_vm_munmap)(void *address, size_t length);
} fucp_calls_t;

#endif
