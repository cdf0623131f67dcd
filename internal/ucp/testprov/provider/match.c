// Messages in flight, matched and received.
#include "testprov.h"

#include <stdlib.h>
#include <string.h>

// item is the beginning of all list entries.
typedef struct item {
	struct item *next;
} item;

void tu_append(tu_list *l, void *added)
{
	((item *)added)->next = NULL;
	if (!l->head)
		l->tail = &l->head;
	*l->tail = added;
	l->tail = (void **)&((item *)added)->next;
}

void tu_remove(tu_list *l, void *gone)
{
	for (void **at = &l->head; *at; at = (void **)&((item *)*at)->next) {
		if (*at != gone)
			continue;
		*at = ((item *)gone)->next;
		if (!*at)
			l->tail = at;
		return;
	}
}

void *tu_pop(tu_list *l)
{
	void *first = l->head;
	if (first)
		tu_remove(l, first);
	return first;
}

// tu_finish ends an operation. The next progress calls back.
void tu_finish(tu_request *r, fucs_status_t status)
{
	if (r->ep) {
		tu_request **at = &r->ep->open;
		while (*at && *at != r)
			at = &(*at)->other;
		if (*at)
			*at = r->other;
		r->ep = NULL;
	}
	r->status = status;
	tu_append(&r->worker->done, r);
	tu_wake(r->worker);
}

static void receive(tu_request *r, fucp_message_t *m);

// tu_tell receives the message of the request and then calls back. The callback may free the request.
void tu_tell(tu_request *r)
{
	if (r->message) {
		tu_remove(&r->worker->claimed, r->message);
		receive(r, r->message);
	}
	if (r->kind == RECEIVE)
		r->param.cb.recv(r, r->status, &r->info, r->param.user_data);
	else
		r->param.cb.send(r, r->status, r->param.user_data);
}

// unpack passes a message to a datatype in two pieces.
static fucs_status_t unpack(tu_request *r, const char *from, size_t n)
{
	const tu_datatype *t = (const tu_datatype *)(uintptr_t)r->datatype;
	void *state = t->ops.start_unpack(t->context, r->buf, r->n);
	size_t half = n / 2;
	fucs_status_t status = t->ops.unpack(state, 0, from, half);
	if (!status)
		status = t->ops.unpack(state, half, from + half, n - half);
	t->ops.finish(state);
	return status;
}

// receive ends a receive with a message, which it frees.
static void receive(tu_request *r, fucp_message_t *m)
{
	r->message = NULL;
	const char *from = m->data ? m->data : m->sender ? m->sender->buf : NULL;
	r->info = (fucp_tag_recv_info_t){m->tag, m->length};
	r->status = FUCS_OK;
	if (!from && m->length > 0)
		r->status = FUCS_ERR_ENDPOINT_TIMEOUT; // Its sender has failed.
	else if (r->datatype)
		r->status = unpack(r, from, m->length);
	else if (m->length <= r->n)
		memcpy(r->buf, from ? from : "", m->length);
	else
		r->status = FUCS_ERR_MESSAGE_TRUNCATED;
	if (m->sender)
		tu_finish(m->sender, FUCS_OK);
	m->sender = NULL;
	tu_drop(m);
}

void tu_drop(fucp_message_t *m)
{
	free(m->data);
	free(m);
}

static int matches(uint64_t tag, uint64_t mask, const fucp_message_t *m) { return ((tag ^ m->tag) & mask) == 0; }

// tu_deliver matches arrived messages with receives or keeps them, and returns their number.
int tu_deliver(fucp_worker_t *w)
{
	int n = 0;
	for (fucp_message_t *m; (m = tu_pop(&w->inbox)); n++) {
		tu_request *r = w->posted.head;
		while (r && !matches(r->tag, r->mask, m))
			r = r->next;
		if (r) {
			tu_remove(&w->posted, r);
			receive(r, m);
			tu_tell(r); // Before the next message, as in UCX.
		} else {
			tu_append(&w->unexpected, m);
		}
	}
	w->queued = 0;
	return n;
}

static fucp_message_t *look(fucp_worker_t *w, uint64_t tag, uint64_t mask)
{
	fucp_message_t *m = w->unexpected.head;
	while (m && !matches(tag, mask, m))
		m = m->next;
	return m;
}

static tu_request *receiving(fucp_worker_t *w, void *buf, size_t n, const fucp_request_param_t *p)
{
	tu_request *r = tu_request_new(RECEIVE, w, p);
	if (!r)
		return NULL;
	r->buf = buf;
	r->n = n;
	r->datatype = p->op_attr_mask & FUCP_OP_ATTR_FIELD_DATATYPE ? p->datatype : 0;
	return r;
}

// received receives an unexpected message. The next progress calls back, or this call with
// that fault.
static fucs_status_ptr_t received(tu_request *r, fucp_message_t *m)
{
	r->message = m;
	tu_append(&r->worker->claimed, m);
	if (tu_fault(r->worker->context, "inplace", NULL))
		tu_tell(r);
	else
		tu_append(&r->worker->done, r);
	return r;
}

EXPORT fucs_status_ptr_t ucp_tag_recv_nbx(fucp_worker_t *w, void *buf, size_t n, uint64_t tag, uint64_t mask, const fucp_request_param_t *p)
{
	MAY_FAIL_PTR(w->context);
	pthread_mutex_lock(&tu_lock);
	tu_request *r = receiving(w, buf, n, p);
	fucs_status_ptr_t result = r ? r : (void *)(intptr_t)FUCS_ERR_NO_MEMORY;
	if (r) {
		fucp_message_t *m = look(w, tag, mask);
		r->tag = tag;
		r->mask = mask;
		if (m) {
			tu_remove(&w->unexpected, m);
			result = received(r, m);
		} else {
			tu_append(&w->posted, r);
		}
	}
	pthread_mutex_unlock(&tu_lock);
	return result;
}

EXPORT fucp_message_t *ucp_tag_probe_nb(fucp_worker_t *w, uint64_t tag, uint64_t mask, int take, fucp_tag_recv_info_t *info)
{
	if (tu_outcome(w->context, __func__) != TU_WORKS)
		return NULL;
	pthread_mutex_lock(&tu_lock);
	fucp_message_t *m = look(w, tag, mask);
	if (m) {
		*info = (fucp_tag_recv_info_t){m->tag, m->length};
		if (take) {
			tu_remove(&w->unexpected, m);
			tu_append(&w->claimed, m);
		}
	}
	pthread_mutex_unlock(&tu_lock);
	return m;
}

EXPORT fucs_status_ptr_t ucp_tag_msg_recv_nbx(fucp_worker_t *w, void *buf, size_t n, fucp_message_t *m, const fucp_request_param_t *p)
{
	MAY_FAIL_PTR(w->context);
	pthread_mutex_lock(&tu_lock);
	tu_request *r = receiving(w, buf, n, p);
	tu_remove(&w->claimed, m);
	fucs_status_ptr_t result = r ? received(r, m) : (void *)(intptr_t)FUCS_ERR_NO_MEMORY;
	pthread_mutex_unlock(&tu_lock);
	return result;
}

EXPORT void ucp_request_cancel(fucp_worker_t *w, void *request)
{
	pthread_mutex_lock(&tu_lock);
	for (tu_request *r = w->posted.head; r; r = r->next) {
		if (r != request)
			continue;
		tu_remove(&w->posted, r);
		r->status = FUCS_ERR_CANCELED;
		tu_tell(r);
		break;
	}
	pthread_mutex_unlock(&tu_lock);
}

EXPORT void ucp_request_free(void *request) { free(request); }

EXPORT fucs_status_t ucp_dt_create_generic(const fucp_generic_dt_ops_t *ops, void *context, uint64_t *out)
{
	MAY_FAIL(NULL);
	static tu_datatype all[16]; // One for each load of the library.
	static int n;
	if (n == 16)
		return FUCS_ERR_NO_MEMORY;
	all[n] = (tu_datatype){*ops, context};
	*out = (uint64_t)(uintptr_t)&all[n++];
	return FUCS_OK;
}
