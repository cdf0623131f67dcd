// Endpoints, whose calls become frames and receives.
#include "testprov.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tp_ep *of(ffid_ep *f) { return OF(tp_ep, fid, f); }

// known returns the bits that a tag has in this provider.
static uint64_t known(const tp_ep *ep, uint64_t tag)
{
	uint64_t highest = ep->domain->c.tags;
	for (int s = 1; s < 64; s *= 2)
		highest |= highest >> s;
	return tag & highest;
}

static tp_peer *peer(tp_ep *ep, uint64_t to)
{
	tp_av *av = ep->av;
	if (!av->peers[to]) {
		tp_linger(ep->domain->c.slow, ep->domain->c.meet);
		av->peers[to] = tp_peer_of(ep, av->addresses[to]);
	}
	return av->peers[to];
}

// after counts the messages to others until a fault.
static int after(const tp_ep *ep, long n) { return n > 0 && ep->to_others >= n; }

// room reports whether a message may leave for a peer now.
static int room(tp_ep *ep, tp_peer *p, int injected)
{
	const config *c = &ep->domain->c;
	size_t most = c->tx < 4096 ? c->tx : 4096;
	if ((!injected && ep->sending >= c->tx) || (injected && p->queued >= most))
		return 0;
	if (c->again && !p->since)
		p->since = tp_now();
	return !c->again || tp_now() - p->since >= c->again;
}

// out_of sends a message. context is NULL without a completion.
static ssize_t out_of(tp_ep *ep, int tagged, const void *buf, size_t n, uint64_t to, uint64_t tag, uint64_t data, void *context,
		      int injected)
{
	const config *c = &ep->domain->c;
	if (ep->broken)
		return -EIO;
	if (to >= ep->av->n)
		return -FFI_EINVAL;
	if (n > c->max_message || (injected && n > c->inject))
		return -EMSGSIZE;
	tp_peer *p = peer(ep, to);
	if (!room(ep, p, injected))
		return -FFI_EAGAIN;
	if (!ep->sent++)
		tp_catch(c, AT_SEND);
	if (memcmp(p->address, ep->address, ADDRESS))
		ep->to_others++;
	if (after(ep, c->late))
		ep->broken = 1;
	tp_send *s = NULL;
	if (!injected) {
		if (!(s = calloc(1, sizeof(*s))))
			return -FFI_ENOMEM;
		*s = (tp_send){.id = ++ep->ids, .context = context, .body = buf, .n = n, .to = p};
		((ffi_context2 *)context)->internal[0] = s; // Providers write to the context.
		ep->sending++;
	}
	if (after(ep, c->lose)) {
		tp_end_send(ep, s, 0);
		return 0;
	}
	frame f = {.type = EAGER, .tagged = tagged, .tag = known(ep, tag), .data = data, .n = n};
	if (c->data < 8)
		f.data &= (1ull << (8 * c->data)) - 1;
	if (n > c->eager) {
		f.type = OFFER;
		f.id = s->id;
		s->next = ep->offered;
		ep->offered = s;
		tp_put(ep, p, &f, NULL, 0, NULL, 0);
		return 0;
	}
	char *changed = NULL;
	if (n > 0 && after(ep, c->flip) && (changed = malloc(n))) {
		memcpy(changed, buf, n);
		changed[n / 2] ^= 0x10;
		buf = changed;
	}
	int r = tp_put(ep, p, &f, buf, n, s, injected || changed);
	free(changed);
	return injected && !c->dead_silent ? r : 0;
}

static ssize_t tsend(ffid_ep *f, const void *buf, size_t n, void *desc, uint64_t to, uint64_t tag, void *context)
{
	MAY_FAIL(&of(f)->domain->c, "fi_tsend");
	return tp_may(of(f)->domain, desc, buf, n) ? out_of(of(f), 1, buf, n, to, tag, 0, context, 0) : -FFI_EINVAL;
}

static ssize_t tinject(ffid_ep *f, const void *buf, size_t n, uint64_t to, uint64_t tag)
{
	MAY_FAIL(&of(f)->domain->c, "fi_tinject");
	return out_of(of(f), 1, buf, n, to, tag, 0, NULL, 1);
}

static ssize_t tsenddata(ffid_ep *f, const void *buf, size_t n, void *desc, uint64_t data, uint64_t to, uint64_t tag, void *context)
{
	MAY_FAIL(&of(f)->domain->c, "fi_tsenddata");
	if (!tp_may(of(f)->domain, desc, buf, n))
		return -FFI_EINVAL;
	return of(f)->domain->c.data ? out_of(of(f), 1, buf, n, to, tag, data, context, 0) : -ENOSYS;
}

static ssize_t tinjectdata(ffid_ep *f, const void *buf, size_t n, uint64_t data, uint64_t to, uint64_t tag)
{
	MAY_FAIL(&of(f)->domain->c, "fi_tinjectdata");
	return of(f)->domain->c.data ? out_of(of(f), 1, buf, n, to, tag, data, NULL, 1) : -ENOSYS;
}

static ssize_t send_msg(ffid_ep *f, const void *buf, size_t n, void *desc, uint64_t to, void *context)
{
	MAY_FAIL(&of(f)->domain->c, "fi_send");
	return tp_may(of(f)->domain, desc, buf, n) ? out_of(of(f), 0, buf, n, to, 0, 0, context, 0) : -FFI_EINVAL;
}

static ssize_t inject_msg(ffid_ep *f, const void *buf, size_t n, uint64_t to)
{
	MAY_FAIL(&of(f)->domain->c, "fi_inject");
	return out_of(of(f), 0, buf, n, to, 0, 0, NULL, 1);
}

static ssize_t trecv(ffid_ep *f, void *buf, size_t n, void *desc, uint64_t from, uint64_t tag, uint64_t ignore, void *context)
{
	tp_ep *ep = of(f);
	MAY_FAIL(&ep->domain->c, "fi_trecv");
	if (!tp_may(ep->domain, desc, buf, n))
		return -FFI_EINVAL;
	tp_recv what = {.context = context, .from = from, .tag = known(ep, tag), .ignore = ignore, .part = {{buf, n}}};
	return tp_post(ep, 1, &what);
}

static ssize_t recv_msg(ffid_ep *f, void *buf, size_t n, void *desc, uint64_t from, void *context)
{
	MAY_FAIL(&of(f)->domain->c, "fi_recv");
	if (!tp_may(of(f)->domain, desc, buf, n))
		return -FFI_EINVAL;
	tp_recv what = {.context = context, .from = from, .part = {{buf, n}}};
	return tp_post(of(f), 0, &what);
}

static ssize_t trecvmsg(ffid_ep *f, const ffi_msg_tagged *given, uint64_t flags)
{
	tp_ep *ep = of(f);
	MAY_FAIL(&ep->domain->c, "fi_trecvmsg");
	ffi_msg_tagged m = *given;
	if (m.iov_count > ep->domain->c.parts || m.iov_count > 2)
		return -FFI_EINVAL;
	for (size_t i = 0; i < m.iov_count; i++)
		if (!tp_may(ep->domain, m.desc ? m.desc[i] : NULL, m.msg_iov[i].iov_base, m.msg_iov[i].iov_len))
			return -FFI_EINVAL;
	m.tag = known(ep, m.tag);
	if (flags & FFI_PEEK)
		return tp_peek(ep, &m, !!(flags & FFI_CLAIM));
	if (flags & FFI_CLAIM)
		return tp_take(ep, &m);
	tp_recv what = {.context = m.context, .from = m.addr, .tag = m.tag, .ignore = m.ignore};
	memcpy(what.part, m.msg_iov, m.iov_count * sizeof(what.part[0]));
	return tp_post(ep, 1, &what);
}

static int getname(ffid *f, void *address, size_t *n)
{
	tp_ep *ep = OF(tp_ep, fid.fid, f);
	MAY_FAIL(&ep->domain->c, "fi_getname");
	size_t room = *n;
	*n = ep->domain->c.address;
	if (room < *n)
		return -E2BIG;
	memcpy(address, ep->address, *n);
	return 0;
}

static int bind_ep(ffid *f, ffid *to, uint64_t flags)
{
	(void)flags;
	tp_ep *ep = OF(tp_ep, fid.fid, f);
	MAY_FAIL(&ep->domain->c, "fi_ep_bind");
	switch (to->fclass) {
	case CLASS_AV:
		ep->av = OF(tp_av, fid.fid, to);
		ep->av->ep = ep;
		return 0;
	case CLASS_CQ:
		ep->cq = OF(tp_cq, fid.fid, to);
		ep->cq->ep = ep;
		return 0;
	}
	return -FFI_EINVAL;
}

static int control(ffid *f, int command, void *arg)
{
	(void)arg;
	tp_ep *ep = OF(tp_ep, fid.fid, f);
	if (command != FFI_ENABLE)
		return -ENOSYS;
	MAY_FAIL(&ep->domain->c, "fi_enable");
	if (!ep->av || !ep->cq)
		return -FFI_EINVAL;
	return tp_listen(ep);
}

static int close_ep(ffid *f)
{
	tp_ep *ep = OF(tp_ep, fid.fid, f);
	if (ep->domain->c.mr & FFI_MR_ENDPOINT && ep->domain->regions)
		return -EBUSY;
	tp_linger(0, ep->domain->c.part);
	if (ep->listener >= 0) {
		close(ep->listener);
		if (ep->path[0])
			unlink(ep->path);
	}
	tp_sweep(ep, 1);
	for (tp_peer *p = ep->peers, *next; p; p = next) {
		next = p->next;
		tp_fail(ep, p, FFI_ECANCELED);
		free(p);
	}
	tp_forget(ep);
	if (ep->cq)
		ep->cq->ep = NULL;
	free(ep);
	return 0;
}

static ffi_ops fid_ops = {.size = sizeof(fid_ops), .close = close_ep, .bind = bind_ep, .control = control};
static ffi_ops_ep ep_calls = {.size = sizeof(ep_calls), .cancel = tp_cancel};
static ffi_ops_cm cm_calls = {.size = sizeof(cm_calls), .getname = getname};
static ffi_ops_msg msg_calls = {.size = sizeof(msg_calls), .recv = recv_msg, .send = send_msg, .inject = inject_msg};
static ffi_ops_tagged tagged_calls = {
	.size = sizeof(tagged_calls), .recv = trecv, .recvmsg = trecvmsg, .send = tsend, .inject = tinject, .senddata = tsenddata, .injectdata = tinjectdata,
};

int tp_endpoint(ffid_domain *d, ffi_info *info, ffid_ep **out, void *context)
{
	MAY_FAIL(&OF(tp_domain, fid, d)->c, "fi_endpoint");
	tp_ep *ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -FFI_ENOMEM;
	ep->fid = (ffid_ep){.fid = {CLASS_EP, context, &fid_ops}, .ops = &ep_calls, .cm = &cm_calls, .msg = &msg_calls, .tagged = &tagged_calls};
	ep->w.kind = LISTENER;
	ep->domain = OF(tp_domain, fid, d);
	ep->listener = -1;
	const config *c = &ep->domain->c;
	ep->directed = (info->caps & FFI_DIRECTED_RECV) && !c->no_directed;
	const char *key = c->key ? getenv(c->key) : NULL;
	snprintf(ep->key, sizeof(ep->key), "%s", key ? key : "the same for all");
	tp_catch(c, AT_OPEN);
	*out = &ep->fid;
	return 0;
}
