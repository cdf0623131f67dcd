// Calls of libfabric on endpoints. library.c has those on the library. libfabric is loaded at run time, and abi.h replaces its headers. The file
// contains no policy: Go chooses providers and tags, and repeats calls.
//
// Calls on one ferry_ep must not overlap.
#include "library.h"
#include "shim.h"
#include "signals.h"
#include "slots.h"

#include <stdlib.h>

struct ferry_region {
	ffid_mr *mr;
	ferry_region *next, *before; // in ferry_ep.regions
};

enum { TAGGED = 1, UNTAGGED = 2 };
enum { POLL_MOST = 64, SPILL = FERRY_SPILL_BYTES };

struct ferry_ep {
	ferry_lib *lib;
	ffi_info *info;
	ffid_fabric *fabric;
	ffid_domain *domain;
	ffid_av *av;
	ffid_cq *cq;
	ffid_ep *ep;
	slots slots;
	int fd;
	char *spill; // SPILL bytes that are never read
	void *spill_desc;
	ferry_region *regions;
	uint64_t keys; // the last registration key
	int fresh;   // TAGGED, UNTAGGED: no such message was accepted since an address was inserted
};

static inline slot *slot_at(ferry_ep *ep, uint32_t i) { return nth_slot(&ep->slots, i); }

// ferry_grow adds slots, and returns their total number.
int ferry_grow(ferry_ep *ep) { return more_slots(&ep->slots); }

// registers reports whether a mode of registration is in use.
static int registers(const ferry_ep *ep, int mode) { return !!(ep->info->domain_attr->mr_mode & mode); }

// result returns r, or an error if the call reported success without an object.
static int result(int r, const void *object) { return r || object ? r : FERRY_NO_RESULT; }

static int open_ep(ferry_lib *lib, const void *info, int wait_fd, int directed, size_t entries, ferry_ep **out, const char **step)
{
	ferry_ep *ep = calloc(1, sizeof(*ep));
	int r = -FFI_ENOMEM;
	*step = "memory";
	if (!ep)
		return r;
	ep->lib = lib;
	ep->fd = -1;
	if (!(ep->spill = malloc(SPILL)))
		goto fail;
	*step = "fi_dupinfo";
	ep->info = lib->f.fi_dupinfo(info);
	if (!ep->info)
		goto fail;
	if (!directed) {
		ep->info->caps &= ~(FFI_DIRECTED_RECV | FFI_SOURCE);
		ep->info->rx_attr->caps &= ~(FFI_DIRECTED_RECV | FFI_SOURCE);
	}
	*step = "fi_fabric";
	r = lib->f.fi_fabric(ep->info->fabric_attr, &ep->fabric, NULL);
	if ((r = result(r, ep->fabric)))
		goto fail;
	*step = "fi_domain";
	r = ep->fabric->ops->domain(ep->fabric, ep->info, &ep->domain, NULL);
	if ((r = result(r, ep->domain)))
		goto fail;
	*step = "fi_av_open";
	ffi_av_attr av = {.type = ep->info->domain_attr->av_type};
	r = ep->domain->ops->av_open(ep->domain, &av, &ep->av, NULL);
	if ((r = result(r, ep->av)))
		goto fail;
	*step = "fi_cq_open";
	ffi_cq_attr cq = {
		.format = FFI_CQ_FORMAT_TAGGED,
		.wait_obj = wait_fd ? FFI_WAIT_FD : FFI_WAIT_NONE,
		.size = entries,
	};
	r = ep->domain->ops->cq_open(ep->domain, &cq, &ep->cq, NULL);
	if ((r = result(r, ep->cq)))
		goto fail;
	if (wait_fd) {
		*step = "fi_control(FI_GETWAIT)";
		r = ep->cq->fid.ops->control(&ep->cq->fid, FFI_GETWAIT, &ep->fd);
		if (!r && ep->fd < 0)
			r = FERRY_NO_RESULT;
		if (r)
			goto fail;
	}
	*step = "fi_endpoint";
	r = ep->domain->ops->endpoint(ep->domain, ep->info, &ep->ep, NULL);
	if ((r = result(r, ep->ep)))
		goto fail;
	*step = "fi_ep_bind";
	ffid *self = &ep->ep->fid;
	if ((r = self->ops->bind(self, &ep->av->fid, 0)) || (r = self->ops->bind(self, &ep->cq->fid, FFI_TRANSMIT | FFI_RECV)))
		goto fail;
	*step = "fi_enable";
	if ((r = self->ops->control(self, FFI_ENABLE, NULL)))
		goto fail;
	if (registers(ep, FFI_MR_LOCAL)) {
		*step = "fi_mr_reg";
		ferry_region *region;
		if ((r = ferry_register(ep, ep->spill, SPILL, &region)))
			goto fail;
		ep->spill_desc = region->mr->mem_desc;
	}
	*out = ep;
	return 0;
fail:
	ferry_close(ep);
	return r;
}

// ferry_open opens an endpoint for sends and receives, with a completion queue of the given number of entries. Only a directed one permits
// addresses in receives and peeks. After a failure *step is the name of the failed call.
int ferry_open(ferry_lib *lib, const void *info, int wait_fd, int directed, size_t entries, ferry_ep **out, const char **step)
{
	ferry_signals kept;
	ferry_keep_signals(&kept);
	int r = open_ep(lib, info, wait_fd, directed, entries, out, step);
	ferry_give_back_signals(&kept);
	return r;
}

static void close_fid(ffid *f) { f->ops->close(f); }

static void close_regions(ferry_ep *ep)
{
	for (ferry_region *r = ep->regions, *next; r; r = next) {
		next = r->next;
		close_fid(&r->mr->fid);
		free(r);
	}
	ep->regions = NULL;
}

// ferry_close closes the endpoint. Operations in progress end without a completion, and their buffers are not accessed after it
// returns.
void ferry_close(ferry_ep *ep)
{
	if (ep->info && registers(ep, FFI_MR_ENDPOINT))
		close_regions(ep); // Bound objects must close before the endpoint.
	if (ep->ep)
		close_fid(&ep->ep->fid);
	close_regions(ep);
	if (ep->cq)
		close_fid(&ep->cq->fid);
	if (ep->av)
		close_fid(&ep->av->fid);
	if (ep->domain)
		close_fid(&ep->domain->fid);
	if (ep->fabric)
		close_fid(&ep->fabric->fid);
	if (ep->info)
		ep->lib->f.fi_freeinfo(ep->info);
	free_slots(&ep->slots);
	free(ep->spill);
	free(ep);
}

int ferry_name(ferry_ep *ep, void *buf, size_t *bytes) { return ep->ep->cm->getname(&ep->ep->fid, buf, bytes); }

int ferry_insert(ferry_ep *ep, const void *address, uint64_t *out)
{
	uint64_t a = FFI_ADDR_NOTAVAIL;
	ferry_signals kept;
	ferry_keep_signals(&kept);
	int r = ep->av->ops->insert(ep->av, address, 1, &a, 0, NULL);
	ferry_give_back_signals(&kept);
	ep->fresh = TAGGED | UNTAGGED;
	*out = a;
	if (r < 0)
		return r;
	return r == 1 && a != FFI_ADDR_NOTAVAIL ? 0 : FERRY_NO_RESULT;
}

int ferry_remove(ferry_ep *ep, uint64_t address)
{
	uint64_t a = address;
	return ep->av->ops->remove(ep->av, &a, 1, 0);
}

// ferry_register registers n bytes until ferry_deregister or ferry_close.
int ferry_register(ferry_ep *ep, char *buf, size_t n, ferry_region **out)
{
	ferry_region *region = calloc(1, sizeof(*region));
	if (!region)
		return -FFI_ENOMEM;
	int r = ep->domain->mr->reg(&ep->domain->fid, buf, n, FFI_SEND | FFI_RECV, 0, ++ep->keys, 0, &region->mr, NULL);
	if ((r = result(r, region->mr))) {
		free(region);
		return r;
	}
	ffid *f = &region->mr->fid;
	if (registers(ep, FFI_MR_ENDPOINT) && ((r = f->ops->bind(f, &ep->ep->fid, 0)) || (r = f->ops->control(f, FFI_ENABLE, NULL)))) {
		close_fid(f);
		free(region);
		return r;
	}
	region->next = ep->regions;
	if (region->next)
		region->next->before = region;
	*out = ep->regions = region;
	return 0;
}

int ferry_deregister(ferry_ep *ep, ferry_region *region)
{
	ffid *f = &region->mr->fid;
	int r = f->ops->close(f);
	if (r)
		return r;
	*(region->before ? &region->before->next : &ep->regions) = region->next;
	if (region->next)
		region->next->before = region->before;
	free(region);
	return 0;
}

// ferry_use sets the region of the buffers of a slot's operations, or none for NULL.
void ferry_use(ferry_ep *ep, uint32_t i, ferry_region *region) { slot_at(ep, i)->desc = region ? region->mr->mem_desc : NULL; }

int ferry_fd(ferry_ep *ep) { return ep->fd; }

// ferry_trywait returns 0 if the descriptor will become readable with the next event.
int ferry_trywait(ferry_ep *ep)
{
	ffid *fids[] = {&ep->cq->fid};
	return ep->fabric->ops->trywait(ep->fabric, fids, 1);
}

int ferry_tsend(ferry_ep *ep, uint32_t i, const char *buf, size_t n, uint64_t to, uint64_t tag, uint64_t data, int kind)
{
	if (__builtin_expect(ep->fresh & TAGGED, 0)) { // The first message connects.
		ferry_signals kept;
		ferry_keep_signals(&kept);
		ep->fresh &= ~TAGGED;
		int r = ferry_tsend(ep, i, buf, n, to, tag, data, kind);
		ferry_give_back_signals(&kept);
		if (r)
			ep->fresh |= TAGGED;
		return r;
	}
	const ffi_ops_tagged *call = ep->ep->tagged;
	if (kind & FERRY_INJECT)
		return kind & FERRY_WITH_DATA ? call->injectdata(ep->ep, buf, n, data, to, tag) : call->inject(ep->ep, buf, n, to, tag);
	slot *s = slot_at(ep, i);
	return kind & FERRY_WITH_DATA ? call->senddata(ep->ep, buf, n, s->desc, data, to, tag, &s->context)
				      : call->send(ep->ep, buf, n, s->desc, to, tag, &s->context);
}

static int message(ferry_ep *ep, uint32_t i, void *buf, size_t n, uint64_t from, uint64_t tag, uint64_t ignore, int kind,
		   uint64_t flags)
{
	struct iovec iov[2] = {{buf, n}, {ep->spill, SPILL}};
	void *desc[2] = {slot_at(ep, i)->desc, ep->spill_desc};
	int first = n > 0 ? 0 : 1;
	size_t parts = (n > 0) + !!(kind & FERRY_SPILL);
	ffi_msg_tagged m = {
		.msg_iov = iov + first, .desc = desc[0] || desc[1] ? desc + first : NULL, .iov_count = parts, .addr = from, .tag = tag, .ignore = ignore, .context = &slot_at(ep, i)->context,
	};
	return ep->ep->tagged->recvmsg(ep->ep, &m, flags);
}

// ferry_trecv posts a receive. With FERRY_SPILL up to SPILL bytes beyond the buffer are discarded. With FERRY_CLAIM it receives the
// message that a peek with this slot has claimed.
int ferry_trecv(ferry_ep *ep, uint32_t i, char *buf, size_t n, uint64_t from, uint64_t tag, uint64_t ignore, int kind)
{
	if (kind & FERRY_CLAIM)
		return message(ep, i, buf, n, from, tag, ignore, kind, FFI_CLAIM | FFI_COMPLETION);
	if (kind & FERRY_SPILL)
		return message(ep, i, buf, n, from, tag, ignore, kind, FFI_COMPLETION);
	slot *s = slot_at(ep, i);
	return ep->ep->tagged->recv(ep->ep, buf, n, s->desc, from, tag, ignore, &s->context);
}

// ferry_peek probes for a message. Without one the completion has the error ENOMSG.
int ferry_peek(ferry_ep *ep, uint32_t i, uint64_t from, uint64_t tag, uint64_t ignore, int kind)
{
	return message(ep, i, NULL, 0, from, tag, ignore, 0, FFI_PEEK | FFI_COMPLETION | (kind & FERRY_CLAIM ? FFI_CLAIM : 0));
}

int ferry_send(ferry_ep *ep, uint32_t i, const char *buf, size_t n, uint64_t to, int kind)
{
	if (__builtin_expect(ep->fresh & UNTAGGED, 0)) {
		ferry_signals kept;
		ferry_keep_signals(&kept);
		ep->fresh &= ~UNTAGGED;
		int r = ferry_send(ep, i, buf, n, to, kind);
		ferry_give_back_signals(&kept);
		if (r)
			ep->fresh |= UNTAGGED;
		return r;
	}
	if (kind & FERRY_INJECT)
		return ep->ep->msg->inject(ep->ep, buf, n, to);
	slot *s = slot_at(ep, i);
	return ep->ep->msg->send(ep->ep, buf, n, s->desc, to, &s->context);
}

int ferry_recv(ferry_ep *ep, uint32_t i, char *buf, size_t n)
{
	slot *s = slot_at(ep, i);
	return ep->ep->msg->recv(ep->ep, buf, n, s->desc, FFI_ADDR_UNSPEC, &s->context);
}

int ferry_cancel(ferry_ep *ep, uint32_t i) { return ep->ep->ops->cancel(&ep->ep->fid, &slot_at(ep, i)->context); }

// read_error reads one failed completion. It returns 1, 0 if there is none, or a failure of the queue.
static ssize_t read_error(ferry_ep *ep, ferry_event *out)
{
	ffi_cq_err_entry e = {0};
	ssize_t n = ep->cq->ops->readerr(ep->cq, &e, 0);
	if (n <= 0)
		return n == -FFI_EAGAIN ? 0 : n;
	// Some providers report a wrong sign, and some no number.
	int err = e.err < 0 ? -e.err : e.err ? e.err : FFI_EOTHER;
	*out = (ferry_event){
		.tag = e.tag, .data = e.data, .length = e.len, .overflow = e.olen,
		.slot = slot_of(&ep->slots, e.op_context), .error = err, .provider_error = e.prov_errno,
	};
	return 1;
}

// ferry_poll reads completions, including failed ones, and returns their number. A negative result is a failure of the queue. A failed
// completion blocks the others until it is read, so the loop continues after it.
int ferry_poll(ferry_ep *ep, ferry_event *out, int room)
{
	ffi_cq_tagged_entry got[POLL_MOST];
	int have = 0;
	while (have < room) {
		ssize_t n = ep->cq->ops->read(ep->cq, got, room - have < POLL_MOST ? room - have : POLL_MOST);
		if (n > 0) {
			for (ssize_t i = 0; i < n; i++)
				out[have + i] = (ferry_event){
					.tag = got[i].tag, .data = got[i].data, .length = got[i].len,
					.slot = got[i].op_context ? ((slot *)got[i].op_context)->index : FERRY_NO_SLOT,
				};
			return have + n;
		}
		if (n == -FFI_EAVAIL)
			n = read_error(ep, out + have);
		if (n == 1) {
			have++;
			continue;
		}
		if (n < 0 && n != -FFI_EAGAIN && have == 0)
			return n;
		break; // The next call returns the failure.
	}
	return have;
}

const char *ferry_cq_error(ferry_ep *ep, int provider_error)
{
	return ep->cq->ops->strerror(ep->cq, provider_error, NULL, NULL, 0);
}
