// A small libfabric for tests. It has reliable messages over Unix sockets, and the attributes and
// faults of providers for absent hardware. It implements the declarations of ../../abi.h, and
// replaces libfabric for a program that loads it.
//
//	TESTPROV_PROFILE  available providers, separated by commas (profile.c)
//	TESTPROV_FAULTS   faults, separated by commas, each NAME or NAME=NUMBER (profile.c)
//	TESTPROV_FAULTY   providers whose calls fail; empty: all
//	TESTPROV_VERSION  result of fi_version; 2.2 by default
//	TESTPROV_DIR      a folder for its sockets, which then also connect network
//	                  namespaces; empty: abstract sockets
//
//	gcc -shared -fPIC -fvisibility=hidden -O1 -o libtestprov.so provider/*.c
//
// Calls on one domain must not overlap (FI_THREAD_DOMAIN). It progresses only while a completion
// queue is read or a message is sent (FI_PROGRESS_MANUAL).
#ifndef TESTPROV_H
#define TESTPROV_H

#define _GNU_SOURCE
#include "../../abi.h"

#include <signal.h>

#define EXPORT __attribute__((visibility("default")))

enum { ADDRESS = 32, KEY = 40 }; // In bytes.

// profile.c: the properties and faults of a provider.
typedef struct config {
	const char *provider, *fabric, *domain;
	uint32_t format;       // Format of addresses.
	size_t address;	       // Bytes of an address.
	uint64_t tags;	       // mem_tag_format
	size_t data;	       // Bytes of completion data.
	uint64_t max_message;
	size_t inject, eager;  // Longer messages are fetched from their sender.
	size_t tx, rx, parts;
	const char *key;       // Variable with the job's key, or NULL.
	int minus;	       // Errors of completions have the wrong sign.
	int whole;	       // The completion of a truncated message has the full length.
	int caught[4];	       // Signals that it handles when an endpoint opens.

	unsigned host;	       // The last part of its address.
	int no_directed, directed_first, dead_silent, claim_hangs, quiet_cut, stale, hang;
	long again, slow;      // In milliseconds.
	long peeks;	       // Reads of the queue before a peek completes.
	long insert, meet, part, registers; // Descriptors.
	int mr; // Mode of memory registration.
	long late, flip, lose; // Messages to others before the fault.
	int caught_at;	       // When it handles signals instead.
} config;

// MAY_FAIL begins a call that fails, or reports success without a result, where its name is a fault.
enum { TP_WORKS = 1 };
#define MAY_FAIL(c, call) \
	do { \
		long outcome_ = tp_outcome(c, call); \
		if (outcome_ != TP_WORKS) \
			return outcome_; \
	} while (0)

enum { AT_NEVER, AT_LOAD, AT_OPEN, AT_INSERT, AT_SEND };

int tp_configs(config *out, int room);
int tp_fault(const char *name, long *value);
long tp_outcome(const config *c, const char *call);
void tp_catch(const config *c, int when);
int tp_stale(void); // Whether registrations outlive their memory.

// Objects. The class selects the kind of object in bind.
enum { CLASS_FABRIC = 1, CLASS_DOMAIN, CLASS_AV, CLASS_CQ, CLASS_EP, CLASS_MR };
#define OF(type, member, pointer) ((type *)((char *)(pointer) - offsetof(type, member)))
typedef struct tp_domain tp_domain;
typedef struct tp_av tp_av;
typedef struct tp_cq tp_cq;
typedef struct tp_ep tp_ep;
typedef struct tp_conn tp_conn;
typedef struct tp_peer tp_peer;

// The data of an epoll event. It is the first field of each object.
typedef struct watch {
	enum { LISTENER, CONN, PEER } kind;
} watch;

// Registered memory.
typedef struct tp_mr {
	ffid_mr fid;
	struct tp_mr *next;
	tp_domain *domain;
	const char *at;
	size_t n;
	int bound, enabled;
} tp_mr;

struct tp_domain {
	ffid_domain fid;
	config c;
	tp_mr *regions;
};

struct tp_av {
	ffid_av fid;
	tp_domain *domain;
	tp_ep *ep;
	unsigned char (*addresses)[ADDRESS];
	tp_peer **peers;
	size_t n;
};

// A completion, or an error.
typedef struct entry {
	ffi_cq_tagged_entry ok;
	size_t over;
	int error;
} entry;

// A completion that is visible after some more reads of the queue.
typedef struct later {
	struct later *next;
	entry e;
	long due;
} later;

struct tp_cq {
	ffid_cq fid;
	tp_domain *domain;
	tp_ep *ep;
	int epoll;
	entry *ring;
	size_t room, first, n;
	later *late, *last;
	long reads;
};

// A send in progress.
typedef struct tp_send {
	struct tp_send *next; // In the list of sends that their receivers fetch.
	uint64_t id;
	void *context;	      // NULL without a completion.
	const char *body;
	size_t n;
	tp_peer *to;
} tp_send;

// A receive.
typedef struct tp_recv {
	struct tp_recv *next, *before;
	uint64_t id, from, tag, ignore;
	void *context;
	struct iovec part[2];
	size_t room, total, wanted, got;
	uint64_t got_tag, got_data;
	tp_conn *by; // Connection of its message.
} tp_recv;

// An unexpected message.
typedef struct tp_msg {
	struct tp_msg *next, *before;
	unsigned char from[ADDRESS];
	tp_conn *by;	// NULL after the connection has closed.
	uint64_t tag, data, id;
	size_t n;
	int fetched;	// The sender has the contents.
	void *claimed;	// Context of the operation that has claimed it.
	char body[];
} tp_msg;

// A list, the oldest first. Its entries have one of the types above.
typedef struct list {
	void *head, *tail;
} list;

struct tp_ep {
	watch w; // Of the listener.
	ffid_ep fid;
	tp_domain *domain;
	tp_av *av;
	tp_cq *cq;
	int listener, directed, broken;
	unsigned char address[ADDRESS];
	char path[108], key[KEY];
	tp_peer *peers;
	tp_conn *conns;
	tp_send *offered;     // Sends that their receivers will fetch.
	list receives[2];     // Untagged and tagged.
	list messages[2];
	list claimed, active; // Messages that a peek has claimed, and receives that are being fetched.
	size_t sending, receiving, waiting;
	uint64_t ids;
	long sent, to_others;
};

// cq.c
void tp_done(tp_cq *q, void *context, uint64_t tag, uint64_t data, size_t n, size_t over, int error);
void tp_done_later(tp_cq *q, long reads, void *context, uint64_t tag, uint64_t data, size_t n, int error);
int tp_cq_open(ffid_domain *d, ffi_cq_attr *attr, ffid_cq **out, void *context);

// region.c, domain.c, endpoint.c, info.c
extern ffi_ops_mr tp_region_calls;
int tp_may(const tp_domain *d, const void *desc, const void *buf, size_t n);
int tp_av_open(ffid_domain *d, ffi_av_attr *attr, ffid_av **out, void *context);
int tp_endpoint(ffid_domain *d, ffi_info *info, ffid_ep **out, void *context);
const config *tp_config_of(const ffi_info *info);
int tp_trywait(ffid_fabric *f, ffid **fids, int count);

// match.c
void tp_arrived(tp_ep *ep, tp_conn *by, const unsigned char *from, int tagged, uint64_t tag, uint64_t data, const char *body, size_t n, int fetched, uint64_t id);
ssize_t tp_post(tp_ep *ep, int tagged, const tp_recv *what);
ssize_t tp_peek(tp_ep *ep, const ffi_msg_tagged *m, int claim);
ssize_t tp_take(tp_ep *ep, const ffi_msg_tagged *m);
ssize_t tp_cancel(ffid *f, void *context);
struct iovec tp_place(tp_recv *r, size_t at);
void tp_fetched(tp_ep *ep, tp_recv *r, int error);
void tp_lost(tp_ep *ep, tp_conn *by);
void tp_forget(tp_ep *ep);

// socket.c, peer.c and conn.c: frames and connections.
enum { HELLO, EAGER, OFFER, FETCH, DATA };
typedef struct frame {
	uint32_t magic;
	uint8_t type, tagged;
	uint16_t host;
	uint64_t tag, data, n; // n is the number of bytes behind it, or of offered or requested ones.
	uint64_t id, to;       // Ids of the operations of the sender and of the receiver.
} frame;
enum { MAGIC = 0x74707231 };

typedef struct hello {
	unsigned char address[ADDRESS];
	char key[KEY], fabric[32];
} hello;

// A queued frame with the bytes behind it.
typedef struct out {
	struct out *next;
	frame head;
	const char *body;
	size_t n, done; // done includes the head.
	tp_send *own;	// It ends when all bytes have left.
	char copy[];
} out;

// The sending side of a connection with a peer.
struct tp_peer {
	watch w;
	tp_peer *next;
	unsigned char address[ADDRESS];
	int fd, writing; // writing is set while epoll waits for space.
	out *head, *tail;
	size_t queued;
	long since; // Time of the first send, for peers that accept no message at first.
};

// The receiving side of a connection.
struct tp_conn {
	watch w;
	tp_conn *next;
	int fd, known, dead;
	unsigned char address[ADDRESS];
	char *buf;
	size_t room, have;
	uint64_t id;   // Id of the receive whose bytes arrive.
	uint64_t left; // Remaining bytes of it.
};

int tp_listen(tp_ep *ep);
int tp_connect(const unsigned char *address);
void tp_watch(tp_ep *ep, int fd, watch *w, uint32_t events, int how);
void tp_progress(tp_ep *ep);

tp_peer *tp_peer_of(tp_ep *ep, const unsigned char *address);
int tp_put(tp_ep *ep, tp_peer *p, const frame *f, const void *body, size_t n, tp_send *own, int copy);
int tp_flush(tp_ep *ep, tp_peer *p);
void tp_fail(tp_ep *ep, tp_peer *p, int error);
void tp_fetch(tp_ep *ep, const frame *f);
void tp_end_send(tp_ep *ep, tp_send *s, int error);

void tp_accept(tp_ep *ep);
void tp_read(tp_ep *ep, tp_conn *c);
void tp_sweep(tp_ep *ep, int all);

// stale.c: a registration cache.
char *tp_registered(const char *body, size_t n, size_t *prefix);

long tp_now(void); // In milliseconds.
void tp_linger(long milliseconds, long gate);

#endif
