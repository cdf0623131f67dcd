// Loading libfabric, and the lists of its providers.
#include "library.h"
#include "shim.h"
#include "signals.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ferry_load loads the library at path. The dynamic linker resolves a name without a slash. A library in use is never
// unloaded, because providers leave threads and exit handlers.
int ferry_load(const char *path, ferry_lib **out, char *why, size_t room)
{
	ferry_signals kept;
	ferry_keep_signals(&kept);
	ferry_guard(path, "was loaded");
	void *h = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	ferry_unguard();
	ferry_give_back_signals(&kept);
	if (!h) {
		const char *text = dlerror();
		snprintf(why, room, "%s", text ? text : "dlopen gives no reason");
		return -FFI_ENODATA;
	}
	ferry_lib *lib = calloc(1, sizeof(*lib));
	if (!lib || !(lib->path = strdup(path))) {
		free(lib);
		snprintf(why, room, "no memory");
		return -FFI_ENOMEM;
	}
#define CALL(name) {#name, (void **)&lib->f.name}
	const struct { const char *name; void **at; } need[] = {
		CALL(fi_getinfo), CALL(fi_freeinfo), CALL(fi_dupinfo), CALL(fi_fabric), CALL(fi_version), CALL(fi_strerror),
	};
#undef CALL
	for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		*need[i].at = dlsym(h, need[i].name);
		if (!*need[i].at) {
			snprintf(why, room, "it has no %s", need[i].name);
			free(lib->path);
			free(lib);
			dlclose(h); // Its code was not called.
			return -FFI_ENODATA;
		}
	}
	*out = lib;
	return 0;
}

uint32_t ferry_version(ferry_lib *lib) { return lib->f.fi_version(); }

const char *ferry_error(ferry_lib *lib, int code) { return lib->f.fi_strerror(code < 0 ? -code : code); }

// complete reports whether an entry has all parts that ferry reads.
static int complete(const ffi_info *i)
{
	return i->tx_attr && i->rx_attr && i->ep_attr && i->domain_attr && i->fabric_attr && i->fabric_attr->prov_name;
}

// drop_incomplete removes incomplete entries from a list. It leaks them, because fi_freeinfo may expect the missing parts.
static void drop_incomplete(ffi_info **at)
{
	while (*at)
		if (complete(*at))
			at = &(*at)->next;
		else
			*at = (*at)->next;
}

// getinfo calls fi_getinfo, which may initialize the providers.
static int getinfo(ferry_lib *lib, uint64_t flags, const ffi_info *hints, void **list)
{
	ferry_signals kept;
	ferry_keep_signals(&kept);
	ffi_info *found = NULL;
	ferry_guard(lib->path, "started its providers");
	int r = lib->f.fi_getinfo(FFI_VERSION(1, 17), NULL, NULL, flags, hints, &found);
	ferry_unguard();
	ferry_give_back_signals(&kept);
	if (r)
		found = NULL;
	drop_incomplete(&found);
	*list = found;
	return r;
}

// infos lists the entries with the capabilities more, and with data bytes of completion data.
static int infos(ferry_lib *lib, const char *provider, uint64_t more, size_t data, int mr, void **list, const char **step)
{
	*step = "fi_dupinfo";
	ffi_info *hints = lib->f.fi_dupinfo(NULL);
	if (!hints)
		return -FFI_ENOMEM;
	*step = "fi_getinfo";
	hints->mode = FFI_CONTEXT | FFI_CONTEXT2;
	hints->caps = FFI_TAGGED | FFI_MSG | more;
	hints->ep_attr->type = FFI_EP_RDM;
	hints->domain_attr->threading = FFI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = FFI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FFI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FFI_RM_ENABLED;
	hints->domain_attr->cq_data_size = data;
	// Peers don't access registered memory, so these modes cost nothing. Some providers require them.
	hints->domain_attr->mr_mode = FFI_MR_VIRT_ADDR | FFI_MR_ALLOCATED | FFI_MR_PROV_KEY | FFI_MR_ENDPOINT | mr;
	hints->tx_attr->msg_order = FFI_ORDER_SAS;
	hints->rx_attr->msg_order = FFI_ORDER_SAS;
	if (provider && !(hints->fabric_attr->prov_name = strdup(provider))) {
		lib->f.fi_freeinfo(hints);
		return -FFI_ENOMEM;
	}
	int r = getinfo(lib, 0, hints, list);
	lib->f.fi_freeinfo(hints);
	return r;
}

// same compares names of which either may be NULL.
static int same(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

// offers reports whether a provider on a domain is in a list.
static int offers(const ffi_info *list, const ffi_info *what)
{
	for (; list; list = list->next)
		if (!strcmp(list->fabric_attr->prov_name, what->fabric_attr->prov_name) && same(list->domain_attr->name, what->domain_attr->name))
			return 1;
	return 0;
}

// add appends a list to another. With mr it drops entries that don't require registered buffers, and those of which the first list
// has a variant without that requirement.
static void add(ferry_lib *lib, ffi_info **all, ffi_info *more, int mr)
{
	ffi_info **end = all, *before = *all;
	while (*end)
		end = &(*end)->next;
	for (ffi_info *next; more; more = next) {
		next = more->next;
		more->next = NULL;
		if (mr && (!(more->domain_attr->mr_mode & FFI_MR_LOCAL) || offers(before, more))) {
			lib->f.fi_freeinfo(more);
			continue;
		}
		*end = more;
		end = &more->next;
	}
}

// ferry_infos lists the entries of one provider, or of all for NULL, that carry tagged and untagged messages between any processes of a
// job. Entries with completion data and receives from one address come first, followed by entries without that condition, which may
// repeat them, and by those that require registered buffers. Providers report each of these only on request.
int ferry_infos(ferry_lib *lib, const char *provider, void **list, const char **step)
{
	ffi_info *all = NULL;
	for (int i = 0; i < 4; i++) {
		void *found = NULL;
		int mr = i < 2 ? 0 : FFI_MR_LOCAL;
		int r = infos(lib, provider, i % 2 ? 0 : FFI_DIRECTED_RECV, i % 2 ? 0 : sizeof(uint32_t), mr, &found, step);
		if (r && r != -FFI_ENODATA) {
			ferry_free_infos(lib, all);
			return r;
		}
		add(lib, &all, found, mr);
	}
	*list = all;
	return all ? 0 : -FFI_ENODATA;
}

// ferry_providers lists the names of the library's providers. Some providers without a device are missing, because they withdraw.
int ferry_providers(ferry_lib *lib, void **list)
{
	return getinfo(lib, FFI_PROV_ATTR_ONLY, NULL, list);
}

// ferry_next_info describes the entry at *at and advances *at. It returns 0 at the end. The list owns the strings.
int ferry_next_info(void **at, ferry_info *out)
{
	const ffi_info *i = *at;
	if (!i)
		return 0;
	memset(out, 0, sizeof(*out));
	out->provider = i->fabric_attr->prov_name;
	out->fabric = i->fabric_attr->name;
	out->domain = i->domain_attr->name;
	out->tag_format = i->ep_attr->mem_tag_format;
	out->max_message = i->ep_attr->max_msg_size;
	out->inject = i->tx_attr->inject_size;
	out->cq_data_bytes = i->domain_attr->cq_data_size;
	out->tx_size = i->tx_attr->size;
	out->rx_size = i->rx_attr->size;
	out->rx_parts = i->rx_attr->iov_limit;
	out->address_format = i->addr_format;
	out->address = i->src_addr;
	out->address_bytes = i->src_addr ? i->src_addrlen : 0;
	out->local_only = (i->domain_attr->caps & FFI_LOCAL_COMM) && !(i->domain_attr->caps & FFI_REMOTE_COMM);
	out->directed = !!(i->caps & FFI_DIRECTED_RECV);
	out->registers = !!(i->domain_attr->mr_mode & FFI_MR_LOCAL);
	if (i->nic && i->nic->bus_attr && i->nic->bus_attr->bus_type == FFI_BUS_PCI) {
		out->has_pci = 1;
		out->pci_domain = i->nic->bus_attr->attr.pci.domain_id;
		out->pci_bus = i->nic->bus_attr->attr.pci.bus_id;
		out->pci_device = i->nic->bus_attr->attr.pci.device_id;
		out->pci_function = i->nic->bus_attr->attr.pci.function_id;
	}
	out->raw = i;
	*at = i->next;
	return 1;
}

void ferry_free_infos(ferry_lib *lib, void *list)
{
	if (list)
		lib->f.fi_freeinfo(list);
}
