// Messages to endpoints.
#include "testprov.h"

#include <stdlib.h>
#include <string.h>

// A registration is the remembered content of memory, for the fault stale.
typedef struct registration {
	struct registration *next;
	const fucp_context_t *context;
	const char *at;
	size_t n;
	char *contents;
} registration;

static registration *registrations;
static int told; // The program reports changes of memory.

EXPORT void ucm_set_external_event(int events) { told |= events & (int)FUCM_EVENT_VM_UNMAPPED; }

// tu_unregister ends the registrations of a context, or of all contexts, between two addresses.
void tu_unregister(const fucp_context_t *c, const char *from, const char *to)
{
	pthread_mutex_lock(&tu_lock);
	for (registration **at = &registrations, *r; (r = *at);) {
		if ((c && r->context != c) || (uintptr_t)r->at >= (uintptr_t)to || (uintptr_t)from >= (uintptr_t)r->at + r->n ||
		    (!c && tu_fault(r->context, "deaf", NULL))) {
			at = &r->next;
			continue;
		}
		*at = r->next;
		free(r->contents);
		free(r);
	}
	pthread_mutex_unlock(&tu_lock);
}

EXPORT void ucm_vm_munmap(void *address, size_t n) { tu_unregister(NULL, address, (char *)address + n); }

// tu_cached reports whether there is a registration cache, which requires events of memory.
int tu_cached(void)
{
	const char *events = getenv("UCX_MEM_EVENTS");
	return told && !(events && *events == 'n');
}

// contents returns the content of a buffer, or that at its registration with the fault stale.
static const char *contents(const fucp_context_t *c, const char *at, size_t n)
{
	if (!n || !tu_fault(c, "stale", NULL))
		return at;
	registration *r = registrations;
	while (r && (r->context != c || r->at != at || r->n != n))
		r = r->next;
	if (!r && (r = calloc(1, sizeof(*r)))) {
		*r = (registration){registrations, c, at, n, malloc(n)};
		registrations = memcpy(r->contents, at, n) ? r : NULL;
	}
	return r->contents;
}

static int has_room(const fucp_ep_t *ep, const fucp_worker_t *to)
{
	long most;
	return !tu_fault(ep->worker->context, "queue", &most) || to->queued < most;
}

// carry appends a message to the inbox of its receiver.
static void carry(fucp_worker_t *to, tu_request *r, int kept)
{
	long n;
	fucp_message_t *m = calloc(1, sizeof(*m));
	if (!m)
		abort(); // The test is out of memory.
	m->tag = tu_fault(to->context, "tags", &n) ? r->tag & (((uint64_t)1 << n) - 1) : r->tag;
	m->length = r->n;
	if (!kept) {
		m->data = malloc(r->n + 1);
		if (!m->data)
			abort();
		memcpy(m->data, r->buf ? r->buf : "", r->n);
	}
	m->sender = kept || r->synchronous ? r : NULL;
	tu_append(&to->inbox, m);
	to->queued++;
	tu_wake(to);
}

// go sends the message of a request, and reports whether the request is complete.
static int go(fucp_ep_t *ep, tu_request *r)
{
	fucp_worker_t *to = tu_find(ep->to);
	int kept = r->n > ep->worker->context->packet;
	if (r->kind == FLUSH)
		return 1;
	if (to)
		carry(to, r, kept);
	if (to && !kept && !r->synchronous)
		return 1;
	r->ep = ep;
	r->other = ep->open;
	ep->open = r;
	if (!to)
		tu_fail(ep, FUCS_ERR_CONNECTION_RESET);
	return 0;
}

// tu_push sends queued messages for which there is space, and returns their number.
int tu_push(fucp_worker_t *w)
{
	int n = 0;
	for (fucp_ep_t *ep = w->eps; ep; ep = ep->next) {
		fucp_worker_t *to = tu_find(ep->to);
		while (ep->waiting.head && !ep->failed && (!to || has_room(ep, to))) {
			tu_request *r = tu_pop(&ep->waiting);
			n++;
			if (go(ep, r))
				tu_finish(r, FUCS_OK);
		}
	}
	return n;
}

// breaks counts all messages, and returns the status with which an endpoint fails now.
static fucs_status_t breaks(const fucp_ep_t *ep)
{
	static long sent;
	long after;
	if (tu_fault(ep->worker->context, "reset", &after) && ++sent > after)
		return FUCS_ERR_CONNECTION_RESET;
	if (tu_fault(ep->worker->context, "timeout", &after) && ++sent > after)
		return FUCS_ERR_ENDPOINT_TIMEOUT;
	return FUCS_OK;
}

// at_once reports whether a message leaves during the send. UCX sends only very short ones so.
static int at_once(const fucp_ep_t *ep, const fucp_worker_t *to, size_t n)
{
	return to && n <= 32 && n <= ep->worker->context->packet && !ep->failed && !ep->waiting.head && has_room(ep, to) &&
	       !tu_fault(ep->worker->context, "later", NULL);
}

static fucs_status_ptr_t begin(fucp_ep_t *ep, enum tu_kind kind, const void *buf, size_t n, uint64_t tag, int synchronous, const fucp_request_param_t *p)
{
	pthread_mutex_lock(&tu_lock);
	fucp_worker_t *to = tu_find(ep->to);
	tu_request *r = NULL;
	if (p->op_attr_mask & FUCP_OP_ATTR_FLAG_FORCE_IMM_CMPL && !at_once(ep, to, n)) {
		pthread_mutex_unlock(&tu_lock);
		return (void *)(intptr_t)FUCS_ERR_NO_RESOURCE;
	}
	fucs_status_t status = kind == SEND ? breaks(ep) : FUCS_OK;
	if (status)
		tu_fail(ep, status);
	status = ep->failed && ep->peer_mode ? ep->failed : FUCS_OK;
	if (!status && !(r = tu_request_new(kind, ep->worker, p)))
		status = FUCS_ERR_NO_MEMORY;
	if (r) {
		r->buf = (char *)(n > ep->worker->context->packet ? contents(ep->worker->context, buf, n) : buf);
		r->n = n;
		r->tag = tag;
		r->synchronous = synchronous;
		if (ep->waiting.head || (kind == SEND && to && !has_room(ep, to))) {
			tu_append(&ep->waiting, r);
		} else if (go(ep, r)) {
			if (kind == SEND && tu_fault(ep->worker->context, "later", NULL)) {
				tu_finish(r, FUCS_OK);
			} else {
				free(r);
				r = NULL;
			}
		}
	}
	pthread_mutex_unlock(&tu_lock);
	return r ? r : (void *)(intptr_t)status;
}

EXPORT fucs_status_ptr_t ucp_ep_flush_nbx(fucp_ep_t *ep, const fucp_request_param_t *p)
{
	MAY_FAIL_PTR(ep->worker->context);
	return begin(ep, FLUSH, NULL, 0, 0, 0, p);
}

EXPORT fucs_status_ptr_t ucp_tag_send_nbx(fucp_ep_t *ep, const void *buf, size_t n, uint64_t tag, const fucp_request_param_t *p)
{
	MAY_FAIL_PTR(ep->worker->context);
	return begin(ep, SEND, buf, n, tag, 0, p);
}

EXPORT fucs_status_ptr_t ucp_tag_send_sync_nbx(fucp_ep_t *ep, const void *buf, size_t n, uint64_t tag, const fucp_request_param_t *p)
{
	MAY_FAIL_PTR(ep->worker->context);
	return begin(ep, SEND, buf, n, tag, 1, p);
}
