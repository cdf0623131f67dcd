// Shows how a provider of libfabric handles a long message of a failed sender, without ferry. A process
// sends the message and is killed, and another one, which has probed it, receives it.
//
//	cc -o orphan orphan.c -lfabric && ./orphan PROVIDER directed|undirected
//
// directed: receives may have an address (FI_DIRECTED_RECV). Exit status 0: the receive ends with an
// error or has the message. 1: the provider is at fault, with a description. 2: the provider is not
// available. A crash also shows a fault.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

enum { LENGTH = 1 << 20, TAG = 7 };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fi_context2 context;
static char data[LENGTH];

#define MUST(call)                                                                             \
	do {                                                                                   \
		long r_ = (call);                                                              \
		if (r_ < 0) {                                                                  \
			printf("%s: %s (%ld)\n", #call, fi_strerror((int)-r_), r_);            \
			exit(1);                                                               \
		}                                                                              \
	} while (0)

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

// completion returns 0, or the error of the next completion.
static int completion(void)
{
	for (double end = now() + 5; now() < end;) {
		struct fi_cq_tagged_entry e;
		struct fi_cq_err_entry err = {0};
		long r = fi_cq_read(cq, &e, 1);
		if (r == 1)
			return 0;
		if (r == -FI_EAVAIL && fi_cq_readerr(cq, &err, 0) == 1)
			return err.err < 0 ? -err.err : err.err;
	}
	printf("no completion within five seconds\n");
	exit(1);
}

// progress progresses the endpoint for some time.
static void progress(double seconds)
{
	for (double end = now() + seconds; now() < end;)
		fi_cq_read(cq, NULL, 0);
}

static void open_endpoint(const char *provider, int directed)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->caps = FI_TAGGED | FI_MSG | FI_DIRECTED_RECV;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->fabric_attr->prov_name = strdup(provider);
	if (fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info)) {
		printf("there is no provider %s\n", provider);
		exit(2);
	}
	if (!directed) {
		info->caps &= ~(FI_DIRECTED_RECV | FI_SOURCE);
		info->rx_attr->caps &= ~(FI_DIRECTED_RECV | FI_SOURCE);
	}
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
	MUST(fi_domain(fabric, info, &domain, NULL));
	struct fi_av_attr av_attr = {.type = info->domain_attr->av_type};
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .size = 4096};
	MUST(fi_av_open(domain, &av_attr, &av, NULL));
	MUST(fi_cq_open(domain, &cq_attr, &cq, NULL));
	MUST(fi_endpoint(domain, info, &ep, NULL));
	MUST(fi_ep_bind(ep, &av->fid, 0));
	MUST(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	MUST(fi_enable(ep));
}

// to_itself sends a message to this process. ofi_rxm has a table of connections, which it frees with
// the last one and accesses afterwards. The process therefore needs a connection besides that of the
// sender, as a process of ferry has to itself since its self-test.
static void to_itself(const char *own)
{
	static struct fi_context2 rx;
	static char in[8], out[8];
	fi_addr_t self;
	long r;
	MUST(fi_av_insert(av, own, 1, &self, 0, NULL));
	MUST(fi_trecv(ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &rx));
	while ((r = fi_tsend(ep, out, 8, NULL, self, 1, &context)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	MUST(r);
	for (int i = 0; i < 2; i++)
		if ((r = completion())) {
			printf("a message to itself: %s\n", fi_strerror((int)r));
			exit(1);
		}
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	int directed = !strcmp(argv[2], "directed"), pipe[2];
	char name[512] = "", other[512];
	size_t n = sizeof(name);
	fi_addr_t peer;
	MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pipe));
	pid_t sender = fork();
	open_endpoint(argv[1], directed);
	MUST(fi_getname(&ep->fid, name, &n));
	MUST(write(pipe[!sender], name, sizeof(name)));
	MUST(read(pipe[!sender], other, sizeof(other)));
	to_itself(name);
	MUST(fi_av_insert(av, other, 1, &peer, 0, NULL));
	if (!sender) {
		long r;
		memset(data, 0x5a, LENGTH);
		while ((r = fi_tsend(ep, data, LENGTH, NULL, peer, TAG, &context)) == -FI_EAGAIN)
			fi_cq_read(cq, NULL, 0);
		MUST(r);
		progress(60);
		return 0;
	}
	struct fi_msg_tagged peek = {.addr = FI_ADDR_UNSPEC, .tag = TAG, .context = &context};
	int e;
	double end = now() + 5;
	do {
		MUST(fi_trecvmsg(ep, &peek, FI_PEEK | FI_COMPLETION));
	} while ((e = completion()) == FI_ENOMSG && now() < end);
	kill(sender, SIGKILL);
	waitpid(sender, NULL, 0);
	if (e) {
		printf("peeks do not find the message: %s\n", fi_strerror(e));
		return 1;
	}
	progress(0.2); // The network detects the failure.
	printf("a receive of %d bytes whose sender was killed: ", LENGTH);
	fflush(stdout);
	long r = fi_trecv(ep, data, LENGTH, NULL, directed ? peer : FI_ADDR_UNSPEC, TAG, 0, &context);
	e = r < 0 ? (int)-r : completion();
	for (int i = 0; !e && i < LENGTH; i++)
		if (data[i] != 0x5a) {
			printf("it succeeds, with other contents\n");
			return 1;
		}
	printf("%s\n", e ? fi_strerror(e) : "it has the message");
	return 0;
}
