// Workers and their endpoints.
#include "testprov.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

pthread_mutex_t tu_lock = PTHREAD_MUTEX_INITIALIZER;

static fucp_worker_t *workers;
static uint32_t last;
static long deaths;

typedef struct address {
	uint32_t magic, number, classes, padding;
} address;

fucp_worker_t *tu_find(uint32_t number)
{
	fucp_worker_t *w = workers;
	while (w && w->number != number)
		w = w->next;
	return w;
}

void tu_wake(fucp_worker_t *w)
{
	uint64_t one = 1;
	if (w->armed && write(w->efd, &one, sizeof(one)) == sizeof(one))
		w->armed = 0;
}

EXPORT fucs_status_t ucp_worker_create(fucp_context_t *c, const fucp_worker_params_t *params, fucp_worker_t **out)
{
	long seconds;
	(void)params;
	MAY_FAIL(c);
	if (tu_fault(c, "hang", &seconds))
		sleep(seconds);
	fucp_worker_t *w = calloc(1, sizeof(*w));
	if (!w)
		return FUCS_ERR_NO_MEMORY;
	w->context = c;
	w->efd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	pthread_mutex_lock(&tu_lock);
	w->number = ++last;
	w->next = workers;
	workers = w;
	pthread_mutex_unlock(&tu_lock);
	*out = w;
	return FUCS_OK;
}

// forget removes a request as the sender of a message.
static void forget(fucp_message_t *m, const tu_request *r)
{
	for (; m; m = m->next)
		if (m->sender == r)
			m->sender = NULL;
}

// orphan detaches the messages of r from it.
static void orphan(const tu_request *r)
{
	for (fucp_worker_t *w = workers; w; w = w->next) {
		forget(w->inbox.head, r);
		forget(w->unexpected.head, r);
		forget(w->claimed.head, r);
	}
}

// end ends all operations of an endpoint.
static void end(fucp_ep_t *ep, fucs_status_t status)
{
	for (tu_request *r; (r = tu_pop(&ep->waiting));)
		tu_finish(r, status);
	while (ep->open) {
		orphan(ep->open);
		tu_finish(ep->open, status);
	}
}

// tu_fail fails an endpoint. It calls the handler only in peer mode.
void tu_fail(fucp_ep_t *ep, fucs_status_t status)
{
	if (ep->failed)
		return;
	ep->failed = status;
	if (!ep->peer_mode)
		return;
	if (ep->open && !tu_cached())
		abort(); // As UCX 1.16 and newer.
	end(ep, status);
	ep->tell = !tu_fault(ep->worker->context, "silent", NULL);
	tu_wake(ep->worker);
}

static void free_all(tu_list *l)
{
	for (void *r; (r = tu_pop(l));)
		free(r);
}

static void drop_all(tu_list *l)
{
	for (fucp_message_t *m; (m = tu_pop(l));)
		tu_drop(m);
}

EXPORT void ucp_worker_destroy(fucp_worker_t *w)
{
	pthread_mutex_lock(&tu_lock);
	for (fucp_worker_t **at = &workers; *at; at = &(*at)->next) {
		if (*at == w) {
			*at = w->next;
			break;
		}
	}
	for (fucp_ep_t *ep; (ep = w->eps); free(ep)) {
		w->eps = ep->next;
		end(ep, FUCS_ERR_CANCELED);
	}
	for (fucp_worker_t *other = workers; other; other = other->next)
		for (fucp_ep_t *ep = other->eps; ep; ep = ep->next)
			if (ep->to == w->number)
				tu_fail(ep, FUCS_ERR_CONNECTION_RESET);
	deaths++;
	drop_all(&w->inbox);
	drop_all(&w->unexpected);
	drop_all(&w->claimed);
	free_all(&w->posted);
	free_all(&w->done);
	pthread_mutex_unlock(&tu_lock);
	close(w->efd);
	free(w);
}

EXPORT fucs_status_t ucp_worker_get_address(fucp_worker_t *w, fucp_address_t **out, size_t *length)
{
	MAY_FAIL(w->context);
	long n = sizeof(address);
	tu_fault(w->context, "address", &n);
	address *a = calloc(1, n > (long)sizeof(*a) ? n : (long)sizeof(*a));
	if (!a)
		return FUCS_ERR_NO_MEMORY;
	*a = (address){ADDRESS_MAGIC, w->number, w->context->classes, 0};
	*out = (fucp_address_t *)a;
	*length = n;
	return FUCS_OK;
}

EXPORT void ucp_worker_release_address(fucp_worker_t *w, fucp_address_t *a)
{
	(void)w;
	free(a);
}

EXPORT unsigned ucp_worker_progress(fucp_worker_t *w)
{
	pthread_mutex_lock(&tu_lock);
	unsigned n = tu_deliver(w) + tu_push(w);
	w->heard = deaths;
	if (n) // Other workers may have space to send now.
		for (fucp_worker_t *other = workers; other; other = other->next)
			for (fucp_ep_t *ep = other->eps; ep; ep = ep->next)
				if (ep->waiting.head)
					tu_wake(other);
	for (fucp_ep_t *ep = w->eps; ep; ep = ep->next) {
		if (ep->tell) {
			ep->tell = 0;
			ep->handler.cb(ep->handler.arg, ep, ep->failed);
			n++;
		}
	}
	for (tu_request *r; (r = tu_pop(&w->done)); n++)
		tu_tell(r);
	pthread_mutex_unlock(&tu_lock);
	return n;
}

EXPORT fucs_status_t ucp_worker_get_efd(fucp_worker_t *w, int *fd)
{
	MAY_FAIL(w->context);
	*fd = w->efd;
	return FUCS_OK;
}

EXPORT fucs_status_t ucp_worker_arm(fucp_worker_t *w)
{
	MAY_FAIL(w->context);
	uint64_t n;
	pthread_mutex_lock(&tu_lock);
	int tell = 0;
	for (fucp_ep_t *ep = w->eps; ep; ep = ep->next)
		tell |= ep->tell;
	int busy = w->inbox.head || w->done.head || tell || tu_fault(w->context, "busy", NULL);
	if (!busy) {
		while (read(w->efd, &n, sizeof(n)) > 0)
			;
		w->armed = 1;
	}
	pthread_mutex_unlock(&tu_lock);
	return busy ? FUCS_ERR_BUSY : FUCS_OK;
}

EXPORT fucs_status_t ucp_ep_create(fucp_worker_t *w, const fucp_ep_params_t *p, fucp_ep_t **out)
{
	MAY_FAIL(w->context);
	const address *a = (const address *)p->address;
	if (a->magic != ADDRESS_MAGIC)
		return FUCS_ERR_INVALID_ADDR;
	if (!(a->classes & w->context->classes))
		return FUCS_ERR_UNREACHABLE;
	fucp_ep_t *ep = calloc(1, sizeof(*ep));
	if (!ep)
		return FUCS_ERR_NO_MEMORY;
	ep->worker = w;
	ep->to = a->number;
	ep->peer_mode = p->err_mode == FUCP_ERR_HANDLING_MODE_PEER;
	ep->handler = p->err_handler;
	pthread_mutex_lock(&tu_lock);
	if (!tu_find(ep->to) && w->heard != deaths)
		abort(); // As UCX over tcp.
	ep->next = w->eps;
	w->eps = ep;
	pthread_mutex_unlock(&tu_lock);
	*out = ep;
	return FUCS_OK;
}

tu_request *tu_request_new(enum tu_kind kind, fucp_worker_t *w, const fucp_request_param_t *p)
{
	tu_request *r = calloc(1, sizeof(*r));
	if (r) {
		r->kind = kind;
		r->worker = w;
		r->param = *p;
	}
	return r;
}

EXPORT fucs_status_ptr_t ucp_ep_close_nbx(fucp_ep_t *ep, const fucp_request_param_t *p)
{
	fucp_worker_t *w = ep->worker;
	MAY_FAIL_PTR(w->context);
	if (!(p->flags & FUCP_EP_CLOSE_FLAG_FORCE) || !ep->peer_mode)
		return (void *)(intptr_t)FUCS_ERR_UNSUPPORTED;
	pthread_mutex_lock(&tu_lock);
	end(ep, FUCS_ERR_CANCELED);
	for (fucp_ep_t **at = &w->eps; *at; at = &(*at)->next) {
		if (*at == ep) {
			*at = ep->next;
			break;
		}
	}
	tu_request *r = NULL;
	if (tu_fault(w->context, "noclose", NULL) && (r = tu_request_new(CLOSE, w, p)))
		tu_append(&w->posted, r), r->mask = ~(uint64_t)0, r->tag = ~(uint64_t)0; // No message matches it.
	free(ep);
	pthread_mutex_unlock(&tu_lock);
	return r;
}
