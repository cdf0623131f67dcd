// Compares abi.h with UCX's own headers. It says what differs, and exits with the number of
// differences.
#include "../abi.h"

#include <stdio.h>
#include <ucm/api/ucm.h>
#include <ucp/api/ucp.h>

static int wrong;

static void same(const char *what, long long ours, long long theirs)
{
	if (ours != theirs) {
		printf("%s: %lld here, %lld in the library's headers\n", what, ours, theirs);
		wrong++;
	}
}

// What we make may be longer than what the library reads of it.
#define OURS(type) \
	(void)(sizeof(type) <= sizeof(f##type) || (printf("size of %s: %zu do not fit into %zu\n", #type, sizeof(type), sizeof(f##type)), wrong++))
#define NUMBER(name) same(#name, (long long)F##name, (long long)(name))

// A field: where it is, and how long it is.
#define FIELD(type, field)                                                                             \
	do {                                                                                           \
		same(#type "." #field, offsetof(f##type, field), offsetof(type, field));               \
		same("size of " #type "." #field, sizeof(((f##type *)0)->field), sizeof(((type *)0)->field)); \
	} while (0)

// A function: that it takes as many arguments, and has a result of the same size. It is not
// called.
#define FUNCTION(name, ...)                                                                                     \
	do {                                                                                                    \
		fucp_calls_t ours;                                                                              \
		same("size of the result of " #name, sizeof(ours.name(__VA_ARGS__)), sizeof(name(__VA_ARGS__))); \
	} while (0)
#define NOTHING(name, ...)                                                     \
	do {                                                                   \
		fucp_calls_t ours;                                             \
		(void)sizeof(__typeof__(ours.name(__VA_ARGS__)) *);            \
		(void)sizeof(__typeof__(name(__VA_ARGS__)) *);                 \
	} while (0)

static void structures(void)
{
	OURS(ucp_params_t);
	FIELD(ucp_params_t, field_mask);
	FIELD(ucp_params_t, features);
	FIELD(ucp_params_t, request_size);
	FIELD(ucp_params_t, request_init);
	FIELD(ucp_params_t, request_cleanup);
	FIELD(ucp_params_t, tag_sender_mask);
	OURS(ucp_worker_params_t);
	FIELD(ucp_worker_params_t, field_mask);
	FIELD(ucp_worker_params_t, thread_mode);
	FIELD(ucp_worker_params_t, cpu_mask);
	FIELD(ucp_worker_params_t, events);
	OURS(ucp_ep_params_t);
	FIELD(ucp_ep_params_t, field_mask);
	FIELD(ucp_ep_params_t, address);
	FIELD(ucp_ep_params_t, err_mode);
	FIELD(ucp_ep_params_t, err_handler);
	FIELD(ucp_err_handler_t, cb);
	FIELD(ucp_err_handler_t, arg);
	FIELD(ucp_tag_recv_info_t, sender_tag);
	FIELD(ucp_tag_recv_info_t, length);
	same("size of ucp_tag_recv_info_t", sizeof(fucp_tag_recv_info_t), sizeof(ucp_tag_recv_info_t));
	OURS(ucp_request_param_t);
	FIELD(ucp_request_param_t, op_attr_mask);
	FIELD(ucp_request_param_t, flags);
	FIELD(ucp_request_param_t, request);
	FIELD(ucp_request_param_t, cb);
	FIELD(ucp_request_param_t, datatype);
	FIELD(ucp_request_param_t, user_data);
	FIELD(ucp_request_param_t, reply_buffer);
	FIELD(ucp_request_param_t, memory_type);
	FIELD(ucp_generic_dt_ops_t, start_pack);
	FIELD(ucp_generic_dt_ops_t, start_unpack);
	FIELD(ucp_generic_dt_ops_t, packed_size);
	FIELD(ucp_generic_dt_ops_t, pack);
	FIELD(ucp_generic_dt_ops_t, unpack);
	FIELD(ucp_generic_dt_ops_t, finish);
	same("size of ucp_generic_dt_ops_t", sizeof(fucp_generic_dt_ops_t), sizeof(ucp_generic_dt_ops_t));
}

static void numbers(void)
{
	same("size of ucs_status_t", sizeof(fucs_status_t), sizeof(ucs_status_t));
	same("size of ucp_tag_t", sizeof(uint64_t), sizeof(ucp_tag_t));
	NUMBER(UCS_OK);
	NUMBER(UCS_INPROGRESS);
	NUMBER(UCS_ERR_NO_RESOURCE);
	NUMBER(UCS_ERR_IO_ERROR);
	NUMBER(UCS_ERR_NO_MEMORY);
	NUMBER(UCS_ERR_UNREACHABLE);
	NUMBER(UCS_ERR_INVALID_ADDR);
	NUMBER(UCS_ERR_MESSAGE_TRUNCATED);
	NUMBER(UCS_ERR_NO_DEVICE);
	NUMBER(UCS_ERR_BUSY);
	NUMBER(UCS_ERR_CANCELED);
	NUMBER(UCS_ERR_UNSUPPORTED);
	NUMBER(UCS_ERR_CONNECTION_RESET);
	NUMBER(UCS_ERR_ENDPOINT_TIMEOUT);
	NUMBER(UCS_ERR_LAST);
	NUMBER(UCP_PARAM_FIELD_FEATURES);
	NUMBER(UCP_PARAM_FIELD_TAG_SENDER_MASK);
	NUMBER(UCP_FEATURE_TAG);
	NUMBER(UCP_FEATURE_WAKEUP);
	NUMBER(UCP_WORKER_PARAM_FIELD_THREAD_MODE);
	NUMBER(UCP_WORKER_PARAM_FIELD_EVENTS);
	NUMBER(UCS_THREAD_MODE_SERIALIZED);
	NUMBER(UCP_WAKEUP_TAG_SEND);
	NUMBER(UCP_WAKEUP_TAG_RECV);
	NUMBER(UCP_WAKEUP_TX);
	NUMBER(UCP_WAKEUP_RX);
	NUMBER(UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
	NUMBER(UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE);
	NUMBER(UCP_EP_PARAM_FIELD_ERR_HANDLER);
	NUMBER(UCP_ERR_HANDLING_MODE_NONE);
	NUMBER(UCP_ERR_HANDLING_MODE_PEER);
	NUMBER(UCP_EP_CLOSE_FLAG_FORCE);
	NUMBER(UCP_OP_ATTR_FIELD_CALLBACK);
	NUMBER(UCP_OP_ATTR_FIELD_USER_DATA);
	NUMBER(UCP_OP_ATTR_FIELD_DATATYPE);
	NUMBER(UCP_OP_ATTR_FIELD_FLAGS);
	NUMBER(UCP_OP_ATTR_FIELD_MEMORY_TYPE);
	NUMBER(UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
	NUMBER(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL);
	NUMBER(UCS_MEMORY_TYPE_HOST);
	// What we leave out is a datatype of bytes.
	same("the datatype of bytes", ucp_dt_make_contig(1), (1 << UCP_DATATYPE_SHIFT) | UCP_DATATYPE_CONTIG);
	for (int i = -1; i >= UCS_ERR_LAST; i--) {
		same("errors as pointers", fucs_is_error((void *)(intptr_t)i), UCS_PTR_IS_ERR((void *)(intptr_t)i));
		same("the error in a pointer", fucs_error((void *)(intptr_t)i), UCS_PTR_RAW_STATUS((void *)(intptr_t)i));
	}
	same("no error", fucs_is_error(&wrong), UCS_PTR_IS_ERR(&wrong));
}

static void functions(void)
{
	NOTHING(ucp_get_version, NULL, NULL, NULL);
	FUNCTION(ucp_config_read, NULL, NULL, NULL);
	NOTHING(ucp_config_release, NULL);
	FUNCTION(ucp_config_modify, NULL, NULL, NULL);
	FUNCTION(ucp_init_version, 0, 0, NULL, NULL, NULL);
	NOTHING(ucp_cleanup, NULL);
	NOTHING(ucp_context_print_info, NULL, NULL);
	FUNCTION(ucp_worker_create, NULL, NULL, NULL);
	NOTHING(ucp_worker_destroy, NULL);
	FUNCTION(ucp_worker_get_address, NULL, NULL, NULL);
	NOTHING(ucp_worker_release_address, NULL, NULL);
	FUNCTION(ucp_worker_progress, NULL);
	FUNCTION(ucp_worker_get_efd, NULL, NULL);
	FUNCTION(ucp_worker_arm, NULL);
	FUNCTION(ucp_ep_create, NULL, NULL, NULL);
	FUNCTION(ucp_ep_close_nbx, NULL, NULL);
	FUNCTION(ucp_ep_flush_nbx, NULL, NULL);
	FUNCTION(ucp_tag_send_nbx, NULL, NULL, 0, 0, NULL);
	FUNCTION(ucp_tag_send_sync_nbx, NULL, NULL, 0, 0, NULL);
	FUNCTION(ucp_tag_recv_nbx, NULL, NULL, 0, 0, 0, NULL);
	FUNCTION(ucp_tag_probe_nb, NULL, 0, 0, 0, NULL);
	FUNCTION(ucp_tag_msg_recv_nbx, NULL, NULL, 0, NULL, NULL);
	FUNCTION(ucp_dt_create_generic, NULL, NULL, NULL);
	NOTHING(ucp_request_cancel, NULL, NULL);
	NOTHING(ucp_request_free, NULL);
	FUNCTION(ucs_status_string, 0);
	NUMBER(UCM_EVENT_VM_MAPPED);
	NUMBER(UCM_EVENT_VM_UNMAPPED);
	NUMBER(UCM_EVENT_MEM_TYPE_ALLOC);
	NUMBER(UCM_EVENT_MEM_TYPE_FREE);
	NOTHING(ucm_set_external_event, 0);
	NOTHING(ucm_vm_munmap, NULL, 0);
}

int main(void)
{
	structures();
	numbers();
	functions();
	return wrong;
}
