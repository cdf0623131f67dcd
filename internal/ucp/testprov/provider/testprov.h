// A UCX for tests: workers of one process, and what they send one another. One lock is held in
// every call, by callbacks too, which may free requests and nothing else.
#ifndef FERRY_UCP_TESTPROV_H
#define FERRY_UCP_TESTPROV_H

#include "../../abi.h"

#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))

enum { CLASSES = 6, NO_NUMBER = -1, ADDRESS_MAGIC = 0x7465, PACKET = 8192, TU_WORKS = 1 };

// A class has one transport, on one device.
typedef struct tu_class {
	const char *name, *transport, *device;
	int network; // NET_DEVICES may name its device
} tu_class;

struct fucp_config {
	char tls[128], devices[128];
	size_t packet; // longer messages stay with their sender until they are received
};

struct fucp_context {
	int has[CLASSES];
	int classes; // the same in bits
	size_t packet;
};

// A message on its way, or not yet received.
struct fucp_message {
	fucp_message_t *next;
	uint64_t tag;
	size_t length;
	char *data;		   // NULL: it is with its sender
	struct tu_request *sender; // who has it, or is told when it is received; NULL: nobody
};

enum tu_kind { SEND, FLUSH, RECEIVE, CLOSE };

typedef struct tu_request {
	struct tu_request *next;  // in posted, waiting or done
	struct tu_request *other; // in its endpoint's open
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
	fucp_message_t *message; // that is received when it is told of
} tu_request;

// A list of what has a next.
typedef struct tu_list {
	void *head, **tail;
} tu_list;

struct fucp_ep {
	fucp_ep_t *next;
	fucp_worker_t *worker;
	uint32_t to; // a worker's number
	int peer_mode;
	fucp_err_handler_t handler;
	fucs_status_t failed;
	int tell;	   // the handler has to be called
	tu_list waiting;   // sends and flushes for which the peer has no room
	tu_request *open;  // sends that are not over
};

struct fucp_worker {
	fucp_worker_t *next;
	fucp_context_t *context;
	uint32_t number;
	tu_list inbox, unexpected, claimed, posted, done;
	int queued; // in the inbox
	fucp_ep_t *eps;
	int efd, armed;
	long heard; // of so many deaths
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

// MAY_FAIL begins a call that fails, or returns nothing, where its name is a fault.
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
