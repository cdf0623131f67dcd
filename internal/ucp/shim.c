// Calls of UCX. UCX is loaded at run time, and abi.h replaces its headers. The file contains no policy: Go chooses transports and tags, and abandons
// operations.
//
// Calls on one ferry_ucp_worker must not overlap. Callbacks of UCX occur only during them. They append events to a queue, which
// ferry_ucp_poll empties. Go is never called.
#include "library.h"
#include "shim.h"

#include <stdlib.h>
#include <string.h>

// A bounce holds a copy of a short message during its send.
typedef struct bounce {
	struct bounce *next;
	char bytes[FERRY_UCP_SHORT];
} bounce;

// A slot identifies an operation. Slots are in chunks that don't move.
typedef struct slot {
	ferry_ucp_worker *worker;
	void *request;		 // in progress
	fucp_message_t *message; // claimed by a probe
	bounce *bounce;		 // of a short send
	uint32_t index;
	int waits; // a receive is in progress
	const char *into; // buffer of a receive
	char *buf;	  // buffer of a receive that may be cut
	size_t room;
	int has_kept;
	char kept[FERRY_UCP_KEPT];
} __attribute__((aligned(64))) slot;

enum { CHUNK_BITS = 8, CHUNK = 1 << CHUNK_BITS };

// The argument of callbacks for an endpoint.
typedef struct endpoint {
	struct endpoint *next;
	ferry_ucp_worker *worker;
	fucp_ep_t *ep;
	uint32_t peer;
} endpoint;

struct ferry_ucp_worker {
	ferry_ucp_lib *lib;
	fucp_context_t *context;
	fucp_worker_t *worker;
	slot **chunks;
	uint32_t n_chunks;
	bounce *bounces;	// free ones
	endpoint *endpoints;	// all of them
	ferry_ucp_event *queue; // a ring; room is a power of two
	uint32_t head, tail, room;
	int fd;
	int wait_fd;
	size_t kept; // length of the messages whose contents are kept, or 0
	// Parameters of operations. UCX reads them only during the call, and only user_data differs between operations. Building them for each
	// operation would take a sixth of a receiver's time.
	fucp_request_param_t sending, now, closing, whole, cutting;
};

static inline slot *slot_at(ferry_ucp_worker *w, uint32_t i) { return &w->chunks[i >> CHUNK_BITS][i & (CHUNK - 1)]; }

// ferry_ucp_grow adds CHUNK slots and space for their events in the queue, and returns the total number of slots.
int ferry_ucp_grow(ferry_ucp_worker *w)
{
	uint32_t need = (w->n_chunks + 1) * CHUNK + CHUNK; // of failing endpoints, too: see push
	if (w->room < need) {
		uint32_t room = w->room ? w->room : 2 * CHUNK;
		while (room < need)
			room *= 2;
		ferry_ucp_event *queue = malloc(room * sizeof(*queue));
		if (!queue)
			return FUCS_ERR_NO_MEMORY;
		uint32_t n = w->tail - w->head;
		for (uint32_t i = 0; i < n; i++)
			queue[i] = w->queue[(w->head + i) & (w->room - 1)];
		free(w->queue);
		w->queue = queue;
		w->head = 0;
		w->tail = n;
		w->room = room;
	}
	slot **chunks = realloc(w->chunks, (w->n_chunks + 1) * sizeof(*chunks));
	if (!chunks)
		return FUCS_ERR_NO_MEMORY;
	w->chunks = chunks;
	slot *s = aligned_alloc(_Alignof(slot), CHUNK * sizeof(*s));
	if (!s)
		return FUCS_ERR_NO_MEMORY;
	memset(s, 0, CHUNK * sizeof(*s));
	for (uint32_t i = 0; i < CHUNK; i++) {
		s[i].worker = w;
		s[i].index = w->n_chunks * CHUNK + i;
	}
	chunks[w->n_chunks++] = s;
	return w->n_chunks * CHUNK;
}

// push appends an event. The queue has space for one event of each slot. The failure of an endpoint is dropped without further space, because
// later sends return it. Fields are written one by one, because a copy of the struct would wait for the stores of its fields.
static void push(ferry_ucp_worker *w, uint32_t slot, uint32_t peer, int error, uint64_t tag, uint64_t length)
{
	ferry_ucp_event *e = &w->queue[w->tail++ & (w->room - 1)];
	e->tag = tag;
	e->length = length;
	e->slot = slot;
	e->peer = peer;
	e->error = error;
}

static void over(slot *s, int error, uint64_t tag, uint64_t length)
{
	ferry_ucp_worker *w = s->worker;
	s->request = NULL;
	s->waits = 0;
	if (s->bounce) {
		s->bounce->next = w->bounces;
		w->bounces = s->bounce;
		s->bounce = NULL;
	}
	push(w, s->index, 0, error, tag, length);
}

static void sent(void *request, fucs_status_t status, void *user_data)
{
	slot *s = user_data;
	s->worker->lib->f.ucp_request_free(request);
	over(s, status, 0, 0);
}

static void received(void *request, fucs_status_t status, const fucp_tag_recv_info_t *info, void *user_data)
{
	slot *s = user_data;
	if (info->length == s->worker->kept && s->into && !status) { // Further receives into the buffer may complete before the next poll.
		memcpy(s->kept, s->into, s->worker->kept);
		s->has_kept = 1;
	}
	over(s, status, info->sender_tag, info->length);
	s->worker->lib->f.ucp_request_free(request);
}

static void failed(void *arg, fucp_ep_t *ep, fucs_status_t status)
{
	endpoint *e = arg;
	ferry_ucp_worker *w = e->worker;
	(void)ep;
	if (w->tail - w->head < w->room - w->n_chunks * CHUNK)
		push(w, FERRY_UCP_NO_SLOT, e->peer, status, 0, 0);
}

// ask prepares the parameters of operations.
static void ask(ferry_ucp_worker *w)
{
	const fucp_request_param_t all = {
		.op_attr_mask = FUCP_OP_ATTR_FIELD_CALLBACK | FUCP_OP_ATTR_FIELD_USER_DATA | FUCP_OP_ATTR_FIELD_MEMORY_TYPE,
		.memory_type = FUCS_MEMORY_TYPE_HOST,
	};
	w->sending = w->closing = w->whole = w->cutting = all;
	w->sending.cb.send = w->closing.cb.send = sent;
	w->now = (fucp_request_param_t){
		.op_attr_mask = FUCP_OP_ATTR_FIELD_MEMORY_TYPE | FUCP_OP_ATTR_FLAG_FORCE_IMM_CMPL,
		.memory_type = FUCS_MEMORY_TYPE_HOST,
	};
	w->closing.op_attr_mask |= FUCP_OP_ATTR_FIELD_FLAGS;
	w->closing.flags = FUCP_EP_CLOSE_FLAG_FORCE;
	w->whole.cb.recv = w->cutting.cb.recv = received;
	w->whole.op_attr_mask |= FUCP_OP_ATTR_FLAG_NO_IMM_CMPL;
	w->cutting.op_attr_mask |= FUCP_OP_ATTR_FLAG_NO_IMM_CMPL | FUCP_OP_ATTR_FIELD_DATATYPE;
	w->cutting.datatype = w->lib->cutting;
}

// result returns r, or an error if the call reported success without an object.
static int result(int r, const void *object) { return r || object ? r : FERRY_UCP_NO_RESULT; }

// ferry_ucp_open makes a context. After a failure *step is the name of the call or the setting.
int ferry_ucp_open(ferry_ucp_lib *lib, const ferry_ucp_setting *settings, int n, int wait_fd, ferry_ucp_worker **out, const char **step)
{
	fucp_config_t *config = NULL;
	*step = "memory";
	ferry_ucp_worker *w = calloc(1, sizeof(*w));
	if (!w)
		return FUCS_ERR_NO_MEMORY;
	w->lib = lib;
	ask(w);
	w->fd = -1;
	w->wait_fd = wait_fd;
	*step = "ucp_config_read";
	int r = lib->f.ucp_config_read(NULL, NULL, &config);
	if ((r = result(r, config)))
		goto fail;
	for (int i = 0; i < n; i++) {
		*step = settings[i].name;
		if ((r = lib->f.ucp_config_modify(config, settings[i].name, settings[i].value)))
			goto fail;
	}
	*step = "ucp_init_version";
	fucp_params_t params = {
		.field_mask = FUCP_PARAM_FIELD_FEATURES,
		.features = FUCP_FEATURE_TAG | (wait_fd ? FUCP_FEATURE_WAKEUP : 0),
	};
	r = lib->f.ucp_init_version(1, 13, &params, config, &w->context);
	if ((r = result(r, w->context)))
		goto fail;
	lib->f.ucp_config_release(config);
	*out = w;
	return 0;
fail:
	if (config)
		lib->f.ucp_config_release(config);
	ferry_ucp_close(w);
	return r;
}

// ferry_ucp_info returns UCX's description of a context. The caller frees it.
int ferry_ucp_info(ferry_ucp_worker *w, char **text)
{
	size_t n;
	*text = NULL;
	FILE *f = open_memstream(text, &n);
	if (!f)
		return FUCS_ERR_NO_MEMORY;
	w->lib->f.ucp_context_print_info(w->context, f);
	if (!fclose(f))
		return 0;
	free(*text);
	*text = NULL;
	return FUCS_ERR_NO_MEMORY;
}

// ferry_ucp_start makes the worker of a context. After a failure only ferry_ucp_close may follow, and *step is the name
// of the call.
int ferry_ucp_start(ferry_ucp_worker *w, const char **step)
{
	const fucp_calls_t *f = &w->lib->f;
	fucp_worker_params_t params = {
		.field_mask = FUCP_WORKER_PARAM_FIELD_THREAD_MODE | (w->wait_fd ? FUCP_WORKER_PARAM_FIELD_EVENTS : 0),
		.thread_mode = FUCS_THREAD_MODE_SERIALIZED,
		.events = FUCP_WAKEUP_TAG_SEND | FUCP_WAKEUP_TAG_RECV | FUCP_WAKEUP_TX | FUCP_WAKEUP_RX,
	};
	*step = "ucp_worker_create";
	int r = f->ucp_worker_create(w->context, &params, &w->worker);
	r = result(r, w->worker);
	if (!r && w->wait_fd) {
		*step = "ucp_worker_get_efd";
		r = f->ucp_worker_get_efd(w->worker, &w->fd);
		if (!r && w->fd < 0)
			r = FERRY_UCP_NO_RESULT;
	}
	return r;
}

// ferry_ucp_close closes the worker and its context. Requests in progress end without an event.
void ferry_ucp_close(ferry_ucp_worker *w)
{
	if (w->worker)
		w->lib->f.ucp_worker_destroy(w->worker);
	if (w->context)
		w->lib->f.ucp_cleanup(w->context);
	for (uint32_t i = 0; i < w->n_chunks; i++) {
		for (uint32_t k = 0; k < CHUNK; k++)
			free(w->chunks[i][k].bounce);
		free(w->chunks[i]);
	}
	free(w->chunks);
	for (bounce *b = w->bounces, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	for (endpoint *e = w->endpoints, *next; e; e = next) {
		next = e->next;
		free(e);
	}
	free(w->queue);
	free(w);
}

int ferry_ucp_address(ferry_ucp_worker *w, void **address, size_t *n)
{
	*address = NULL;
	int r = w->lib->f.ucp_worker_get_address(w->worker, (fucp_address_t **)address, n);
	return result(r, *address);
}

void ferry_ucp_free_address(ferry_ucp_worker *w, void *address) { w->lib->f.ucp_worker_release_address(w->worker, address); }

int ferry_ucp_fd(ferry_ucp_worker *w) { return w->fd; }

// ferry_ucp_arm returns 0 if the descriptor will become readable with the next event.
int ferry_ucp_arm(ferry_ucp_worker *w) { return w->tail != w->head ? FUCS_ERR_BUSY : w->lib->f.ucp_worker_arm(w->worker); }

// ferry_ucp_connect makes an endpoint, and may send messages for that. In peer mode the event of its failure has the peer's number.
int ferry_ucp_connect(ferry_ucp_worker *w, const char *address, uint32_t peer, int peer_mode, void **out)
{
	endpoint *e = calloc(1, sizeof(*e));
	if (!e)
		return FUCS_ERR_NO_MEMORY;
	e->worker = w;
	e->peer = peer;
	fucp_ep_params_t params = {
		.field_mask = FUCP_EP_PARAM_FIELD_REMOTE_ADDRESS | FUCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | FUCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = (const fucp_address_t *)address,
		.err_mode = peer_mode ? FUCP_ERR_HANDLING_MODE_PEER : FUCP_ERR_HANDLING_MODE_NONE,
		.err_handler = {failed, e},
	};
	// UCX up to 1.22 aborts, or frees what it still uses, if it makes an endpoint of a connection from
	// there that is broken and does not know that yet (uct_tcp_ep_connect).
	w->lib->f.ucp_worker_progress(w->worker);
	int r = w->lib->f.ucp_ep_create(w->worker, &params, &e->ep);
	if ((r = result(r, e->ep))) {
		free(e);
		return r;
	}
	e->next = w->endpoints;
	w->endpoints = e;
	*out = e->ep;
	return 0;
}

// asked returns the parameters for an operation of a slot. They are valid until the next operation.
static const fucp_request_param_t *asked(fucp_request_param_t *p, slot *s)
{
	p->user_data = s;
	return p;
}

// started returns 0 if the slot's operation is in progress. It returns 1 if the operation is complete, or an error; there is no event
// then.
static int started(slot *s, fucs_status_ptr_t p)
{
	if (!p)
		return 1;
	if (fucs_is_error(p))
		return fucs_error(p);
	s->request = p;
	return 0;
}

// ferry_ucp_disconnect closes an endpoint in peer mode at once. Its operations end with an error.
int ferry_ucp_disconnect(ferry_ucp_worker *w, uint32_t i, void *ep)
{
	slot *s = slot_at(w, i);
	return started(s, w->lib->f.ucp_ep_close_nbx(ep, asked(&w->closing, s)));
}

// ferry_ucp_flush completes when all messages to an endpoint have left.
int ferry_ucp_flush(ferry_ucp_worker *w, uint32_t i, void *ep)
{
	slot *s = slot_at(w, i);
	return started(s, w->lib->f.ucp_ep_flush_nbx(ep, asked(&w->sending, s)));
}

// ferry_ucp_send sends a message. It copies a short one.
int ferry_ucp_send(const ferry_ucp_call *c, char *buf, ferry_ucp_event *none)
{
	(void)none;
	ferry_ucp_worker *w = c->worker;
	slot *s = slot_at(w, c->slot);
	const fucp_calls_t *f = &w->lib->f;
	fucs_status_ptr_t (*send)(fucp_ep_t *, const void *, size_t, uint64_t, const fucp_request_param_t *) = c->flag ? f->ucp_tag_send_sync_nbx : f->ucp_tag_send_nbx;
	size_t n = c->n;
	const fucp_request_param_t *p = asked(&w->sending, s);
	if (n > FERRY_UCP_SHORT)
		return started(s, send(c->ep, buf, n, c->tag, p));
	bounce *b = w->bounces;
	if (b)
		w->bounces = b->next;
	else if (!(b = malloc(sizeof(*b))))
		return FUCS_ERR_NO_MEMORY;
	if (n)
		memcpy(b->bytes, buf, n);
	s->bounce = b;
	int r = started(s, send(c->ep, b->bytes, n, c->tag, p));
	if (r) {
		s->bounce = NULL;
		b->next = w->bounces;
		w->bounces = b;
	}
	return r;
}

// ferry_ucp_send_now sends a message without a copy, and returns 1 if it has left. Otherwise it has no effect: the message is too long, there is no
// space, or the endpoint has failed.
int ferry_ucp_send_now(const ferry_ucp_call *c, char *buf, ferry_ucp_event *none)
{
	(void)none;
	return !c->worker->lib->f.ucp_tag_send_nbx(c->ep, buf, c->n, c->tag, &c->worker->now);
}

// begun stores the request of a receive, unless it is complete. UCX calls back even then, because only the callback identifies the
// message.
static void begun(slot *s, fucs_status_ptr_t p)
{
	if (!s->waits)
		return;
	if (!p || fucs_is_error(p))
		over(s, p ? fucs_error(p) : 0, 0, 0);
	else
		s->request = p;
}

// UCX drops a message that is longer than its receive completely. A receive that may match such a message therefore has a datatype that accepts any
// length and keeps the beginning. Large messages then arrive in packets, and not directly from the sender's memory.
static void *start_unpack(void *context, void *buffer, size_t count)
{
	(void)context, (void)count;
	return buffer;
}

static size_t packed_size(void *state)
{
	(void)state;
	return SIZE_MAX >> 1;
}

static fucs_status_t unpack(void *state, size_t offset, const void *src, size_t length)
{
	slot *s = state;
	if (offset < s->room && length > 0)
		memcpy(s->buf + offset, src, length < s->room - offset ? length : s->room - offset);
	return FUCS_OK;
}

static void finish(void *state) { (void)state; }

// It is never used for sends.
static void *start_pack(void *context, const void *buffer, size_t count)
{
	(void)context, (void)buffer, (void)count;
	return NULL;
}

static size_t pack(void *state, size_t offset, void *dest, size_t max)
{
	(void)state, (void)offset, (void)dest, (void)max;
	return 0;
}

// ferry_ucp_cutting creates that datatype.
int ferry_ucp_cutting(ferry_ucp_lib *lib)
{
	const fucp_generic_dt_ops_t ops = {start_pack, start_unpack, packed_size, pack, unpack, finish};
	return lib->f.ucp_dt_create_generic(&ops, NULL, &lib->cutting);
}

// receiving returns the parameters of a receive.
static const fucp_request_param_t *receiving(slot *s, char **buf, size_t *n, int whole)
{
	ferry_ucp_worker *w = s->worker;
	s->waits = 1;
	s->into = w->kept && *n >= w->kept ? *buf : NULL;
	s->has_kept = 0;
	s->buf = NULL;
	if (whole)
		return asked(&w->whole, s);
	s->buf = *buf;
	s->room = *n;
	*buf = (char *)s;
	*n = 1;
	return asked(&w->cutting, s);
}

// claimed receives a claimed message.
static void claimed(slot *s, char *buf, size_t n, fucp_message_t *m, int whole)
{
	const fucp_request_param_t *p = receiving(s, &buf, &n, whole);
	begun(s, s->worker->lib->f.ucp_tag_msg_recv_nbx(s->worker->worker, buf, n, m, p));
}

// ferry_ucp_recv posts a receive of a message whose tag has the same bits where mask has bits. With FERRY_UCP_CUT an unexpected message that fits
// is received directly into the buffer.
int ferry_ucp_recv(const ferry_ucp_call *c, char *buf, ferry_ucp_event *none)
{
	(void)none;
	ferry_ucp_worker *w = c->worker;
	slot *s = slot_at(w, c->slot);
	const fucp_calls_t *f = &w->lib->f;
	size_t n = c->n;
	fucp_tag_recv_info_t info;
	if (c->flag == FERRY_UCP_CUT && n > FERRY_UCP_LOOK) {
		fucp_message_t *m = f->ucp_tag_probe_nb(w->worker, c->tag, c->mask, 1, &info);
		if (m) {
			claimed(s, buf, n, m, info.length <= n);
			return 0;
		}
	}
	const fucp_request_param_t *p = receiving(s, &buf, &n, c->flag == FERRY_UCP_WHOLE);
	begun(s, f->ucp_tag_recv_nbx(w->worker, buf, n, c->tag, c->mask, p));
	return 0;
}

// ferry_ucp_probe probes for a message, and returns 1 if there is one. With claim the slot claims it.
int ferry_ucp_probe(ferry_ucp_worker *w, uint32_t i, uint64_t tag, uint64_t mask, int claim, ferry_ucp_event *found)
{
	fucp_tag_recv_info_t info;
	fucp_message_t *m = w->lib->f.ucp_tag_probe_nb(w->worker, tag, mask, claim, &info);
	if (!m)
		return 0;
	if (claim)
		slot_at(w, i)->message = m;
	found->tag = info.sender_tag;
	found->length = info.length;
	return 1;
}

// ferry_ucp_recv_claimed receives the message that the slot has claimed.
void ferry_ucp_recv_claimed(ferry_ucp_worker *w, uint32_t i, char *buf, size_t n, int into)
{
	slot *s = slot_at(w, i);
	fucp_message_t *m = s->message;
	s->message = NULL;
	claimed(s, buf, n, m, into == FERRY_UCP_WHOLE);
}

// ferry_ucp_cancel requests the withdrawal of a receive. Its event contains the result.
void ferry_ucp_cancel(ferry_ucp_worker *w, uint32_t i)
{
	slot *s = slot_at(w, i);
	if (s->request)
		w->lib->f.ucp_request_cancel(w->worker, s->request);
}

// ferry_ucp_abandon detaches the buffer of a receive in progress, and returns 1 if that is possible, which requires that UCX does not know the
// buffer. The event may still come.
int ferry_ucp_abandon(ferry_ucp_worker *w, uint32_t i)
{
	slot *s = slot_at(w, i);
	if (!s->buf)
		return 0;
	s->room = 0;
	s->into = NULL;
	return 1;
}

// ferry_ucp_keep saves the contents of messages of n bytes, up to FERRY_UCP_KEPT.
void ferry_ucp_keep(ferry_ucp_worker *w, size_t n) { w->kept = n <= FERRY_UCP_KEPT ? n : 0; }

// ferry_ucp_kept returns the message of the slot's last receive, or NULL if it was not saved.
const char *ferry_ucp_kept(ferry_ucp_worker *w, uint32_t i)
{
	slot *s = slot_at(w, i);
	return s->has_kept ? s->kept : NULL;
}

// ferry_ucp_changes invalidates UCX's registrations of a buffer, because other memory may be mapped at those addresses later.
void ferry_ucp_changes(ferry_ucp_worker *w, char *buf, size_t n) { w->lib->f.ucm_vm_munmap(buf, n); }

// take copies an event field by field, as push.
static void take(ferry_ucp_event *to, const volatile ferry_ucp_event *e)
{
	to->tag = e->tag;
	to->length = e->length;
	to->slot = e->slot;
	to->peer = e->peer;
	to->error = e->error;
}

// look progresses until there are events, at most looks times, and returns their number.
static int look(ferry_ucp_worker *w, ferry_ucp_event *out, int room, int looks)
{
	for (; looks > 0 && w->head == w->tail; looks--)
		w->lib->f.ucp_worker_progress(w->worker);
	uint32_t n = w->tail - w->head;
	if (n > (uint32_t)room)
		n = room;
	for (uint32_t i = 0; i < n; i++)
		take(&out[i], &w->queue[w->head++ & (w->room - 1)]);
	return n;
}

// ferry_ucp_poll progresses once, unless events are pending.
int ferry_ucp_poll(const ferry_ucp_call *c, char *none, ferry_ucp_event *out)
{
	(void)none;
	return look(c->worker, out, c->room, 1);
}

// ferry_ucp_recv_look is ferry_ucp_recv followed by ferry_ucp_poll, until there is an event or looks times.
int ferry_ucp_recv_look(const ferry_ucp_call *c, char *buf, ferry_ucp_event *out)
{
	ferry_ucp_recv(c, buf, NULL);
	return look(c->worker, out, c->room, c->looks);
}
