// Completion queues. The length of a queue is not limited. Its descriptor is an epoll descriptor of
// all sockets of its endpoint.
#include "testprov.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

// tp_done adds the completion of an operation. error is an errno, or 0. over is the number of bytes
// of a message that did not fit.
void tp_done(tp_cq *q, void *context, uint64_t tag, uint64_t data, size_t n, size_t over, int error)
{
	if (!context)
		return;
	if (q->n == q->room) {
		size_t room = q->room ? 2 * q->room : 64;
		entry *ring = malloc(room * sizeof(*ring));
		if (!ring)
			abort();
		for (size_t i = 0; i < q->n; i++)
			ring[i] = q->ring[(q->first + i) % q->room];
		free(q->ring);
		q->ring = ring;
		q->room = room;
		q->first = 0;
	}
	q->ring[(q->first + q->n++) % q->room] = (entry){
		.ok = {.op_context = context, .len = n, .tag = tag, .data = data}, .over = over, .error = error,
	};
}

// tp_done_later is tp_done after some more reads of the queue.
void tp_done_later(tp_cq *q, long reads, void *context, uint64_t tag, uint64_t data, size_t n, int error)
{
	if (!reads) {
		tp_done(q, context, tag, data, n, 0, error);
		return;
	}
	later *l = malloc(sizeof(*l));
	if (!l)
		abort();
	*l = (later){.due = q->reads + reads, .e = {.ok = {.op_context = context, .len = n, .tag = tag, .data = data}, .error = error}};
	*(q->last ? &q->last->next : &q->late) = l;
	q->last = l;
}

// forget_late frees the first delayed completion.
static void forget_late(tp_cq *q)
{
	later *l = q->late;
	if (!(q->late = l->next))
		q->last = NULL;
	free(l);
}

static ssize_t read_cq(ffid_cq *f, void *out, size_t count)
{
	tp_cq *q = OF(tp_cq, fid, f);
	MAY_FAIL(&q->domain->c, "fi_cq_read");
	if (q->ep)
		tp_progress(q->ep);
	q->reads++;
	while (q->late && q->late->due <= q->reads) {
		const entry *e = &q->late->e;
		tp_done(q, e->ok.op_context, e->ok.tag, e->ok.data, e->ok.len, 0, e->error);
		forget_late(q);
	}
	if (q->ep && q->ep->broken)
		return -EIO;
	size_t n = 0;
	while (n < count && q->n > 0 && !q->ring[q->first].error) {
		((ffi_cq_tagged_entry *)out)[n++] = q->ring[q->first].ok;
		q->first = (q->first + 1) % q->room;
		q->n--;
	}
	if (n > 0)
		return n;
	return q->n > 0 ? -FFI_EAVAIL : -FFI_EAGAIN;
}

static ssize_t read_error(ffid_cq *f, ffi_cq_err_entry *out, uint64_t flags)
{
	(void)flags;
	tp_cq *q = OF(tp_cq, fid, f);
	MAY_FAIL(&q->domain->c, "fi_cq_readerr");
	if (q->n == 0 || !q->ring[q->first].error)
		return -FFI_EAGAIN;
	entry e = q->ring[q->first];
	q->first = (q->first + 1) % q->room;
	q->n--;
	// Fields of newer versions behind the size of err_data are not written.
	out->op_context = e.ok.op_context;
	out->flags = 0;
	out->len = e.ok.len;
	out->buf = NULL;
	out->data = e.ok.data;
	out->tag = e.ok.tag;
	out->olen = e.over;
	out->err = q->domain->c.minus ? -e.error : e.error;
	out->prov_errno = 0;
	out->err_data = NULL;
	out->err_data_size = 0;
	return 1;
}

static const char *text(ffid_cq *f, int error, const void *data, char *buf, size_t n)
{
	(void)data, (void)buf, (void)n;
	if (tp_outcome(&OF(tp_cq, fid, f)->domain->c, "fi_cq_strerror") != TP_WORKS)
		return NULL;
	return strerror(error < 0 ? -error : error);
}

// tp_trywait: the descriptor reports data on sockets only. It does not report completions that exist
// already or that wait for the clock.
int tp_trywait(ffid_fabric *fabric, ffid **fids, int count)
{
	(void)fabric;
	for (int i = 0; i < count; i++) {
		tp_cq *q = OF(tp_cq, fid.fid, fids[i]);
		MAY_FAIL(&q->domain->c, "fi_trywait");
		if (q->n > 0 || q->late || (q->ep && (q->ep->broken || q->ep->waiting > 0)))
			return -FFI_EAGAIN;
	}
	return 0;
}

static int control(ffid *f, int command, void *arg)
{
	tp_cq *q = OF(tp_cq, fid.fid, f);
	if (command != FFI_GETWAIT)
		return -ENOSYS;
	MAY_FAIL(&q->domain->c, "fi_control");
	*(int *)arg = q->epoll;
	return 0;
}

static int close_cq(ffid *f)
{
	tp_cq *q = OF(tp_cq, fid.fid, f);
	close(q->epoll);
	while (q->late)
		forget_late(q);
	free(q->ring);
	free(q);
	return 0;
}

static ffi_ops ops = {.size = sizeof(ops), .close = close_cq, .control = control};
static ffi_ops_cq calls = {.size = sizeof(calls), .read = read_cq, .readerr = read_error, .strerror = text};

int tp_cq_open(ffid_domain *d, ffi_cq_attr *attr, ffid_cq **out, void *context)
{
	MAY_FAIL(&OF(tp_domain, fid, d)->c, "fi_cq_open");
	if (attr->format != FFI_CQ_FORMAT_TAGGED || attr->size > 1 << 24) // As if the queue had to fit into memory.
		return attr->size > 1 << 24 ? -FFI_ENOMEM : -ENOSYS;
	tp_cq *q = calloc(1, sizeof(*q));
	if (!q)
		return -FFI_ENOMEM;
	q->fid = (ffid_cq){.fid = {CLASS_CQ, context, &ops}, .ops = &calls};
	q->domain = OF(tp_domain, fid, d);
	if ((q->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) {
		free(q);
		return -errno;
	}
	*out = &q->fid;
	return 0;
}
