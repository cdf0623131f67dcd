// The providers that this library can be, as far as is known of them, and their faults.
#include "testprov.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TAGS(bits) ((bits) == 64 ? 0xaaaaaaaaaaaaaaaaull : (1ull << ((bits) - 1)))

// Sizes of what hardware has are those of the provider's defaults where they are known,
// and plausible otherwise. No limit is SIZE_MAX.
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

// tp_linger has the caller wait: so long, and for a byte from gate, unless that is 0.
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

// tp_fault says whether a fault is on; its number is in *value, if it has one.
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

// number returns the number of a fault, usual where it has none, or 0 where it is off.
static long number(const char *name, long usual)
{
	long n = usual;
	return tp_fault(name, &n) ? n : 0;
}

// The faults. handlers is when a provider takes SIGSEGV and SIGTERM: 1 as it is loaded,
// 2 as an endpoint opens, 3 at insert, 4 at the first send.
static void faults(config *c)
{
	c->no_directed = tp_fault("nodirected", NULL); // no receives from one address
	c->directed_first = tp_fault("order", NULL);   // a receive from one address is served before older ones from any
	c->dead_silent = tp_fault("silent", NULL);     // nothing is said of what a dead peer takes along
	c->claim_hangs = tp_fault("claim", NULL);      // a claimed message of 8 to 16 KiB never comes (opx before 2.6)
	c->quiet_cut = tp_fault("cut", NULL);	       // a message that is too long is cut, and nobody told (psm3 on sockets)
	if (tp_fault("placed", NULL)) // the completion of a message that was cut has the length of what was placed
		c->whole = 0;
	c->hang = tp_fault("hang", NULL);	       // who asks what it offers waits for two seconds
	c->stale = tp_fault("stale", NULL);	       // registrations outlive their memory, unless the environment forbids them
	c->again = number("again", 1000);	       // for so many milliseconds a peer takes nothing
	c->slow = number("slow", 1000);		       // insert takes so many, and so does the first message to a peer
	c->peeks = number("peeks", 3);		       // what a peek has found is told so many reads of the queue later
	// A byte from this descriptor is waited for,
	c->insert = number("insert", 0); // when an address is taken in
	c->meet = number("meet", 0);	 // with the first message to a peer
	c->part = number("part", 0);	 // when an endpoint closes
	c->registers = number("registers", 0);   // this descriptor gets a + for each registration, and a - for its end
	if (tp_fault("mr_local", NULL)) // buffers must be registered
		c->mr |= FFI_MR_LOCAL;
	if (tp_fault("nodata", NULL)) // no completion data
		c->data = 0;
	if (tp_fault("tags", NULL)) // bits of a tag
		c->tags = TAGS(number("tags", 40));
	if (tp_fault("max", NULL)) // the longest message, in bytes
		c->max_message = number("max", 1 << 20);
	if (tp_fault("unlimited", NULL)) // queues
		c->tx = c->rx = SIZE_MAX;
	if (tp_fault("queues", NULL)) // of so many operations
		c->tx = c->rx = number("queues", 16);
	if (tp_fault("rx", NULL)) // receives: contradicts the rest
		c->rx = number("rx", 0);
	if (tp_fault("tx", NULL)) // sends, likewise
		c->tx = number("tx", 0);
	if (tp_fault("injects", NULL)) // bytes: more than a message has, say
		c->inject = number("injects", 0);
	if (c->inject > c->eager)
		c->eager = c->inject;
	// What goes wrong after so many messages to others:
	c->late = number("late", 50); // the completion queue fails
	c->flip = number("flip", 50); // bytes change on their way
	c->lose = number("lose", 50); // messages are lost
	if (tp_fault("handlers", NULL)) {
		c->caught[0] = SIGSEGV;
		c->caught[1] = SIGTERM;
		c->caught[2] = c->caught[3] = 0;
		c->caught_at = number("handlers", AT_OPEN);
	}
}

// tp_configs fills in what is there, and returns how many entries.
int tp_configs(config *out, int room)
{
	const char *list = getenv("TESTPROV_PROFILE");
	int n = 0;
	for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++) {
		if (!item(list, profiles[i].provider, NULL))
			continue;
		int networks = 1 + tp_fault("fabrics", NULL); // two that have no way to each other
		for (int k = 0; k < networks && n < room; k++, n++) {
			out[n] = profiles[i];
			out[n].caught_at = AT_OPEN;
			out[n].host = 1 + k;
			if (k) {
				out[n].fabric = "another";
				out[n].domain = !strcmp(out[n].domain, "mlx5_0") ? "mlx5_1" : !strcmp(out[n].domain, "eth0") ? "eth1" : "second";
			}
			if (tp_fault("ethernet", NULL)) // psm3 on a plain interface
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

// tp_catch takes signals as such a provider does: without a stack of their own, and to
// exit on them.
void tp_catch(const config *c, int when)
{
	struct sigaction a;
	memset(&a, 0, sizeof(a));
	a.sa_handler = leave;
	for (int i = 0; c->caught_at == when && i < 4 && c->caught[i]; i++)
		sigaction(c->caught[i], &a, NULL);
}

static int stale;

// Providers read the environment of registration caches as they are loaded: whoever sets
// it later is too late. A monitor that sees what the kernel is asked for lets nothing get stale.
__attribute__((constructor)) static void load(void)
{
	const char *most = getenv("FI_MR_CACHE_MAX_COUNT"), *monitor = getenv("FI_MR_CACHE_MONITOR");
	int watched = monitor && ((!strcmp(monitor, "kdreg2") && !access("/dev/kdreg2", R_OK)) || !strcmp(monitor, "userfaultfd"));
	stale = !(most && !strcmp(most, "0")) && !watched;
	const char *profile = getenv("TESTPROV_PROFILE"), *efa = getenv("FI_EFA_MR_CACHE_ENABLE");
	if (item(profile, "efa", NULL) && !watched) // it has a switch of its own
		stale = !efa || strcmp(efa, "0");
	config c = {.caught = {SIGSEGV, SIGTERM}};
	c.caught_at = number("handlers", AT_OPEN);
	tp_catch(&c, AT_LOAD);
	if (tp_fault("crash", NULL)) // it takes the process down as it is loaded
		raise(SIGSEGV);
}

int tp_stale(void) { return stale; }
