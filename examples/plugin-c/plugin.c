/*
 * A transport of ferry's as a program of its own, in C: docs/plugin-protocol.md, with the C
 * library and Linux alone.
 *
 *	gcc -O2 -pthread -o btl-c plugin.c
 *
 * It connects the ranks of a node by Unix sockets: each path is a connection of its own
 * (SOCK_SEQPACKET), on which frames go one way, and answers the other way. With the argument
 * "null" it is another transport: it returns each frame to the rank that has sent it.
 *
 * One thread does all the work. Nothing that it owes the rank is kept in a queue without end:
 * a path remembers what is to be said of it, and a socket is not read while the ring is full.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { VERSION = 1, CONTROL = 3, MEMORY = 4, WAKE = 5, CREDIT = 16, LONGEST = 32 << 10 };
enum { HELLO = 1, READY, FAILED, PING, PONG, END };
enum { CONNECT = 1, FRAME, LEAVE, REFUSE, OPENED, ACCEPT, CREDITS, IDLE, ENDED };
enum { DOWN, NEVER_OPENED, PEER_CLOSED, LEFT };

/* What plugins tell each other: packets that begin with one of these. */
enum { GREETING = 'g', DATA = 'd', BYE = 'b', YES = 'y', NO = 'n', CLOSED = 'c' };

/* Rings: docs/wire.md, "Ring". Positions count cells, and never wrap. */

enum { CELL = 64, WORD = 8, PREFIX = 8 };
#define PADDING 0xFFFFFFFFu

struct ring {
	uint64_t *consumed;
	uint32_t *waiting;
	char *cells;
	uint64_t n;  /* cells */
	uint64_t at; /* the next word */
	uint64_t to; /* where the frame that was reserved will be */
	uint64_t back; /* what the consumer has given back */
	uint64_t edge; /* place behind which small messages think of the beginning */
	uint64_t dirty, clean; /* between these places cells may hold what looks like a word */
};

static struct ring in, out; /* from the rank, and to it */
static uint32_t *my_bell;   /* sequence, armed */
static uint32_t *rank_sleeps;
static uint64_t published;

static uint64_t *word(struct ring *r, uint64_t at) { return (uint64_t *)(r->cells + at % r->n * CELL); }
static uint32_t lap(struct ring *r, uint64_t at) { return at / r->n + 1; }
static uint64_t cells(size_t bytes) { return (bytes + WORD + CELL - 1) / CELL; }

#define load(at) __atomic_load_n(at, __ATOMIC_SEQ_CST)
#define store(at, v) __atomic_store_n(at, v, __ATOMIC_SEQ_CST)
#define publish(at, v) __atomic_store_n(at, v, __ATOMIC_RELEASE)

/* relax leaves the processor to the thread beside, and the line to who writes it. */
static inline void relax(void)
{
#if defined __x86_64__
	__builtin_ia32_pause();
#elif defined __aarch64__
	__asm__ volatile("isb");
#endif
}

static void wake_rank(void)
{
	uint64_t one = 1;
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* what is published comes before this look */
	if (load(rank_sleeps)) {
		store(rank_sleeps, 0);
		(void)!write(WAKE, &one, sizeof one); /* it fails if the rank is gone */
	}
}

/* Small messages keep to the first part of a ring, in cells, while the rank keeps up: the caches
 * have it. */
enum { SMALL = 16, HOT = 4096 };

/* reserve returns room for a message to the rank, or NULL. */
static char *reserve(size_t bytes)
{
	uint64_t k = cells(bytes), at = out.at % out.n, begin = out.at - at, back = load(out.consumed);
	out.to = out.at;
	if (at + k > out.n || (k <= SMALL && at + k > out.edge && back > begin + HOT / 2))
		out.to = begin + out.n;
	if (out.to + k >= back + out.n)
		return NULL;
	return (char *)word(&out, out.to) + WORD;
}

/* soil says that so many bytes lie in what was reserved: where no message begins, they stay. */
static void soil(size_t bytes)
{
	uint64_t from = out.to % out.n + 1, to = from - 1 + cells(bytes);
	if (from >= to)
		return;
	if (out.dirty < out.clean) {
		from = from < out.dirty ? from : out.dirty;
		to = to > out.clean ? to : out.clean;
	}
	out.dirty = from, out.clean = to;
}

/* commit publishes the first bytes of what was reserved. */
static void commit(size_t bytes)
{
	uint64_t from = out.at, end = out.to + cells(bytes);
	soil(bytes);
	if (end % out.n - out.dirty < out.clean - out.dirty) /* else left alone: one line goes over, at once */
		publish(word(&out, end), 0);
	if (out.to % out.n == out.dirty && out.dirty < out.clean)
		out.dirty++;
	publish(word(&out, out.to), (uint64_t)bytes << 32 | lap(&out, out.to));
	if (from != out.to)
		publish(word(&out, from), (uint64_t)PADDING << 32 | lap(&out, from));
	if (end / out.n != from / out.n)
		out.edge = HOT;
	else if (end - out.to > SMALL)
		out.edge = out.n; /* large ones do best in all of it, and small ones come with them */
	out.at = end;
	published++;
	wake_rank();
}

/* next returns the rank's next message, or NULL. It is the ring's until release. */
static char *next(uint32_t *bytes)
{
	for (;;) {
		uint64_t w = load(word(&in, in.at));
		if ((uint32_t)w != lap(&in, in.at))
			return NULL;
		*bytes = w >> 32;
		if (*bytes == PADDING && in.at % in.n != 0) {
			in.at = (in.at / in.n + 1) * in.n;
			continue;
		}
		if (*bytes < PREFIX || *bytes > in.n / 4 * CELL - WORD || in.at % in.n + cells(*bytes) > in.n)
			errx(1, "the rank's ring is damaged: a message of %u bytes", *bytes);
		return (char *)word(&in, in.at) + WORD;
	}
}

static void release(uint32_t bytes)
{
	uint64_t batch = in.n / 4 < 1024 ? in.n / 4 : 1024;
	in.at += cells(bytes);
	if (in.at - in.back < batch)
		return;
	in.back = in.at;
	store(in.consumed, in.back);
	if (load(in.waiting)) {
		store(in.waiting, 0);
		wake_rank();
	}
}

/* tell says something to the rank, if there is room. */
static int tell(uint32_t kind, uint32_t path, const void *body, size_t bytes)
{
	char *b = reserve(PREFIX + bytes);
	if (!b)
		return 0;
	memcpy(b, &kind, 4);
	memcpy(b + 4, &path, 4);
	memcpy(b + PREFIX, body, bytes);
	commit(PREFIX + bytes);
	return 1;
}

/* Paths. */

struct peer { uint64_t world, nonce; uint32_t rank; } __attribute__((packed));

struct frame { struct frame *next; size_t bytes; char data[]; };

struct path {
	struct path *next;
	uint32_t id; /* even: to a peer; odd: from one; 0: a caller that has not greeted */
	struct peer peer;
	int fd;
	struct frame *first, **last; /* what the socket has not taken */
	int accepted, opened;        /* the peer has; the rank has been told */
	uint32_t back;               /* null: the path on which frames return */
	int kept;                    /* how many those are */
	int left;                    /* the rank has given it up */
	uint32_t took;               /* frames for which the rank has no credit yet */
	uint64_t sent, said;         /* frames that are gone, and how many of them the rank knows of */
	int over, how;               /* it has ended, which the rank has to hear */
	char why[200];
};

static struct path *paths;
static uint32_t numbers = 1; /* the next path from a peer */
static uint64_t nonce;
static size_t limit; /* of a frame */
static int null, listener = -1, bell_fd, idle; /* idle: turns without a message */

static struct path *new_path(uint32_t id, int fd)
{
	struct path *p = calloc(1, sizeof *p);
	if (!p)
		err(1, "memory");
	p->id = id, p->fd = fd, p->last = &p->first, p->next = paths;
	return paths = p;
}

static struct path *find(uint32_t id)
{
	struct path *p = paths;
	while (p && p->id != id)
		p = p->next;
	return p;
}

static void drop(struct path *p)
{
	struct path **at = &paths;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	for (struct frame *f = p->first, *after; f; f = after)
		after = f->next, free(f);
	if (p->fd >= 0)
		close(p->fd);
	free(p);
}

/* packet sends one to the peer: 1, 0 if there is no room, -1 if nobody is there. */
static int packet(struct path *p, char kind, const void *data, size_t bytes)
{
	struct iovec v[2] = {{&kind, 1}, {(void *)data, bytes}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	if (null)
		return tell(FRAME, p->back, data, bytes);
	if (sendmsg(p->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
		return 1;
	return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? 0 : -1;
}

/* end has the rank told that a path is over. */
static void end(struct path *p, int how, const char *why, size_t bytes)
{
	p->over = 1, p->how = how;
	snprintf(p->why, sizeof p->why, "%.*s", (int)bytes, why);
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

static void lost(struct path *p, const char *why) { end(p, p->opened || p->id % 2 ? DOWN : NEVER_OPENED, why, strlen(why)); }

/* forward sends a frame, or keeps it: the rank has credit for so many. */
static void forward(struct path *p, const char *data, size_t bytes)
{
	int done = p->first ? 0 : packet(p, DATA, data, bytes);
	struct frame *f;
	if (done > 0) {
		p->sent++, p->took++;
		return;
	} /* if nobody is there, the answer why is read first */
	if (p->kept++ == CREDIT)
		errx(1, "path %u has no credit", p->id);
	if (!(f = malloc(sizeof *f + bytes)))
		err(1, "memory");
	f->next = NULL, f->bytes = bytes;
	memcpy(f->data, data, bytes);
	*p->last = f, p->last = &f->next;
}

static void dial(struct path *p, const char *greeting, const char *blob, uint32_t bytes)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (null)
		return;
	if (bytes < 2 || bytes > sizeof a.sun_path || blob[0]) {
		lost(p, "the peer's address is none of this transport's");
		return;
	}
	memcpy(a.sun_path, blob, bytes);
	p->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (p->fd < 0 || connect(p->fd, (void *)&a, sizeof a.sun_family + bytes) || packet(p, GREETING, greeting, 28) < 0)
		lost(p, strerror(errno));
}

/* text reads a u32 length and so many bytes. */
static const char *text(const char **b, const char *last, uint32_t *bytes)
{
	*bytes = UINT32_MAX;
	if (last - *b >= 4)
		memcpy(bytes, *b, 4);
	if (last - *b - 4 < (ptrdiff_t)*bytes)
		errx(1, "a message from the rank ends too early");
	*b += 4 + *bytes;
	return *b - *bytes;
}

static void message(char *b, uint32_t bytes)
{
	uint32_t kind, id, n, greets;
	const char *at = b + PREFIX, *last = b + bytes, *greeting;
	struct path *p;
	memcpy(&kind, b, 4);
	memcpy(&id, b + 4, 4);
	p = find(id);
	if (!id || id % 2 != (kind == REFUSE) || kind < CONNECT || kind > REFUSE || (kind == CONNECT && p)) {
		errx(1, "message %u of path %u, of %u bytes", kind, id, bytes);
	} else if (kind == CONNECT && bytes >= PREFIX + sizeof p->peer) {
		p = new_path(id, -1);
		memcpy(&p->peer, at, sizeof p->peer);
		at += sizeof p->peer;
		text(&at, last, &n); /* the namespace */
		greeting = text(&at, last, &greets);
		if (greets != 28)
			errx(1, "a greeting of %u bytes", greets);
		at = text(&at, last, &n);
		dial(p, greeting, at, n);
	} else if (!p) {
		/* it has ended, and the rank will hear */
	} else if (kind == FRAME && !p->over) {
		forward(p, at, last - at);
	} else if (kind == LEAVE) {
		p->left = 1;
	} else if (kind == REFUSE) {
		if (p->fd >= 0)
			packet(p, NO, at, last - at < 200 ? last - at : 199);
		drop(p);
	}
}

/* caller takes the first packet of who has connected; it returns 0 if the path is forgotten. */
static int caller(struct path *p)
{
	char b[29];
	ssize_t n = recv(p->fd, b, sizeof b, MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return 1;
	if (n == 29 && *b == GREETING && !memcmp(b + 1, &nonce, 8)) {
		memcpy(&p->peer, b + 9, sizeof p->peer);
		if (tell(ACCEPT, numbers, &p->peer, sizeof p->peer)) { /* there was room, or it would not have been read */
			p->id = numbers, numbers += 2, p->opened = 1;
			packet(p, YES, NULL, 0);
			return 1;
		}
	}
	packet(p, NO, "this is another process than you believe", 40);
	drop(p);
	return 0;
}

/* from_peer takes one packet of a path, and reports whether there was one. Frames are received
 * where the ring has room for them; answers are short. */
static int from_peer(struct path *p)
{
	char kind = 0, answer[200], *b = reserve(PREFIX + limit);
	uint32_t frame = FRAME, from = p->id % 2;
	struct iovec v[2] = {{&kind, 1}, {from && b ? b + PREFIX : answer, from ? limit : sizeof answer}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	ssize_t n;
	if (p->over || (from && !b))
		return 0;
	n = recvmsg(p->fd, &m, MSG_DONTWAIT);
	if (n < 0 && errno == ECONNRESET) /* it has closed with something unread; what it sent is there */
		n = recvmsg(p->fd, &m, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (from && n > 0)
		soil(PREFIX + n); /* also if it makes no sense */
	if (n <= 0) {
		lost(p, "the peer's plugin is gone");
	} else if (m.msg_flags & MSG_TRUNC) {
		lost(p, "the peer's frames are larger than the ring here allows: ring_cells differs");
	} else if (from && kind == DATA && n > 1) {
		memcpy(b, &frame, 4);
		memcpy(b + 4, &p->id, 4);
		commit(PREFIX + n - 1);
	} else if (from && kind == BYE) {
		end(p, LEFT, "", 0);
	} else if (!from && kind == YES) {
		p->accepted = 1;
	} else if (!from && kind == NO) {
		end(p, p->opened ? DOWN : NEVER_OPENED, answer, n - 1);
	} else if (!from && kind == CLOSED) {
		end(p, PEER_CLOSED, "it has closed", 13);
	} else {
		lost(p, "what the peer says makes no sense");
	}
	return 1;
}

/* told says to the rank that a path is over, and forgets it, or not now. What a peer that has
 * closed had sent before comes first. Other paths with the peer end by themselves: those of a
 * peer that came back go on. */
static void told(struct path *p)
{
	char body[4 + sizeof p->why];
	size_t bytes = strlen(p->why);
	for (struct path *q = paths; q && p->how == PEER_CLOSED; q = q->next)
		if (q->id % 2 && !memcmp(&q->peer, &p->peer, sizeof q->peer))
			return;
	memcpy(body, &p->how, 4);
	memcpy(body + 4, p->why, bytes);
	if (p->left || tell(ENDED, p->id, body, 4 + bytes))
		drop(p);
}

/* push sends frames that wait, and returns 0 if there are more. */
static int push(struct path *p)
{
	for (struct frame *f; (f = p->first); free(f)) {
		if (p->over || packet(p, DATA, f->data, f->bytes) <= 0)
			return 0;
		if (!(p->first = f->next))
			p->last = &p->first;
		p->sent++, p->took++, p->kept--;
	}
	return 1;
}

/* settle does for a path what it can: frames that wait, and what the rank has not heard. It may
 * be forgotten then. */
static void settle(struct path *p)
{
	if (null && !p->back && tell(ACCEPT, numbers, &p->peer, sizeof p->peer))
		p->accepted = 1, p->back = numbers, numbers += 2;
	if (p->accepted && !p->opened && !p->left)
		p->opened = tell(OPENED, p->id, NULL, 0);
	push(p);
	if (p->took >= CREDIT / 4 && !p->left && tell(CREDITS, p->id, &p->took, 4))
		p->took = 0;
	if (idle >= 50 && p->said < p->sent && !p->first && !p->left && tell(IDLE, p->id, &p->sent, 8))
		p->said = p->sent;
	if (p->over)
		told(p);
	else if (p->left && !p->first && (p->fd < 0 || packet(p, BYE, NULL, 0)))
		drop(p);
}

static void owed(void)
{
	for (struct path *p = paths, *after; p; p = after) {
		after = p->next;
		settle(p);
	}
}

/* greet takes callers. Whoever is on this host may call, and only this user is answered. */
static void greet(void)
{
	struct ucred who;
	socklen_t size = sizeof who;
	for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
		if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) || who.uid != geteuid())
			close(fd);
		else
			new_path(0, fd);
}

/* Control. */

/* finish takes what the rank had said before, gives peers some time to read it, and tells them.
 * The rank reads nothing more. */
static void finish(void)
{
	uint32_t bytes;
	int left = 1;
	for (char *b; (b = next(&bytes)); release(bytes))
		message(b, bytes);
	for (int ms = 0; left && ms < 2000; ms++) {
		left = 0;
		for (struct path *p = paths; p; p = p->next)
			left |= p->fd >= 0 && !push(p);
		if (left)
			usleep(1000);
	}
	greet();
	for (struct path *p = paths; p; p = p->next)
		if (p->fd >= 0)
			packet(p, p->id && p->id % 2 == 0 ? BYE : CLOSED, NULL, 0);
	exit(0);
}

static void control(void)
{
	char b[LONGEST];
	ssize_t n = recv(CONTROL, b, sizeof b, MSG_DONTWAIT);
	uint32_t kind = 0;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 4)
		errx(1, "the rank is gone");
	memcpy(&kind, b, 4);
	if (kind == END)
		finish();
	if (kind != PING || n != 12)
		errx(1, "control frame %u of %zd bytes", kind, n);
	kind = PONG;
	memcpy(b, &kind, 4);
	memcpy(b + 12, &published, 8);
	(void)!send(CONTROL, b, 20, MSG_NOSIGNAL);
}

/* put_text appends a text to a control frame. */
static char *put_text(char *b, const char *s, uint32_t bytes)
{
	memcpy(b, &bytes, 4);
	memcpy(b + 4, s, bytes);
	return b + 4 + bytes;
}

/* refuse tells the rank why there will be no transport, in a frame of all versions. */
static void refuse(const char *why)
{
	char b[200];
	uint32_t kind = FAILED;
	memcpy(b, &kind, 4);
	memcpy(b + 4, why, strlen(why));
	(void)!send(CONTROL, b, 4 + strlen(why), MSG_NOSIGNAL);
	errx(1, "%s", why);
}

static void start(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	socklen_t size = sizeof a;
	struct stat st;
	uint32_t words[6] = {READY, VERSION, null ? 1 : 2, 0, 0, 0}, head[4];
	uint64_t latency = 5000;
	char b[LONGEST], *mem, *e = b;
	const char *name = null ? "null" : "c", *device = null ? "nothing" : "unix sockets", *version = getenv("FERRY_PLUGIN");
	ssize_t n;
	if (!version)
		errx(1, "this program is a plugin: a rank starts it, whose configuration names it under plugins");
	for (int fd = CONTROL; fd <= WAKE; fd++)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
	n = recv(CONTROL, b, sizeof b, 0);
	if (strcmp(version, "1") || n < 16 || *(uint32_t *)b != HELLO || *(uint32_t *)(b + 4) != VERSION)
		refuse("this plugin speaks version 1 of the plugin protocol, and the rank another one");
	memcpy(&nonce, b + 8, 8);

	if (fstat(MEMORY, &st) || (mem = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, MEMORY, 0)) == MAP_FAILED)
		err(1, "memory");
	memcpy(head, mem, sizeof head);
	if (memcmp(head, "fryplurg", 8) || head[2] != VERSION || head[3] < 64 || st.st_size != 4096 + 2 * CELL * (off_t)head[3])
		errx(1, "the memory is not a rank's");
	in = (struct ring){(void *)(mem + 256), (void *)(mem + 256 + 64), mem + 4096, head[3], 0, 0, 0, HOT, 0, 0};
	out = (struct ring){(void *)(mem + 512), (void *)(mem + 512 + 64), mem + 4096 + CELL * (size_t)head[3], head[3], 0, 0, 0, HOT, 0, 0};
#ifdef MADV_POPULATE_WRITE
	for (int k = 0; k < 2; k++) /* what small messages use, so that the first ones don't wait */
		(void)madvise(mem + 4096 + k * CELL * (size_t)head[3], CELL * (head[3] < HOT ? head[3] : HOT), MADV_POPULATE_WRITE);
#endif
	my_bell = (void *)(mem + 768);
	rank_sleeps = (void *)(mem + 832 + 4);
	limit = head[3] / 16 * CELL; /* so that the rank writes some while others are read here */
	limit = limit < 256 ? 256 : limit > 64 << 10 ? 64 << 10 : limit;

	bell_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (!null) {
		/* A name of the system's choice, in the abstract namespace. */
		listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (listener < 0 || bind(listener, (void *)&a, sizeof a.sun_family) || listen(listener, 4096) || getsockname(listener, (void *)&a, &size))
			err(1, "socket");
	}
	words[3] = limit < 8192 ? limit : 8192, words[4] = limit;
	memcpy(e, words, sizeof words), e += sizeof words;
	memcpy(e, &latency, 8), e += 8;
	e = put_text(e, name, strlen(name));
	e = put_text(e, device, strlen(device));
	e = put_text(e, a.sun_path, null ? 0 : size - sizeof a.sun_family);
	if (send(CONTROL, b, e - b, MSG_NOSIGNAL) < 0)
		err(1, "control socket");
}

/* The doorbell is a futex, and sockets are waited for by poll: a thread turns the one into a
 * descriptor. */
static void *listen_to_bell(void *rung)
{
	uint32_t seen = (uintptr_t)rung, now;
	uint64_t one = 1;
	for (;;) {
		syscall(SYS_futex, my_bell, FUTEX_WAIT, seen, NULL, NULL, 0);
		now = load(my_bell);
		if (now != seen)
			(void)!write(bell_fd, &one, sizeof one);
		seen = now;
	}
	return NULL;
}

/* sockets looks at all descriptors, and sleeps until one has something or the rank rings, if
 * nothing is there already. */
static int sockets(int sleeps)
{
	static struct pollfd *fds;
	static size_t room;
	size_t n = 3;
	uint32_t bytes;
	uint64_t count;
	int events = 0, full = 0;
	if (sleeps) {
		store(my_bell + 1, 1);
		store(out.waiting, 1);
		owed();
		if (next(&bytes))
			sleeps = 0;
	}
	for (struct path *p = paths; p; p = p->next)
		n++;
	if (n > room && !(fds = realloc(fds, (room = 2 * n) * sizeof *fds)))
		err(1, "memory");
	full = !reserve(PREFIX + limit);
	fds[0] = (struct pollfd){CONTROL, POLLIN, 0};
	fds[1] = (struct pollfd){listener, POLLIN, 0};
	fds[2] = (struct pollfd){bell_fd, POLLIN, 0};
	n = 3;
	for (struct path *p = paths; p; p = p->next, n++) {
		int to = p->id && p->id % 2 == 0;
		fds[n] = (struct pollfd){full && !to ? -1 : p->fd, POLLIN | (to && (p->first || p->left) ? POLLOUT : 0), 0};
	}
	poll(fds, n, sleeps ? -1 : 0);
	if (load(my_bell + 1))
		store(my_bell + 1, 0);
	if (fds[2].revents)
		(void)!read(bell_fd, &count, sizeof count);
	if (fds[0].revents)
		control();
	n = 3;
	for (struct path *p = paths, *after; p; p = after, n++) {
		after = p->next;
		if (!fds[n].revents || (!p->id && (!reserve(PREFIX + limit) || !caller(p))))
			continue;
		for (int k = 0; p->id && k < 32 && from_peer(p); k++)
			events++;
	}
	if (fds[1].revents)
		greet();
	return events;
}

/* Turns without a message before it sleeps, some 50 us; and turns from one look at the sockets,
 * which is a system call, to the next: peers wait for it, or the rank alone does. */
enum { SPIN = 2000, LOOK = 16, SELDOM = 512 };

int main(int argc, char **argv)
{
	pthread_t thread;
	null = argc > 1 && !strcmp(argv[1], "null");
	mallopt(M_TRIM_THRESHOLD, 64 << 20); /* frames that wait come and go */
	start();
	/* How often it was rung is read here: what comes before the thread runs is not missed. */
	if (pthread_create(&thread, NULL, listen_to_bell, (void *)(uintptr_t)load(my_bell)))
		err(1, "thread");
	for (unsigned turn = 0;; turn++) {
		uint32_t bytes;
		int n = 0;
		/* Frames that return wait in the ring: they would fill the memory else. */
		for (char *b; n < 64 && !(null && !reserve(PREFIX + limit)) && (b = next(&bytes)); n++) {
			message(b, bytes);
			release(bytes);
		}
		if (n == 0) {
			idle++;
			relax();
		}
		if (n || idle % 16 == 0)
			owed();
		if (n)
			idle = 0;
		if ((idle >= SPIN || turn % (null ? SELDOM : LOOK) == 0) && (sockets(idle >= SPIN) || idle >= SPIN))
			idle = 0;
	}
}
