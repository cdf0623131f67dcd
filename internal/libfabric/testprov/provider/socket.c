// Sockets: the listening socket of an endpoint, and readiness.
#include "testprov.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// name fills in the socket address, and returns its length, or 0 if the name of the folder is
// too long.
static socklen_t name(const unsigned char *address, struct sockaddr_un *out)
{
	char hex[33];
	for (int i = 0; i < 16; i++)
		snprintf(hex + 2 * i, 3, "%02x", address[i]);
	memset(out, 0, sizeof(*out));
	out->sun_family = AF_UNIX;
	const char *dir = getenv("TESTPROV_DIR");
	if (dir && *dir) {
		size_t n = snprintf(out->sun_path, sizeof(out->sun_path), "%s/%s", dir, hex);
		return n < sizeof(out->sun_path) ? sizeof(*out) : 0;
	}
	int n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "ferry-testprov-%s", hex);
	return offsetof(struct sockaddr_un, sun_path) + 1 + n;
}

// invent returns an address that may be free.
static int invent(tp_ep *ep)
{
	const config *c = &ep->domain->c;
	unsigned char bytes[ADDRESS];
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return -EIO;
	memset(ep->address, 0, ADDRESS);
	if (c->format != FFI_SOCKADDR_IN) {
		memcpy(ep->address, bytes, c->address);
		return 0;
	}
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(1024 + (bytes[0] << 8 | bytes[1]) % 64000),
		.sin_addr.s_addr = htonl(0xc6336400 + c->host)};
	memcpy(ep->address, &in, sizeof(in));
	return 0;
}

// tp_listen listens at an address.
int tp_listen(tp_ep *ep)
{
	struct sockaddr_un at;
	if ((ep->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) < 0)
		return -errno;
	for (int i = 0; i < 1000; i++) {
		if (invent(ep))
			return -EIO;
		socklen_t n = name(ep->address, &at);
		if (n == 0)
			return -ENAMETOOLONG;
		if (bind(ep->listener, (struct sockaddr *)&at, n) == 0) {
			snprintf(ep->path, sizeof(ep->path), "%s", at.sun_path);
			if (listen(ep->listener, 4096))
				return -errno;
			tp_watch(ep, ep->listener, &ep->w, EPOLLIN, EPOLL_CTL_ADD);
			return 0;
		}
		if (errno != EADDRINUSE)
			return -errno;
	}
	return -EADDRINUSE;
}

// tp_connect returns a connected socket or a negated error. With EAGAIN, the caller retries later.
int tp_connect(const unsigned char *address)
{
	struct sockaddr_un to;
	socklen_t n = name(address, &to);
	if (n == 0)
		return -ENAMETOOLONG;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&to, n) == 0)
		return fd;
	int e = errno == ENOENT ? ECONNREFUSED : errno;
	close(fd);
	return -e;
}

void tp_watch(tp_ep *ep, int fd, watch *w, uint32_t events, int how)
{
	struct epoll_event e = {.events = events, .data.ptr = w};
	epoll_ctl(ep->cq->epoll, how, fd, &e);
}

// tp_progress sends and receives without blocking.
void tp_progress(tp_ep *ep)
{
	struct epoll_event e[16];
	int n = epoll_wait(ep->cq->epoll, e, 16, 0);
	for (int i = 0; i < n; i++) {
		watch *w = e[i].data.ptr;
		switch (w->kind) {
		case LISTENER:
			tp_accept(ep);
			break;
		case CONN:
			tp_read(ep, OF(tp_conn, w, w));
			break;
		case PEER:
			if (OF(tp_peer, w, w)->fd < 0)
				break; // It has failed in the meantime.
			if (e[i].events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR))
				tp_fail(ep, OF(tp_peer, w, w), ECONNRESET);
			else
				tp_flush(ep, OF(tp_peer, w, w));
		}
	}
	if (ep->waiting > 0)
		for (tp_peer *p = ep->peers; p; p = p->next)
			if (p->head && p->fd < 0)
				tp_flush(ep, p);
	tp_sweep(ep, 0);
}
