// The offers of the library: fi_getinfo and related functions.
#include "testprov.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

// An ffi_info with all of its parts in one allocation.
typedef struct all {
	ffi_info info; // It must be the first field.
	ffi_tx_attr tx;
	ffi_rx_attr rx;
	ffi_ep_attr ep;
	ffi_domain_attr domain;
	ffi_fabric_attr fabric;
	struct sockaddr_in address;
	config c;
} all;

const config *tp_config_of(const ffi_info *info) { return &((const all *)info)->c; }

EXPORT uint32_t fi_version(void)
{
	unsigned major = 2, minor = 2;
	const char *v = getenv("TESTPROV_VERSION");
	if (v)
		sscanf(v, "%u.%u", &major, &minor);
	return FFI_VERSION(major, minor);
}

EXPORT const char *fi_strerror(int code)
{
	if (tp_outcome(NULL, "fi_strerror") != TP_WORKS)
		return NULL;
	switch (code) {
	case FFI_EAVAIL: return "Error available";
	case FFI_ETRUNC: return "Truncation error";
	case FFI_EOTHER: return "Unspecified error";
	}
	return strerror(code);
}

static char *copy(const char *s) { return s ? strdup(s) : NULL; }

static void point(all *a)
{
	a->info.tx_attr = &a->tx;
	a->info.rx_attr = &a->rx;
	a->info.ep_attr = &a->ep;
	a->info.domain_attr = &a->domain;
	a->info.fabric_attr = &a->fabric;
	if (a->info.src_addr)
		a->info.src_addr = &a->address;
}

static ffi_info *duplicate(const ffi_info *info)
{
	all *a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	if (info)
		*a = *(const all *)info;
	a->info.next = NULL;
	point(a);
	a->domain.name = copy(a->domain.name);
	a->fabric.name = copy(a->fabric.name);
	a->fabric.prov_name = copy(a->fabric.prov_name);
	return &a->info;
}

EXPORT ffi_info *fi_dupinfo(const ffi_info *info) { return tp_outcome(NULL, "fi_dupinfo") == TP_WORKS ? duplicate(info) : NULL; }

EXPORT void fi_freeinfo(ffi_info *info)
{
	while (info) {
		ffi_info *next = info->next;
		free(info->domain_attr->name);
		free(info->fabric_attr->name);
		free(info->fabric_attr->prov_name);
		free(info);
		info = next;
	}
}

// entry describes a provider. It returns NULL without memory.
static all *entry_of(const config *c)
{
	all *a = (all *)duplicate(NULL);
	if (!a)
		return NULL;
	a->c = *c;
	a->info.caps = FFI_TAGGED | FFI_MSG | FFI_LOCAL_COMM | FFI_REMOTE_COMM | (c->no_directed ? 0 : FFI_DIRECTED_RECV | FFI_SOURCE);
	a->info.mode = FFI_CONTEXT;
	a->info.addr_format = c->format;
	if (c->format == FFI_SOCKADDR_IN) {
		a->address.sin_family = AF_INET;
		a->address.sin_addr.s_addr = htonl(0xc6336400 + c->host); // 198.51.100.0/24 is for examples.
		a->info.src_addr = &a->address;
		a->info.src_addrlen = sizeof(a->address);
	}
	a->tx = (ffi_tx_attr){.caps = a->info.caps, .msg_order = FFI_ORDER_SAS, .inject_size = c->inject, .size = c->tx};
	a->rx = (ffi_rx_attr){.caps = a->info.caps, .msg_order = FFI_ORDER_SAS, .size = c->rx, .iov_limit = c->parts};
	a->ep = (ffi_ep_attr){.type = FFI_EP_RDM, .max_msg_size = c->max_message, .mem_tag_format = c->tags};
	a->domain = (ffi_domain_attr){.name = copy(c->domain), .threading = FFI_THREAD_DOMAIN, .control_progress = FFI_PROGRESS_MANUAL,
		.data_progress = FFI_PROGRESS_MANUAL, .resource_mgmt = FFI_RM_ENABLED, .cq_data_size = c->data, .mr_mode = c->mr,
		.caps = FFI_LOCAL_COMM | FFI_REMOTE_COMM};
	a->fabric = (ffi_fabric_attr){.name = copy(c->fabric), .prov_name = copy(c->provider)};
	return a;
}

// asked reports whether the hints request a provider, by its name or by that of its base
// provider.
static int asked(const ffi_info *hints, const config *c)
{
	const char *name = hints && hints->fabric_attr ? hints->fabric_attr->prov_name : NULL;
	size_t n = name ? strlen(name) : 0;
	return !name || !strcasecmp(name, c->provider) || (!strncasecmp(name, c->provider, n) && c->provider[n] == ';');
}

static int add(ffi_info ***end, const config *c)
{
	all *a = entry_of(c);
	if (!a)
		return -FFI_ENOMEM;
	**end = &a->info;
	*end = &a->info.next;
	return 0;
}

// names lists the providers and their layers.
static int names(const config *c, int n, ffi_info ***end)
{
	int layered = 0, r = 0;
	for (int i = 0; i < n && !r; i++) {
		config one = c[i];
		char lower[32];
		snprintf(lower, sizeof(lower), "%s", one.provider);
		layered |= !!strchr(lower, ';');
		lower[strcspn(lower, ";")] = 0;
		one.provider = lower;
		r = add(end, &one);
	}
	config rxm = {.provider = "ofi_rxm", .fabric = "", .domain = ""};
	return r || !layered ? r : add(end, &rxm);
}

EXPORT int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags, const ffi_info *hints, ffi_info **out)
{
	(void)version, (void)node, (void)service;
	MAY_FAIL(NULL, "fi_getinfo");
	config c[16];
	int n = tp_configs(c, 16), r = 0;
	ffi_info *list = NULL, **end = &list;
	if (flags & FFI_PROV_ATTR_ONLY)
		r = names(c, n, &end);
	for (int i = 0; !(flags & FFI_PROV_ATTR_ONLY) && i < n && !r; i++) {
		if (!asked(hints, &c[i]))
			continue;
		if (c[i].hang)
			sleep(2);
		if (hints && (hints->caps & FFI_DIRECTED_RECV) && c[i].no_directed)
			continue;
		if (hints && (c[i].mr & ~hints->domain_attr->mr_mode))
			continue;
		r = add(&end, &c[i]);
		// psm3 has completion data only on request, and fewer tag bits then.
		if (!r && !strcmp(c[i].provider, "psm3") && hints && hints->domain_attr->cq_data_size && !tp_fault("nodata", NULL)) {
			c[i].data = 4;
			r = add(&end, &c[i]);
		}
	}
	if (!r && !list)
		r = -FFI_ENODATA;
	if (r)
		fi_freeinfo(list);
	else if (tp_fault("incomplete", NULL)) // The first entry lacks a part.
		list->ep_attr = NULL;
	*out = r ? NULL : list;
	return r;
}
