// A libfabric that misbehaves: the real one, except for what FERRY_FAULT names.
//
//	old           it says that it is version 1.5
//	hang_load     listing its providers takes longer than anybody waits
//	hang_getinfo  so does asking them what they offer
//	hang_tcp      so does asking tcp;ofi_rxm, or all
//	hang_domain   so does opening a domain of tcp;ofi_rxm
//	drop          completions of tcp;ofi_rxm never come
//	fail          its completion queues fail once FERRY_FAULT_NOW is set
//
//	cc -shared -fPIC -o libfault.so fault.c -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#define LONG 2 // seconds that "hang" takes; tests wait for the end

static void *real(const char *name)
{
	static void *lib;
	if (!lib)
		lib = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
	return dlsym(lib, name);
}

static int fault(const char *name)
{
	const char *f = getenv("FERRY_FAULT");
	return f && !strcmp(f, name);
}

uint32_t fi_version(void)
{
	return fault("old") ? FI_VERSION(1, 5) : ((uint32_t(*)(void))real("fi_version"))();
}

int fi_getinfo(uint32_t v, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, struct fi_info **out)
{
	int all = !hints || !hints->fabric_attr->prov_name, names = !!(flags & FI_PROV_ATTR_ONLY);
	if (names ? fault("hang_load") : fault("hang_getinfo"))
		sleep(LONG);
	if (!names && fault("hang_tcp") && (all || !strcmp(hints->fabric_attr->prov_name, "tcp;ofi_rxm")))
		sleep(LONG);
	return ((__typeof__(&fi_getinfo))real("fi_getinfo"))(v, node, service, flags, hints, out);
}

void fi_freeinfo(struct fi_info *i) { ((__typeof__(&fi_freeinfo))real("fi_freeinfo"))(i); }
struct fi_info *fi_dupinfo(const struct fi_info *i) { return ((__typeof__(&fi_dupinfo))real("fi_dupinfo"))(i); }
const char *fi_strerror(int e) { return ((__typeof__(&fi_strerror))real("fi_strerror"))(e); }

// The tables of calls are copied once per process, and one entry is replaced.
static struct fi_ops_cq cq_ops, *real_cq;
static struct fi_ops_domain domain_ops, *real_domain;
static struct fi_ops_fabric fabric_ops, *real_fabric;

static ssize_t cq_read(struct fid_cq *cq, void *buf, size_t n)
{
	if (fault("drop"))
		n = 0;
	if (fault("fail") && getenv("FERRY_FAULT_NOW"))
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
		(*cq)->ops = &cq_ops;
	}
	return r;
}

static int domain(struct fid_fabric *f, struct fi_info *info, struct fid_domain **d, void *context)
{
	int tcp = !strcmp(info->fabric_attr->prov_name, "tcp;ofi_rxm");
	if (fault("hang_domain") && tcp)
		sleep(LONG);
	int r = real_fabric->domain(f, info, d, context);
	if (!r && tcp) {
		real_domain = (*d)->ops;
		domain_ops = *real_domain;
		domain_ops.cq_open = cq_open;
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
