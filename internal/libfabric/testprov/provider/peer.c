// Sending side of connections. Each peer has a connection in one direction, so that its messages
// arrive in order.
#include "testprov.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

tp_peer *tp_peer_of(tp_ep *ep, const unsigned char *address)
{
	for (tp_peer *p = ep->peers; p; p = p->next)
		if (!memcmp(p->address, address, ADDRESS))
			return p;
	tp_peer *p = calloc(1, sizeof(*p));
	if (!p)
		abort();
	p->w.kind = PEER;
	memcpy(p->address, address, ADDRESS);
	p->fd = -1;
	p->next = ep->peers;
	ep->peers = p;
	return p;
}

// tp_end_send adds the completion of a send, and frees it.
void tp_end_send(tp_ep *ep, tp_send *s, int error)
{
	if (!s)
		return;
	if (error && ep->domain->c.dead_silent) {
		free(s); // The operation never completes.
		return;
	}
	ep->sending--;
	tp_done(ep->cq, s->context, 0, 0, 0, 0, error);
	free(s);
}

// tp_fail ends all messages in flight to a peer. The next message connects again.
void tp_fail(tp_ep *ep, tp_peer *p, int error)
{
	if (p->fd >= 0) {
		tp_watch(ep, p->fd, &p->w, 0, EPOLL_CTL_DEL);
		close(p->fd);
	} else if (p->head) {
		ep->waiting--;
	}
	p->fd = -1;
	p->writing = 0;
	for (out *o = p->head, *next; o; o = next) {
		next = o->next;
		tp_end_send(ep, o->own, error);
		free(o);
	}
	p->head = p->tail = NULL;
	p->queued = 0;
	for (tp_send **at = &ep->offered; *at;) {
		tp_send *s = *at;
		if (s->to != p) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		tp_end_send(ep, s, error);
	}
}

static out *new_out(const frame *f, const void *body, size_t n, tp_send *own, int copy)
{
	out *o = calloc(1, sizeof(*o) + (copy ? n : 0));
	if (!o)
		abort();
	o->head = *f;
	o->head.magic = MAGIC;
	o->body = copy ? memcpy(o->copy, n ? body : "", n) : body;
	o->n = n;
	o->own = own;
	return o;
}

static int dial(tp_ep *ep, tp_peer *p)
{
	int fd = tp_connect(p->address);
	if (fd < 0)
		return fd;
	hello h;
	memset(&h, 0, sizeof(h));
	memcpy(h.address, ep->address, ADDRESS);
	memcpy(h.key, ep->key, KEY);
	snprintf(h.fabric, sizeof(h.fabric), "%s", ep->domain->c.fabric);
	frame f = {.type = HELLO, .n = sizeof(h)};
	out *o = new_out(&f, &h, sizeof(h), NULL, 1);
	o->next = p->head;
	p->head = o;
	if (!p->tail)
		p->tail = o;
	p->queued++;
	p->fd = fd;
	ep->waiting--;
	tp_watch(ep, fd, &p->w, EPOLLRDHUP, EPOLL_CTL_ADD);
	return 0;
}

// tp_flush writes the queued frames of a peer, and returns an error if the peer has failed.
int tp_flush(tp_ep *ep, tp_peer *p)
{
	while (p->head) {
		if (p->fd < 0) {
			int r = dial(ep, p);
			if (r == -EAGAIN)
				return 0;
			if (r < 0) {
				tp_fail(ep, p, -r);
				return r;
			}
		}
		out *o = p->head;
		size_t head = o->done < sizeof(o->head) ? sizeof(o->head) - o->done : 0;
		size_t in_body = o->done > sizeof(o->head) ? o->done - sizeof(o->head) : 0;
		struct iovec v[2] = {{(char *)&o->head + sizeof(o->head) - head, head}, {(char *)o->body + in_body, o->n - in_body}};
		struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
		ssize_t n = sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			int e = errno == EPIPE ? ECONNRESET : errno;
			tp_fail(ep, p, e);
			return -e;
		}
		if (n < 0)
			break;
		o->done += n;
		if (o->done < sizeof(o->head) + o->n)
			continue;
		p->head = o->next;
		if (!p->head)
			p->tail = NULL;
		p->queued--;
		tp_end_send(ep, o->own, 0);
		free(o);
	}
	if (p->fd >= 0 && p->writing != !!p->head) {
		p->writing = !!p->head;
		tp_watch(ep, p->fd, &p->w, EPOLLRDHUP | (p->writing ? EPOLLOUT : 0), EPOLL_CTL_MOD);
	}
	return 0;
}

// tp_put queues a frame behind earlier ones. body must remain valid until own ends, unless it is
// copied. After an error the peer has failed, and own has ended.
int tp_put(tp_ep *ep, tp_peer *p, const frame *f, const void *body, size_t n, tp_send *own, int copy)
{
	out *o = new_out(f, body, n, own, copy);
	if (!p->head && p->fd < 0)
		ep->waiting++;
	if (p->tail)
		p->tail->next = o;
	else
		p->head = o;
	p->tail = o;
	p->queued++;
	return p->queued > 1 && p->writing ? 0 : tp_flush(ep, p);
}

// tp_fetch sends the part of a message that a receiver requests.
void tp_fetch(tp_ep *ep, const frame *f)
{
	tp_send **at = &ep->offered;
	while (*at && (*at)->id != f->id)
		at = &(*at)->next;
	tp_send *s = *at;
	if (!s)
		return;
	*at = s->next;
	size_t n = f->n < s->n ? f->n : s->n, prefix = 0;
	if (n == 0) {
		tp_end_send(ep, s, 0);
		return;
	}
	tp_peer *p = s->to;
	char *old = ep->domain->c.stale && tp_stale() ? tp_registered(s->body, s->n, &prefix) : NULL;
	if (prefix > n)
		prefix = n;
	frame d = {.type = DATA, .to = f->to, .n = prefix};
	if (old) {
		// The frame leaves completely, or the peer has failed and the rest is lost.
		int r = tp_put(ep, p, &d, old, prefix, n == prefix ? s : NULL, 1);
		free(old);
		if (n == prefix)
			return;
		if (r < 0) {
			tp_end_send(ep, s, -r);
			return;
		}
	}
	d.n = n - prefix;
	tp_put(ep, p, &d, s->body + prefix, n - prefix, s, 0);
}
