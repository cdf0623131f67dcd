// Loading UCX.
#include "library.h"
#include "shim.h"

#include <dlfcn.h>
#include <stdlib.h>

// ferry_ucp_load loads the library at path. The dynamic linker resolves a name without a slash. A library in use is never unloaded, because it leaves
// threads and exit handlers.
int ferry_ucp_load(const char *path, ferry_ucp_lib **out, char *why, size_t room)
{
	void *h = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	if (!h) {
		const char *text = dlerror();
		snprintf(why, room, "%s", text ? text : "dlopen gives no reason");
		return FUCS_ERR_UNSUPPORTED;
	}
	ferry_ucp_lib *lib = calloc(1, sizeof(*lib));
	if (!lib) {
		snprintf(why, room, "no memory");
		return FUCS_ERR_NO_MEMORY;
	}
#define CALL(name) {#name, (void **)&lib->f.name}
	const struct { const char *name; void **at; } need[] = {
		CALL(ucp_get_version), CALL(ucp_config_read), CALL(ucp_config_release), CALL(ucp_config_modify),
		CALL(ucp_init_version), CALL(ucp_cleanup), CALL(ucp_context_print_info),
		CALL(ucp_worker_create), CALL(ucp_worker_destroy), CALL(ucp_worker_get_address), CALL(ucp_worker_release_address),
		CALL(ucp_worker_progress), CALL(ucp_worker_get_efd), CALL(ucp_worker_arm),
		CALL(ucp_ep_create), CALL(ucp_ep_close_nbx), CALL(ucp_ep_flush_nbx),
		CALL(ucp_tag_send_nbx), CALL(ucp_tag_send_sync_nbx), CALL(ucp_tag_recv_nbx), CALL(ucp_tag_probe_nb), CALL(ucp_tag_msg_recv_nbx),
		CALL(ucp_dt_create_generic), CALL(ucp_request_cancel), CALL(ucp_request_free), CALL(ucs_status_string),
		CALL(ucm_set_external_event), CALL(ucm_vm_munmap),
	};
#undef CALL
	for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		*need[i].at = dlsym(h, need[i].name);
		if (!*need[i].at) {
			snprintf(why, room, "it has no %s", need[i].name);
			free(lib);
			dlclose(h); // Its code was not called.
			return FUCS_ERR_UNSUPPORTED;
		}
	}
	int r = ferry_ucp_cutting(lib);
	if (!r && !lib->cutting)
		r = FERRY_UCP_NO_RESULT;
	if (r) {
		const char *text = r == FERRY_UCP_NO_RESULT ? "success without a result" : lib->f.ucs_status_string(r);
		snprintf(why, room, "ucp_dt_create_generic: %s (%d)", text ? text : "no text", r);
		free(lib);
		return r;
	}
	// It must precede the first context. The registration cache then does not patch this process, and ferry_ucp_changes notifies it
	// of unmapped memory.
	lib->f.ucm_set_external_event(FUCM_EVENT_VM_MAPPED | FUCM_EVENT_VM_UNMAPPED | FUCM_EVENT_MEM_TYPE_ALLOC | FUCM_EVENT_MEM_TYPE_FREE);
	*out = lib;
	return 0;
}

void ferry_ucp_version(ferry_ucp_lib *lib, unsigned *major, unsigned *minor, unsigned *release)
{
	lib->f.ucp_get_version(major, minor, release);
}

const char *ferry_ucp_error(ferry_ucp_lib *lib, int code) { return lib->f.ucs_status_string(code); }
