// Receiving side of connections.
#include "testprov.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { AT_ONCE = 64 << 10, BUDGET = 4 << 20 }; // Bytes of one read, and of one progress.

void tp_accept(tp_ep *ep)
{
	int fd;
	while ((fd = accept4(ep->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
		tp_conn *c = calloc(1, sizeof(*c));
		if (!c)
			abort();
		c->w.kind = CONN;
		c->fd = fd;
		c->room = AT_ONCE + sizeof(frame) + sizeof(hello) + ep->domain->c.eager;
		if (!(c->buf = malloc(c->room)))
			abort();
		c->next = ep->conns;
		ep->conns = c;
		tp_watch(ep, fd, &c->w, EPOLLIN | EPOLLRDHUP, EPOLL_CTL_ADD);
	}
}

static tp_recv *active(tp_ep *ep, uint64_t id)
{
	tp_recv *r = ep->active.head;
	while (r && r->id != id)
		r = r->next;
	return r;
}

// came records that n more bytes of a message are at their destination.
static void came(tp_ep *ep, tp_conn *c, tp_recv *r, size_t n)
{
	c->left -= n;
	if (r && (r->got += n) == r->wanted)
		tp_fetched(ep, r, 0);
}

// where returns the destination of the next bytes of a message. The bytes of a message without a
// receive are discarded.
static struct iovec where(tp_conn *c, tp_recv *r)
{
	static _Thread_local char waste[AT_ONCE];
	struct iovec v = {waste, sizeof(waste)};
	if (r && r->got < r->wanted)
		v = tp_place(r, r->got);
	if (v.iov_len > c->left)
		v.iov_len = c->left;
	return v;
}

// refused: of another network or of another job.
static int refused(const tp_ep *ep, const hello *h)
{
	return strncmp(h->fabric, ep->domain->c.fabric, sizeof(h->fabric) - 1) || memcmp(h->key, ep->key, KEY);
}

// take handles one frame, and returns its length in bytes, 0 if the frame is incomplete, or -1 if
// it is malformed.
static ssize_t take(tp_ep *ep, tp_conn *c, const char *at, size_t n)
{
	frame f;
	if (n < sizeof(f))
		return 0;
	memcpy(&f, at, sizeof(f));
	if (f.magic != MAGIC || (!c->known && f.type != HELLO))
		return -1;
	const char *body = at + sizeof(f);
	n -= sizeof(f);
	switch (f.type) {
	case HELLO: {
		hello h;
		if (f.n != sizeof(h))
			return -1;
		if (n < f.n)
			return 0;
		memcpy(&h, body, sizeof(h));
		if (refused(ep, &h))
			return -1;
		memcpy(c->address, h.address, ADDRESS);
		c->known = 1;
		return sizeof(f) + f.n;
	}
	case EAGER:
		if (f.n > ep->domain->c.eager)
			return -1;
		if (n < f.n)
			return 0;
		tp_arrived(ep, c, c->address, f.tagged & 1, f.tag, f.data, body, f.n, 0, 0);
		return sizeof(f) + f.n;
	case OFFER:
		tp_arrived(ep, c, c->address, f.tagged & 1, f.tag, f.data, NULL, f.n, 1, f.id);
		return sizeof(f);
	case FETCH:
		tp_fetch(ep, &f);
		return sizeof(f);
	case DATA: {
		c->id = f.to;
		c->left = f.n;
		size_t used = 0;
		while (c->left > 0 && used < n) {
			tp_recv *r = active(ep, c->id);
			struct iovec v = where(c, r);
			if (v.iov_len > n - used)
				v.iov_len = n - used;
			memcpy(v.iov_base, body + used, v.iov_len);
			used += v.iov_len;
			came(ep, c, r, v.iov_len);
		}
		return sizeof(f) + used;
	}
	}
	return -1;
}

// tp_read reads the data that has arrived on a connection.
void tp_read(tp_ep *ep, tp_conn *c)
{
	for (size_t budget = 0; budget < BUDGET && !c->dead;) {
		tp_recv *r = c->left ? active(ep, c->id) : NULL;
		struct iovec v = {c->buf + c->have, c->room - c->have};
		if (c->left)
			v = where(c, r);
		ssize_t n = recv(c->fd, v.iov_base, v.iov_len, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			c->dead = 1;
			break;
		}
		budget += n;
		if (c->left) {
			came(ep, c, r, n);
			continue;
		}
		c->have += n;
		size_t used = 0;
		while (c->left == 0 && !c->dead) {
			ssize_t k = take(ep, c, c->buf + used, c->have - used);
			if (k == 0)
				break;
			if (k < 0)
				c->dead = 1;
			else
				used += k;
		}
		c->have -= used;
		memmove(c->buf, c->buf + used, c->have);
	}
	if (c->dead)
		tp_lost(ep, c);
}

// tp_sweep frees closed connections, or all.
void tp_sweep(tp_ep *ep, int all)
{
	for (tp_conn **at = &ep->conns; *at;) {
		tp_conn *c = *at;
		if (!c->dead && !all) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		tp_watch(ep, c->fd, &c->w, 0, EPOLL_CTL_DEL);
		close(c->fd);
		free(c->buf);
		free(c);
	}
}
