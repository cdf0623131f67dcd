// The simulated providers with their known properties, and their faults.
#include "testprov.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TAGS(bits) ((bits) == 64 ? 0xaaaaaaaaaaaaaaaaull : (1ull << ((bits) - 1)))

// Sizes are the defaults of the provider if they are known, and plausible values otherwise. SIZE_MAX
// means no limit.
static const config profiles[] = {
	{.provider = "cxi", .fabric = "cxi", .domain = "cxi0", .format = 15, .address = 16, .tags = TAGS(48), .data = 8,
	 .max_message = UINT32_MAX, .inject = 192, .eager = 2048, .tx = 1024, .rx = 1024, .parts = 1,
	 .mr = FFI_MR_ENDPOINT | FFI_MR_ALLOCATED | FFI_MR_PROV_KEY},
	{.provider = "verbs;ofi_rxm", .fabric = "IB-0xfe80000000000000", .domain = "mlx5_0", .format = FFI_SOCKADDR_IN, .address = 16,
	 .tags = TAGS(64), .data = 8, .max_message = 1 << 30, .inject = 16320, .eager = 16384, .tx = 2048, .rx = 2048, .parts = 4, .whole = 1},
	{.provider = "psm3", .fabric = "IB/OPA", .domain = "mlx5_0", .format = 13, .address = 32, .tags = TAGS(60), .data = 0,
	 .max_message = UINT32_MAX, .inject = 64, .eager = 8192, .tx = SIZE_MAX, .rx = SIZE_MAX, .parts = 1, .minus = 1,
	 .key = "FI_PSM3_UUID", .caught = {SIGSEGV, SIGBUS}},
	{.provider = "efa", .fabric = "efa", .domain = "rdmap0s6-rdm", .format = 12, .address = 32, .tags = TAGS(64), .data = 4,
	 .max_message = SIZE_MAX, .inject = 0, .eager = 8192, .tx = 256, .rx = 8192, .parts = 1},
	{.provider = "opx", .fabric = "OPX-100", .domain = "hfi1_0", .format = 14, .address = 16, .tags = TAGS(64), .data = 4,
	 .max_message = UINT32_MAX, .inject = 1024, .eager = 16384, .tx = SIZE_MAX, .rx = SIZE_MAX, .parts = 1,
	 .key = "FI_OPX_UUID", .caught = {SIGSEGV, SIGINT, SIGTERM, SIGABRT}},
	{.provider = "tcp;ofi_rxm", .fabric = "TCP-IP", .domain = "eth0", .format = FFI_SOCKADDR_IN, .address = 16, .tags = TAGS(64),
	 .data = 8, .max_message = SIZE_MAX, .inject = 16320, .eager = 16384, .tx = 2048, .rx = 2048, .parts = 4, .whole = 1},
};

long tp_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// tp_linger blocks for a time, and until a byte arrives at gate unless that is 0.
void tp_linger(long milliseconds, long gate)
{
	char byte;
	if (milliseconds)
		usleep(milliseconds * 1000);
	while (gate && read(gate, &byte, 1) < 0 && errno == EINTR)
		;
}

// item finds NAME or NAME=NUMBER in a list. value may be NULL.
static int item(const char *list, const char *name, long *value)
{
	size_t n = strlen(name);
	for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		if (strncmp(at, name, n) || (at[n] && at[n] != ',' && at[n] != '='))
			continue;
		if (at[n] == '=' && value)
			*value = atol(at + n + 1);
		return 1;
	}
	return 0;
}

// tp_fault reports whether a fault is on. *value is its number, if it has one.
int tp_fault(const char *name, long *value) { return item(getenv("TESTPROV_FAULTS"), name, value); }

// tp_outcome is the result of a call whose name is a fault; otherwise TP_WORKS. It is an input or output error without a number.
long tp_outcome(const config *c, const char *call)
{
	const char *faulty = getenv("TESTPROV_FAULTY");
	long r = -EIO;
	if ((c && faulty && *faulty && !item(faulty, c->provider, NULL)) || !tp_fault(call, &r))
		return TP_WORKS;
	return r;
}

// number returns the number of a fault, usual without a number, or 0 if the fault is off.
static long number(const char *name, long usual)
{
	long n = usual;
	return tp_fault(name, &n) ? n : 0;
}

// The faults. handlers is the moment at which a provider handles SIGSEGV and SIGTERM: 1 at load, 2 when
// an endpoint opens, 3 at insert, 4 at the first send.
static void faults(config *c)
{
	c->no_directed = tp_fault("nodirected", NULL); // No receives from one address.
	c->directed_first = tp_fault("order", NULL);   // A receive from one address matches before older ones from any.
	c->dead_silent = tp_fault("silent", NULL);     // Operations with a failed peer do not complete.
	c->claim_hangs = tp_fault("claim", NULL);      // A claimed message of 8 to 16 KiB never arrives (opx before 2.6).
	c->quiet_cut = tp_fault("cut", NULL);	       // A message that is too long is truncated without an error (psm3 on sockets).
	if (tp_fault("placed", NULL)) // The completion of a truncated message has the length of the stored part.
		c->whole = 0;
	c->hang = tp_fault("hang", NULL);	       // A query of the offers takes two seconds.
	c->stale = tp_fault("stale", NULL);	       // Registrations outlive their memory, unless the environment forbids them.
	c->again = number("again", 1000);	       // Milliseconds for which a peer accepts no message.
	c->slow = number("slow", 1000);		       // Milliseconds of an insert and of the first message to a peer.
	c->peeks = number("peeks", 3);		       // Reads of the queue before the result of a peek.
	// The following calls block until a byte arrives at this descriptor:
	c->insert = number("insert", 0); // inserting an address
	c->meet = number("meet", 0);	 // the first message to a peer
	c->part = number("part", 0);	 // closing an endpoint
	c->registers = number("registers", 0);   // This descriptor gets a + for each registration, and a - for its end.
	if (tp_fault("mr_local", NULL)) // Buffers must be registered.
		c->mr |= FFI_MR_LOCAL;
	if (tp_fault("nodata", NULL)) // No completion data.
		c->data = 0;
	if (tp_fault("tags", NULL)) // Bits of a tag.
		c->tags = TAGS(number("tags", 40));
	if (tp_fault("max", NULL)) // The longest message, in bytes.
		c->max_message = number("max", 1 << 20);
	if (tp_fault("unlimited", NULL)) // Queues without a limit.
		c->tx = c->rx = SIZE_MAX;
	if (tp_fault("queues", NULL)) // Operations in the queues.
		c->tx = c->rx = number("queues", 16);
	if (tp_fault("rx", NULL)) // Receives, in contradiction to the rest.
		c->rx = number("rx", 0);
	if (tp_fault("tx", NULL)) // Sends, in contradiction to the rest.
		c->tx = number("tx", 0);
	if (tp_fault("injects", NULL)) // Bytes, for example more than the longest message.
		c->inject = number("injects", 0);
	if (c->inject > c->eager)
		c->eager = c->inject;
	// Faults after that many messages to others:
	c->late = number("late", 50); // The completion queue fails.
	c->flip = number("flip", 50); // Bytes change.
	c->lose = number("lose", 50); // Messages are lost.
	if (tp_fault("handlers", NULL)) {
		c->caught[0] = SIGSEGV;
		c->caught[1] = SIGTERM;
		c->caught[2] = c->caught[3] = 0;
		c->caught_at = number("handlers", AT_OPEN);
	}
}

// tp_configs fills in the available configurations, and returns their number.
int tp_configs(config *out, int room)
{
	const char *list = getenv("TESTPROV_PROFILE");
	int n = 0;
	for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {
		if (!item(list, profiles[i].provider, NULL))
			continue;
		int networks = 1 + tp_fault("fabrics", NULL); // Two networks that are not connected.
		for (int k = 0; k < networks && n < room; k++, n++) {
			out[n] = profiles[i];
			out[n].caught_at = AT_OPEN;
			out[n].host = 1 + k;
			if (k) {
				out[n].fabric = "another";
				out[n].domain = !strcmp(out[n].domain, "mlx5_0") ? "mlx5_1" : !strcmp(out[n].domain, "eth0") ? "eth1" : "second";
			}
			if (tp_fault("ethernet", NULL)) // psm3 on a plain interface.
				out[n].domain = "eth0";
			faults(&out[n]);
		}
	}
	return n;
}

static void leave(int s)
{
	(void)s;
	_exit(77);
}

// tp_catch handles signals as such a provider does, without a signal stack and by
// exiting.
void tp_catch(const config *c, int when)
{
	struct sigaction a;
	memset(&a, 0, sizeof(a));
	a.sa_handler = leave;
	for (int i = 0; c->caught_at == when && i < 4 && c->caught[i]; i++)
		sigaction(c->caught[i], &a, NULL);
}

static int stale;

// Providers read the environment of registration caches when they are loaded. A later change has no
// effect. With a monitor that watches the kernel, no registration is stale.
__attribute__((constructor)) static void load(void)
{
	const char *most = getenv("FI_MR_CACHE_MAX_COUNT"), *monitor = getenv("FI_MR_CACHE_MONITOR");
	int watched = monitor && ((!strcmp(monitor, "kdreg2") && !access("/dev/kdreg2", R_OK)) || !strcmp(monitor, "userfaultfd"));
	stale = !(most && !strcmp(most, "0")) && !watched;
	const char *profile = getenv("TESTPROV_PROFILE"), *efa = getenv("FI_EFA_MR_CACHE_ENABLE");
	if (item(profile, "efa", NULL) && !watched) // It has its own variable.
		stale = !efa || strcmp(efa, "0");
	config c = {.caught = {SIGSEGV, SIGTERM}};
	c.caught_at = number("handlers", AT_OPEN);
	tp_catch(&c, AT_LOAD);
	if (tp_fault("crash", NULL)) // It crashes the process when it is loaded.
		raise(SIGSEGV);
}

int tp_stale(void) { return stale; }
