// A faulty libfabric. It is the real library except for the fault in FABRIC_FAULT:
//
//	old           its version is 1.5
//	hang_load     loading it hangs
//	hang_start    listing its providers hangs
//	hang_getinfo  querying the offers hangs
//	hang_tcp      querying those of tcp;ofi_rxm, or of all, hangs
//	crash_tcp     querying those of tcp;ofi_rxm, or of all, is a segmentation violation
//	hang_domain   opening a domain of tcp;ofi_rxm hangs
//	segments      providers over ofi_rxm cut messages into segments, as they do if
//	              ferry does not prevent it
//	drop          completions of tcp;ofi_rxm never come
//	fail          its completion queues fail once FABRIC_FAULT_NOW is set
//	stray         they have FABRIC_FAULT_NOW errors that belong to no operation; half of
//	              them have a context of the library
//	cancel        once FABRIC_FAULT_NOW is set, the newest posted receive ends as
//	              canceled, and so do probes without a message
//
//	order         its version is 2.1, and a receive from any source is posted behind
//	              the next one from one address
//	undirected    no provider has receives from one address
//
//	handlers_load, handlers_start, handlers_open, handlers_insert, handlers_send
//	              at that moment it handles SIGSEGV and SIGTERM, once, without a signal
//	              stack, and exits on them
//
//	cc -shared -fPIC -o libfault.so fault.c -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#ifndef LIBRARY
#define LIBRARY "libfabric.so.1"
#endif
static void *real(const char *name)
{
	static void *lib;
	if (!lib)
		lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	return dlsym(lib, name);
}

static int fault(const char *name)
{
	const char *f = getenv("FABRIC_FAULT");
	return f && !strcmp(f, name);
}

// A hang ends when the file in FABRIC_FAULT_END exists. Without the variable it does not end.
static void hang(void)
{
	const char *end = getenv("FABRIC_FAULT_END");
	char *path = end ? strdup(end) : NULL;
	while (!path || access(path, F_OK))
		usleep(10000);
	free(path);
}

static void leave(int s)
{
	(void)s;
	_exit(77);
}

static void handlers(const char *when)
{
	static int taken;
	if (!fault(when) || taken++)
		return;
	struct sigaction a;
	memset(&a, 0, sizeof(a));
	a.sa_handler = leave;
	sigaction(SIGSEGV, &a, NULL);
	sigaction(SIGTERM, &a, NULL);
}

__attribute__((constructor)) static void load(void)
{
	handlers("handlers_load");
	if (fault("hang_load"))
		hang();
}

uint32_t fi_version(void)
{
	return fault("old") ? FI_VERSION(1, 5) : fault("order") ? FI_VERSION(2, 1) : ((uint32_t(*)(void))real("fi_version"))();
}

int fi_getinfo(uint32_t v, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, struct fi_info **out)
{
	int all = !hints || !hints->fabric_attr->prov_name, names = !!(flags & FI_PROV_ATTR_ONLY);
	if (names ? fault("hang_start") : fault("hang_getinfo"))
		hang();
	handlers("handlers_start");
	int tcp = !names && (all || !strcmp(hints->fabric_attr->prov_name, "tcp;ofi_rxm"));
	if (tcp && fault("hang_tcp"))
		hang();
	if (tcp && fault("crash_tcp"))
		raise(SIGSEGV);
	if (fault("undirected") && hints && hints->caps & FI_DIRECTED_RECV)
		return -FI_ENODATA;
	return ((__typeof__(&fi_getinfo))real("fi_getinfo"))(v, node, service, flags, hints, out);
}

void fi_freeinfo(struct fi_info *i) { ((__typeof__(&fi_freeinfo))real("fi_freeinfo"))(i); }
struct fi_info *fi_dupinfo(const struct fi_info *i) { return ((__typeof__(&fi_dupinfo))real("fi_dupinfo"))(i); }
const char *fi_strerror(int e) { return ((__typeof__(&fi_strerror))real("fi_strerror"))(e); }

// The tables of calls are copied once per process, and one entry is replaced.
static struct fi_ops_cq cq_ops, *real_cq;
static struct fi_ops_domain domain_ops, *real_domain;
static struct fi_ops_fabric fabric_ops, *real_fabric;

static struct fi_ops_tagged tagged_ops, *real_tagged;
static struct fid_ep *last_ep;
static void *last_receive;
static int strays;

static int now(void)
{
	const char *n = getenv("FABRIC_FAULT_NOW");
	return n ? atoi(n) : 0;
}

static ssize_t cq_readerr(struct fid_cq *cq, struct fi_cq_err_entry *e, uint64_t flags)
{
	if (fault("stray") && strays < now()) {
		strays++;
		static uint32_t own[128]; // Resembles the context of an unknown operation.
		for (int i = 0; i < 128; i++)
			own[i] = 200;
		memset(e, 0, sizeof(*e));
		e->err = FI_ECONNRESET;
		e->op_context = strays % 2 ? own : NULL;
		return 1;
	}
	ssize_t r = real_cq->readerr(cq, e, flags);
	if (r == 1 && fault("cancel") && now() && e->err == FI_ENOMSG)
		e->err = FI_ECANCELED;
	return r;
}

// The receive from any source that is posted behind the next one.
static struct fi_msg_tagged late;
static struct iovec late_parts[2];
static uint64_t late_flags;

static void post_late(void)
{
	if (late.context && real_tagged->recvmsg(last_ep, &late, late_flags) == 0)
		late.context = NULL;
}

static ssize_t trecvmsg(struct fid_ep *ep, const struct fi_msg_tagged *m, uint64_t flags)
{
	if (fault("order") && !(flags & (FI_PEEK | FI_CLAIM)) && m->addr == FI_ADDR_UNSPEC) {
		post_late();
		last_ep = ep;
		late = *m;
		late_flags = flags;
		memcpy(late_parts, m->msg_iov, m->iov_count * sizeof(struct iovec));
		late.msg_iov = late_parts;
		return 0;
	}
	if (fault("order")) {
		ssize_t r = real_tagged->recvmsg(ep, m, flags);
		post_late();
		return r;
	}
	if (!(flags & FI_PEEK)) {
		last_ep = ep;
		last_receive = m->context;
	}
	return real_tagged->recvmsg(ep, m, flags);
}

static struct fi_ops_ep ep_ops, *real_ep;

static ssize_t cancel(struct fid *f, void *context)
{
	post_late();
	return real_ep->cancel(f, context);
}

static ssize_t tsend(struct fid_ep *ep, const void *buf, size_t n, void *desc, fi_addr_t to, uint64_t tag, void *context)
{
	handlers("handlers_send");
	return real_tagged->send(ep, buf, n, desc, to, tag, context);
}

static ssize_t tinject(struct fid_ep *ep, const void *buf, size_t n, fi_addr_t to, uint64_t tag)
{
	handlers("handlers_send");
	return real_tagged->inject(ep, buf, n, to, tag);
}

static struct fi_ops_av av_ops, *real_av;

static int insert(struct fid_av *av, const void *a, size_t n, fi_addr_t *out, uint64_t flags, void *context)
{
	handlers("handlers_insert");
	return real_av->insert(av, a, n, out, flags, context);
}

static int av_open(struct fid_domain *d, struct fi_av_attr *attr, struct fid_av **av, void *context)
{
	int r = real_domain->av_open(d, attr, av, context);
	if (!r) {
		real_av = (*av)->ops;
		av_ops = *real_av;
		av_ops.insert = insert;
		(*av)->ops = &av_ops;
	}
	return r;
}

static int endpoint(struct fid_domain *d, struct fi_info *info, struct fid_ep **ep, void *context)
{
	handlers("handlers_open");
	if (fault("segments"))
		setenv("FI_OFI_RXM_SAR_LIMIT", "131072", 1);
	int r = real_domain->endpoint(d, info, ep, context);
	if (fault("segments"))
		setenv("FI_OFI_RXM_SAR_LIMIT", "0", 1);
	if (!r) {
		real_tagged = (*ep)->tagged;
		tagged_ops = *real_tagged;
		tagged_ops.recvmsg = trecvmsg;
		if (fault("handlers_send")) {
			tagged_ops.send = tsend;
			tagged_ops.inject = tinject;
		}
		(*ep)->tagged = &tagged_ops;
		real_ep = (*ep)->ops;
		ep_ops = *real_ep;
		ep_ops.cancel = cancel;
		(*ep)->ops = &ep_ops;
	}
	return r;
}

static ssize_t cq_read(struct fid_cq *cq, void *buf, size_t n)
{
	post_late();
	if (fault("stray") && strays < now())
		return -FI_EAVAIL;
	if (fault("cancel") && now() && last_receive) {
		fi_cancel(&last_ep->fid, last_receive);
		last_receive = NULL;
	}
	if (fault("drop"))
		n = 0;
	if (fault("fail") && now())
		return -FI_EIO;
	return real_cq->read(cq, buf, n);
}

static int cq_open(struct fid_domain *d, struct fi_cq_attr *attr, struct fid_cq **cq, void *context)
{
	int r = real_domain->cq_open(d, attr, cq, context);
	if (!r) {
		real_cq = (*cq)->ops;
		cq_ops = *real_cq;
		cq_ops.read = cq_read;
		cq_ops.readerr = cq_readerr;
		(*cq)->ops = &cq_ops;
	}
	return r;
}

static int domain(struct fid_fabric *f, struct fi_info *info, struct fid_domain **d, void *context)
{
	int tcp = !strcmp(info->fabric_attr->prov_name, "tcp;ofi_rxm");
	if (fault("hang_domain") && tcp)
		hang();
	int r = real_fabric->domain(f, info, d, context);
	if (!r && (tcp || fault("segments"))) {
		real_domain = (*d)->ops;
		domain_ops = *real_domain;
		domain_ops.cq_open = cq_open;
		domain_ops.endpoint = endpoint;
		domain_ops.av_open = av_open;
		(*d)->ops = &domain_ops;
	}
	return r;
}

int fi_fabric(struct fi_fabric_attr *attr, struct fid_fabric **f, void *context)
{
	int r = ((__typeof__(&fi_fabric))real("fi_fabric"))(attr, f, context);
	if (!r) {
		real_fabric = (*f)->ops;
		fabric_ops = *real_fabric;
		fabric_ops.domain = domain;
		(*f)->ops = &fabric_ops;
	}
	return r;
}
