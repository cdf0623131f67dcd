// The interface between Go and UCX, with plain types. library.c and shim.c document the functions. Results are 0 or a negative error number of
// UCX.
#ifndef FERRY_UCP_SHIM_H
#define FERRY_UCP_SHIM_H

#include "abi.h"

// Slot of the event of an endpoint's failure.
#define FERRY_UCP_NO_SLOT UINT32_MAX

// Status of a call that reported success without a result. UCX's errors are negative.
#define FERRY_UCP_NO_RESULT 1

// Length up to which messages are copied when they are sent, in bytes.
#define FERRY_UCP_SHORT 1024

// Length of a receive above which it first probes for its message, in bytes.
#define FERRY_UCP_LOOK FERRY_UCP_SHORT

// Length of the longest message whose contents are kept, in bytes.
#define FERRY_UCP_KEPT 64

typedef struct ferry_ucp_lib ferry_ucp_lib;
typedef struct ferry_ucp_worker ferry_ucp_worker;

// ferry_ucp_setting is one of UCX's variables, without the prefix UCX_.
typedef struct ferry_ucp_setting {
	const char *name, *value;
} ferry_ucp_setting;

// ferry_ucp_event is the end of one operation, or of an endpoint.
typedef struct ferry_ucp_event {
	uint64_t tag, length; // of a received message
	uint32_t slot;
	uint32_t peer; // of a failed endpoint
	int32_t error;
	int32_t unused;
} ferry_ucp_event;

int ferry_ucp_load(const char *path, ferry_ucp_lib **lib, char *why, size_t room);
void ferry_ucp_version(ferry_ucp_lib *lib, unsigned *major, unsigned *minor, unsigned *release);
const char *ferry_ucp_error(ferry_ucp_lib *lib, int code);
int ferry_ucp_open(ferry_ucp_lib *lib, const ferry_ucp_setting *settings, int n, int wait_fd, ferry_ucp_worker **out, const char **step);
int ferry_ucp_info(ferry_ucp_worker *w, char **text);
int ferry_ucp_start(ferry_ucp_worker *w, const char **step);
void ferry_ucp_close(ferry_ucp_worker *w);
int ferry_ucp_address(ferry_ucp_worker *w, void **address, size_t *n);
void ferry_ucp_free_address(ferry_ucp_worker *w, void *address);
int ferry_ucp_grow(ferry_ucp_worker *w);
int ferry_ucp_fd(ferry_ucp_worker *w);
int ferry_ucp_arm(ferry_ucp_worker *w);
int ferry_ucp_connect(ferry_ucp_worker *w, const char *address, uint32_t peer, int peer_mode, void **ep);
int ferry_ucp_disconnect(ferry_ucp_worker *w, uint32_t slot, void *ep);
int ferry_ucp_flush(ferry_ucp_worker *w, uint32_t slot, void *ep);

// Use of the buffer of a receive: see BufferUse in ucp.go.
enum { FERRY_UCP_CUT, FERRY_UCP_WHOLE, FERRY_UCP_ABANDONABLE };

// The arguments of frequent functions. These have one signature, and their arguments are in C memory, so that Go can call them without cgo. Buffers are
// pointers to char. For a pointer to void cgo would check the whole object around the buffer for Go pointers.
typedef struct ferry_ucp_call {
	ferry_ucp_worker *worker;
	void *ep;
	size_t n; // length of the buffer, in bytes
	uint64_t tag, mask;
	uint32_t slot;
	int32_t flag; // synchronous for a send; FERRY_UCP_CUT and so on for a receive
	int32_t looks;
	int32_t room; // space for events
} ferry_ucp_call;

int ferry_ucp_send(const ferry_ucp_call *c, char *buf, ferry_ucp_event *none);
int ferry_ucp_send_now(const ferry_ucp_call *c, char *buf, ferry_ucp_event *none);
int ferry_ucp_recv(const ferry_ucp_call *c, char *buf, ferry_ucp_event *none);
int ferry_ucp_recv_look(const ferry_ucp_call *c, char *buf, ferry_ucp_event *out);
int ferry_ucp_poll(const ferry_ucp_call *c, char *none, ferry_ucp_event *out);

int ferry_ucp_probe(ferry_ucp_worker *w, uint32_t slot, uint64_t tag, uint64_t mask, int claim, ferry_ucp_event *found);
void ferry_ucp_recv_claimed(ferry_ucp_worker *w, uint32_t slot, char *buf, size_t n, int into);
void ferry_ucp_cancel(ferry_ucp_worker *w, uint32_t slot);
int ferry_ucp_abandon(ferry_ucp_worker *w, uint32_t slot);
void ferry_ucp_keep(ferry_ucp_worker *w, size_t n);
const char *ferry_ucp_kept(ferry_ucp_worker *w, uint32_t slot);
void ferry_ucp_changes(ferry_ucp_worker *w, char *buf, size_t n);

#endif
