// Fabric, domain and address vector.
#include "testprov.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Address vector. The number of an address is its index.
static int insert(ffid_av *f, const void *address, size_t count, uint64_t *out, uint64_t flags, void *context)
{
	(void)flags, (void)context;
	tp_av *av = OF(tp_av, fid, f);
	const config *c = &av->domain->c;
	MAY_FAIL(c, "fi_av_insert");
	tp_linger(c->slow, c->insert);
	tp_catch(c, AT_INSERT);
	for (size_t i = 0; i < count; i++) {
		unsigned char(*addresses)[ADDRESS] = realloc(av->addresses, (av->n + 1) * ADDRESS);
		if (addresses)
			av->addresses = addresses;
		tp_peer **peers = realloc(av->peers, (av->n + 1) * sizeof(*peers));
		if (peers)
			av->peers = peers;
		if (!addresses || !peers)
			return -FFI_ENOMEM;
		memset(addresses[av->n], 0, ADDRESS);
		memcpy(addresses[av->n], (const char *)address + i * c->address, c->address);
		peers[av->n] = NULL;
		out[i] = av->n++;
	}
	return count;
}

// Removed addresses keep their index, which is not reused.
static int remove_address(ffid_av *f, uint64_t *address, size_t count, uint64_t flags)
{
	(void)flags;
	tp_av *av = OF(tp_av, fid, f);
	MAY_FAIL(&av->domain->c, "fi_av_remove");
	for (size_t i = 0; i < count; i++) {
		if (address[i] >= av->n)
			return -FFI_EINVAL;
		memset(av->addresses[address[i]], 0, ADDRESS);
		av->peers[address[i]] = NULL;
	}
	return 0;
}

static int close_av(ffid *f)
{
	tp_av *av = OF(tp_av, fid.fid, f);
	free(av->addresses);
	free(av->peers);
	free(av);
	return 0;
}

static ffi_ops_av av_calls = {.size = sizeof(av_calls), .insert = insert, .remove = remove_address};
static ffi_ops av_ops = {.size = sizeof(av_ops), .close = close_av};

int tp_av_open(ffid_domain *d, ffi_av_attr *attr, ffid_av **out, void *context)
{
	(void)attr;
	MAY_FAIL(&OF(tp_domain, fid, d)->c, "fi_av_open");
	tp_av *av = calloc(1, sizeof(*av));
	if (!av)
		return -FFI_ENOMEM;
	av->fid = (ffid_av){.fid = {CLASS_AV, context, &av_ops}, .ops = &av_calls};
	av->domain = OF(tp_domain, fid, d);
	*out = &av->fid;
	return 0;
}

static int close_domain(ffid *f)
{
	tp_domain *d = OF(tp_domain, fid.fid, f);
	if (d->regions)
		abort(); // libfabric would return EBUSY and keep the object.
	free(d);
	return 0;
}

static ffi_ops domain_ops = {.size = sizeof(domain_ops), .close = close_domain};
static ffi_ops_domain domain_calls = {.size = sizeof(domain_calls), .av_open = tp_av_open, .cq_open = tp_cq_open, .endpoint = tp_endpoint};

static int open_domain(ffid_fabric *fabric, ffi_info *info, ffid_domain **out, void *context)
{
	(void)fabric;
	MAY_FAIL(tp_config_of(info), "fi_domain");
	tp_domain *d = calloc(1, sizeof(*d));
	if (!d)
		return -FFI_ENOMEM;
	d->fid = (ffid_domain){.fid = {CLASS_DOMAIN, context, &domain_ops}, .ops = &domain_calls, .mr = &tp_region_calls};
	d->c = *tp_config_of(info);
	*out = &d->fid;
	return 0;
}

static int close_fabric(ffid *f)
{
	free(OF(ffid_fabric, fid, f));
	return 0;
}

static ffi_ops fabric_ops = {.size = sizeof(fabric_ops), .close = close_fabric};
static ffi_ops_fabric fabric_calls = {.size = sizeof(fabric_calls), .domain = open_domain, .trywait = tp_trywait};

EXPORT int fi_fabric(ffi_fabric_attr *attr, ffid_fabric **out, void *context)
{
	(void)attr;
	MAY_FAIL(NULL, "fi_fabric");
	ffid_fabric *f = calloc(1, sizeof(*f));
	if (!f)
		return -FFI_ENOMEM;
	*f = (ffid_fabric){.fid = {CLASS_FABRIC, context, &fabric_ops}, .ops = &fabric_calls};
	*out = f;
	return 0;
}
