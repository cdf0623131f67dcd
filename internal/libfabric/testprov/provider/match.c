// Matching of receives, unexpected messages, peeks, claims and cancels.
#include "testprov.h"

#include <stdlib.h>
#include <string.h>

// Lists of receives and of messages. The link has the same offset in both.
typedef struct node {
	struct node *next, *before;
} node;

static void push(list *l, void *item)
{
	node *x = item, *tail = l->tail;
	x->next = NULL;
	x->before = tail;
	*(tail ? (void **)&tail->next : &l->head) = x;
	l->tail = x;
}

static void drop(list *l, void *item)
{
	node *x = item;
	*(x->before ? (void **)&x->before->next : &l->head) = x->next;
	*(x->next ? (void **)&x->next->before : &l->tail) = x->before;
}

// from reports whether a message has the requested sender.
static int from(const tp_ep *ep, uint64_t asked, const unsigned char *address)
{
	if (!ep->directed || asked == FFI_ADDR_UNSPEC)
		return 1; // Without FI_DIRECTED_RECV, the interface ignores the address.
	return asked < ep->av->n && !memcmp(ep->av->addresses[asked], address, ADDRESS);
}

static int alike(uint64_t a, uint64_t b, uint64_t ignore) { return ((a ^ b) & ~ignore) == 0; }

// tp_place returns the destination of the byte at an offset, and the space behind it.
struct iovec tp_place(tp_recv *r, size_t at)
{
	struct iovec *v = r->part;
	if (at >= v->iov_len) {
		at -= v->iov_len;
		v++;
	}
	return (struct iovec){(char *)v->iov_base + at, v->iov_len - at};
}

static void fill(tp_recv *r, const char *body, size_t n)
{
	for (size_t at = 0; at < n;) {
		struct iovec v = tp_place(r, at);
		size_t part = v.iov_len < n - at ? v.iov_len : n - at;
		memcpy(v.iov_base, body + at, part);
		at += part;
	}
}

// tp_fetched ends a receive that is in no list or in the list of active ones.
void tp_fetched(tp_ep *ep, tp_recv *r, int error)
{
	size_t over = r->total - r->wanted;
	if (r->by) {
		drop(&ep->active, r);
		ep->receiving--;
	}
	if (ep->domain->c.quiet_cut)
		over = 0;
	size_t n = over > 0 && ep->domain->c.whole ? r->total : r->wanted;
	if (!(error && error != FFI_ETRUNC && ep->domain->c.dead_silent))
		tp_done(ep->cq, r->context, r->got_tag, r->got_data, n, over, error ? error : over ? FFI_ETRUNC : 0);
	free(r);
}

// deliver receives a message into r, which is in no list, at once or from its sender. body is NULL
// if the sender has the contents.
static void deliver(tp_ep *ep, tp_recv *r, tp_conn *by, const unsigned char *address, uint64_t tag, uint64_t data, const char *body,
		    size_t n, uint64_t id)
{
	r->got_tag = tag;
	r->got_data = data;
	r->total = n;
	r->wanted = n < r->room ? n : r->room;
	r->by = NULL;
	if (body) {
		fill(r, body, r->wanted);
		tp_fetched(ep, r, 0);
		return;
	}
	if (!by) { // The message is lost with its sender.
		r->wanted = 0;
		tp_fetched(ep, r, ECONNRESET);
		return;
	}
	frame f = {.type = FETCH, .id = id, .to = r->id = ++ep->ids, .n = r->wanted};
	r->by = by;
	push(&ep->active, r);
	ep->receiving++;
	tp_put(ep, tp_peer_of(ep, address), &f, NULL, 0, NULL, 0);
	if (r->wanted == 0)
		tp_fetched(ep, r, 0);
}

// tp_arrived handles a message that has arrived, or that its sender keeps.
void tp_arrived(tp_ep *ep, tp_conn *by, const unsigned char *address, int tagged, uint64_t tag, uint64_t data, const char *body, size_t n,
		int fetched, uint64_t id)
{
	// With the fault order, receives from one address match first. Otherwise all match in order.
	for (int pass = ep->domain->c.directed_first ? 0 : 1; pass < 2; pass++)
		for (tp_recv *r = ep->receives[tagged].head; r; r = r->next) {
			if (pass == 0 && (!ep->directed || r->from == FFI_ADDR_UNSPEC))
				continue;
			if (!from(ep, r->from, address) || (tagged && !alike(tag, r->tag, r->ignore)))
				continue;
			drop(&ep->receives[tagged], r);
			ep->receiving--;
			deliver(ep, r, by, address, tag, data, fetched ? NULL : body, n, id);
			return;
		}
	tp_msg *m = calloc(1, sizeof(*m) + (fetched ? 0 : n));
	if (!m)
		abort();
	memcpy(m->from, address, ADDRESS);
	m->by = by;
	m->tag = tag;
	m->data = data;
	m->id = id;
	m->n = n;
	m->fetched = fetched;
	if (!fetched && n > 0)
		memcpy(m->body, body, n);
	push(&ep->messages[tagged], m);
}

static tp_msg *find(tp_ep *ep, int tagged, uint64_t asked, uint64_t tag, uint64_t ignore)
{
	for (tp_msg *m = ep->messages[tagged].head; m; m = m->next)
		if (from(ep, asked, m->from) && (!tagged || alike(tag, m->tag, ignore)))
			return m;
	return NULL;
}

static void give(tp_ep *ep, list *l, tp_msg *m, tp_recv *r)
{
	drop(l, m);
	deliver(ep, r, m->by, m->from, m->tag, m->data, m->fetched ? NULL : m->body, m->n, m->id);
	free(m);
}

static tp_recv *copy_of(const tp_recv *what)
{
	tp_recv *r = malloc(sizeof(*r));
	if (r) {
		*r = *what;
		r->room = r->part[0].iov_len + r->part[1].iov_len;
		((ffi_context2 *)r->context)->internal[0] = r; // Providers write to the context.
	}
	return r;
}

// tp_post posts a receive.
ssize_t tp_post(tp_ep *ep, int tagged, const tp_recv *what)
{
	if (ep->receiving >= ep->domain->c.rx)
		return -FFI_EAGAIN;
	tp_recv *r = copy_of(what);
	if (!r)
		return -FFI_ENOMEM;
	tp_msg *m = find(ep, tagged, r->from, r->tag, r->ignore);
	if (m) {
		give(ep, &ep->messages[tagged], m, r);
		return 0;
	}
	push(&ep->receives[tagged], r);
	ep->receiving++;
	return 0;
}

// tp_peek probes for a message, and removes it from matching for a claim.
ssize_t tp_peek(tp_ep *ep, const ffi_msg_tagged *m, int claim)
{
	tp_msg *found = find(ep, 1, m->addr, m->tag, m->ignore);
	long reads = ep->domain->c.peeks;
	if (!found) {
		tp_done_later(ep->cq, reads, m->context, m->tag, 0, 0, FFI_ENOMSG);
		return 0;
	}
	if (claim) {
		drop(&ep->messages[1], found);
		found->claimed = m->context;
		push(&ep->claimed, found);
	}
	tp_done_later(ep->cq, reads, m->context, found->tag, found->data, found->n, 0);
	return 0;
}

// tp_take receives the message that a peek with the same context has claimed.
ssize_t tp_take(tp_ep *ep, const ffi_msg_tagged *m)
{
	tp_msg *found = ep->claimed.head;
	while (found && found->claimed != m->context)
		found = found->next;
	if (!found)
		return -FFI_EINVAL;
	if (ep->receiving >= ep->domain->c.rx)
		return -FFI_EAGAIN;
	tp_recv what = {.context = m->context};
	memcpy(what.part, m->msg_iov, m->iov_count * sizeof(what.part[0]));
	if (ep->domain->c.claim_hangs && found->n >= 8 << 10 && found->n <= 16 << 10)
		return 0;
	tp_recv *r = copy_of(&what);
	if (!r)
		return -FFI_ENOMEM;
	give(ep, &ep->claimed, found, r);
	return 0;
}

// tp_cancel withdraws a receive that has not matched.
ssize_t tp_cancel(ffid *f, void *context)
{
	tp_ep *ep = OF(tp_ep, fid.fid, f);
	MAY_FAIL(&ep->domain->c, "fi_cancel");
	for (int tagged = 0; tagged < 2; tagged++)
		for (tp_recv *r = ep->receives[tagged].head; r; r = r->next)
			if (r->context == context) {
				drop(&ep->receives[tagged], r);
				ep->receiving--;
				tp_done(ep->cq, context, r->tag, 0, 0, 0, FFI_ECANCELED);
				free(r);
				return 0;
			}
	return 0;
}

// tp_lost ends the messages of a closed connection.
void tp_lost(tp_ep *ep, tp_conn *by)
{
	list *lists[] = {&ep->messages[0], &ep->messages[1], &ep->claimed};
	for (int i = 0; i < 3; i++)
		for (tp_msg *m = lists[i]->head; m; m = m->next)
			if (m->by == by)
				m->by = NULL;
	for (tp_recv *r = ep->active.head, *next; r; r = next) {
		next = r->next;
		if (r->by == by) {
			r->wanted = 0;
			tp_fetched(ep, r, ECONNRESET);
		}
	}
}

// tp_forget frees everything when the endpoint closes.
void tp_forget(tp_ep *ep)
{
	list *lists[] = {&ep->messages[0], &ep->messages[1], &ep->claimed, &ep->receives[0], &ep->receives[1], &ep->active};
	for (int i = 0; i < 6; i++)
		for (node *x = lists[i]->head, *next; x; x = next) {
			next = x->next;
			free(x);
		}
}
