// A UCX for tests, with workers of one process that exchange messages. All calls hold one lock, also
// during callbacks, which may only free requests.
#ifndef FERRY_UCP_TESTPROV_H
#define FERRY_UCP_TESTPROV_H

#include "../../abi.h"

#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))

enum { CLASSES = 6, NO_NUMBER = -1, ADDRESS_MAGIC = 0x7465, PACKET = 8192, TU_WORKS = 1 };

// A class has one transport, on one device.
typedef struct tu_class {
	const char *name, *transport, *device;
	int network; // NET_DEVICES may contain its device.
} tu_class;

struct fucp_config {
	char tls[128], devices[128];
	size_t packet; // Longer messages stay with their sender until they are received.
};

struct fucp_context {
	int has[CLASSES];
	int classes; // The classes as bits.
	size_t packet;
};

// A message in flight, or an unexpected one.
struct fucp_message {
	fucp_message_t *next;
	uint64_t tag;
	size_t length;
	char *data;		   // NULL if the sender has it.
	struct tu_request *sender; // The sender's request, which has the content or completes with the receive; or NULL.
};

enum tu_kind { SEND, FLUSH, RECEIVE, CLOSE };

typedef struct tu_request {
	struct tu_request *next;  // In posted, waiting or done.
	struct tu_request *other; // In the list open of its endpoint.
	enum tu_kind kind;
	fucp_worker_t *worker;
	fucp_ep_t *ep;
	char *buf;
	size_t n;
	uint64_t tag, mask, datatype;
	int synchronous;
	fucs_status_t status;
	fucp_tag_recv_info_t info;
	fucp_request_param_t param;
	fucp_message_t *message; // The message that is received before the callback.
} tu_request;

// A list of entries with a next.
typedef struct tu_list {
	void *head, **tail;
} tu_list;

struct fucp_ep {
	fucp_ep_t *next;
	fucp_worker_t *worker;
	uint32_t to; // Number of a worker.
	int peer_mode;
	fucp_err_handler_t handler;
	fucs_status_t failed;
	int tell;	   // The handler must be called.
	tu_list waiting;   // Sends and flushes without space at the peer.
	tu_request *open;  // Sends in progress.
};

struct fucp_worker {
	fucp_worker_t *next;
	fucp_context_t *context;
	uint32_t number;
	tu_list inbox, unexpected, claimed, posted, done;
	int queued; // Messages in the inbox.
	fucp_ep_t *eps;
	int efd, armed;
	long heard; // Number of processed failures.
};

typedef struct tu_datatype {
	fucp_generic_dt_ops_t ops;
	void *context;
} tu_datatype;

extern pthread_mutex_t tu_lock;
extern const tu_class tu_classes[CLASSES];

int tu_named(const char *list, const char *name, long *value);
int tu_fault(const fucp_context_t *c, const char *name, long *value);
long tu_outcome(const fucp_context_t *c, const char *call);

// MAY_FAIL begins a call that fails or returns nothing if its name is a fault.
#define MAY_FAIL_AS(type, context) \
	do { \
		long outcome_ = tu_outcome(context, __func__); \
		if (outcome_ != TU_WORKS) \
			return (type)outcome_; \
	} while (0)
#define MAY_FAIL(context) MAY_FAIL_AS(fucs_status_t, context)
#define MAY_FAIL_PTR(context) MAY_FAIL_AS(fucs_status_ptr_t, context)

void tu_append(tu_list *l, void *item);
void *tu_pop(tu_list *l);
void tu_remove(tu_list *l, void *item);

fucp_worker_t *tu_find(uint32_t number);
void tu_wake(fucp_worker_t *w);
void tu_finish(tu_request *r, fucs_status_t status);
void tu_tell(tu_request *r);
void tu_fail(fucp_ep_t *ep, fucs_status_t status);
int tu_deliver(fucp_worker_t *w);
int tu_push(fucp_worker_t *w);
int tu_cached(void);
void tu_unregister(const fucp_context_t *c, const char *from, const char *to);
void tu_drop(fucp_message_t *m);
tu_request *tu_request_new(enum tu_kind kind, fucp_worker_t *w, const fucp_request_param_t *p);

#endif
