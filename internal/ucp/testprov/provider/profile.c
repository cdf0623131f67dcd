// The offers of this library, which the environment selects, and its faults.
//
// TESTUCP_CLASSES lists the available classes ("tcp,shm"). TESTUCP_VERSION is the version.
// TESTUCP_FAULTS lists faults, each NAME or NAME=NUMBER. They apply to the classes in TESTUCP_FAULTY, or
// to all without it. The name of a call is a fault, too. The call fails with an input or output error, with NAME=STATUS
// with that status, and with NAME=0 it reports success and returns nothing.
#include "testprov.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const tu_class tu_classes[CLASSES] = {
	{"rc", "rc_mlx5", "mlx5_0:1", 1}, {"dc", "dc_mlx5", "mlx5_0:1", 1}, {"ud", "ud_verbs", "mlx5_0:1", 1},
	{"tcp", "tcp", "eth0", 1},	  {"shm", "posix", "memory", 0},    {"cuda", "cuda_ipc", "cuda", 0},
};

static const char *setting(const char *name, const char *usual)
{
	const char *v = getenv(name);
	return v && *v ? v : usual;
}

// tu_named finds NAME or NAME=NUMBER in a list. value may be NULL.
int tu_named(const char *list, const char *name, long *value)
{
	size_t n = strlen(name);
	for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		if (strncmp(at, name, n) || (at[n] && at[n] != ',' && at[n] != '='))
			continue;
		if (value)
			*value = at[n] == '=' ? atol(at + n + 1) : NO_NUMBER;
		return 1;
	}
	return 0;
}

// tu_fault reports whether a context has a fault, with its number in *value. Without a context the class does not count.
int tu_fault(const fucp_context_t *c, const char *name, long *value)
{
	const char *faulty = getenv("TESTUCP_FAULTY");
	if (!tu_named(getenv("TESTUCP_FAULTS"), name, value))
		return 0;
	for (int i = 0; i < CLASSES; i++)
		if (!c || (c->has[i] && (!faulty || !*faulty || tu_named(faulty, tu_classes[i].name, NULL))))
			return 1;
	return 0;
}

// tu_outcome is the status with which a call fails, or 0 if it returns nothing; otherwise TU_WORKS.
long tu_outcome(const fucp_context_t *c, const char *call)
{
	long status;
	if (!tu_fault(c, call, &status))
		return TU_WORKS;
	return status == NO_NUMBER ? FUCS_ERR_IO_ERROR : status;
}

EXPORT void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
	*major = *minor = *release = 0;
	sscanf(setting("TESTUCP_VERSION", "1.18.1"), "%u.%u.%u", major, minor, release);
}

EXPORT fucs_status_t ucp_config_read(const char *prefix, const char *file, fucp_config_t **out)
{
	(void)prefix, (void)file;
	MAY_FAIL(NULL);
	fucp_config_t *c = calloc(1, sizeof(*c));
	if (!c)
		return FUCS_ERR_NO_MEMORY;
	snprintf(c->tls, sizeof(c->tls), "%s", setting("UCX_TLS", "all"));
	snprintf(c->devices, sizeof(c->devices), "%s", setting("UCX_NET_DEVICES", "all"));
	c->packet = PACKET;
	*out = c;
	return FUCS_OK;
}

EXPORT void ucp_config_release(fucp_config_t *c) { free(c); }

EXPORT fucs_status_t ucp_config_modify(fucp_config_t *c, const char *name, const char *value)
{
	MAY_FAIL(NULL);
	if (!strcmp(name, "TLS"))
		snprintf(c->tls, sizeof(c->tls), "%s", value);
	else if (!strcmp(name, "NET_DEVICES"))
		snprintf(c->devices, sizeof(c->devices), "%s", value);
	else if (!strcmp(name, "RNDV_THRESH"))
		c->packet = atol(value) - 1;
	else
		return FUCS_ERR_UNSUPPORTED;
	return FUCS_OK;
}

EXPORT fucs_status_t ucp_init_version(unsigned major, unsigned minor, const fucp_params_t *params, const fucp_config_t *config, fucp_context_t **out)
{
	(void)major, (void)minor, (void)params;
	MAY_FAIL(NULL);
	fucp_context_t *c = calloc(1, sizeof(*c));
	if (!c)
		return FUCS_ERR_NO_MEMORY;
	c->packet = config->packet;
	for (int i = 0; i < CLASSES; i++) {
		const tu_class *k = &tu_classes[i];
		c->has[i] = tu_named(setting("TESTUCP_CLASSES", "tcp,shm"), k->name, NULL) &&
			    (tu_named(config->tls, "all", NULL) || tu_named(config->tls, k->name, NULL)) &&
			    (!k->network || tu_named(config->devices, "all", NULL) || tu_named(config->devices, k->device, NULL));
		c->classes |= c->has[i] << i;
	}
	if (!c->classes) {
		free(c);
		return FUCS_ERR_NO_DEVICE;
	}
	*out = c;
	return FUCS_OK;
}

EXPORT void ucp_cleanup(fucp_context_t *c)
{
	tu_unregister(c, NULL, (char *)UINTPTR_MAX);
	free(c);
}

EXPORT void ucp_context_print_info(const fucp_context_t *c, FILE *to)
{
	if (tu_outcome(c, __func__) != TU_WORKS)
		return;
	fprintf(to, "#\n# UCP context\n#\n#      resource 0  :  md 0  dev 0  flags -- self/memory0\n");
	for (int i = 0; i < CLASSES; i++)
		if (c->has[i])
			fprintf(to, "#      resource %d  :  md 0  dev 0  flags -- %s/%s\n", i + 1, tu_classes[i].transport, tu_classes[i].device);
}

EXPORT const char *ucs_status_string(fucs_status_t status)
{
	if (tu_outcome(NULL, __func__) != TU_WORKS)
		return NULL;
	switch (status) {
	case FUCS_ERR_IO_ERROR:
		return "Input/output error";
	case FUCS_ERR_NO_MEMORY:
		return "Out of memory";
	case FUCS_ERR_UNREACHABLE:
		return "Destination is unreachable";
	case FUCS_ERR_MESSAGE_TRUNCATED:
		return "Message truncated";
	case FUCS_ERR_NO_DEVICE:
		return "No such device";
	case FUCS_ERR_CANCELED:
		return "Request canceled";
	case FUCS_ERR_CONNECTION_RESET:
		return "Connection reset by remote peer";
	case FUCS_ERR_ENDPOINT_TIMEOUT:
		return "Endpoint timeout";
	}
	return "Unknown error";
}
