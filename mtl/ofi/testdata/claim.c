// Shows how a provider of libfabric handles unexpected messages and matched probes, without ferry.
// Two endpoints are in one process. One sends messages with a tag that the other does not receive,
// followed by one with a tag that it receives. Then one sends, and the other peeks with FI_CLAIM and
// receives the claimed message.
//
//	cc -o claim claim.c -lfabric && ./claim PROVIDER [ROUNDS]
//
// Exit status 0: all messages arrived. 1: the provider is at fault, with a description. 2: the
// provider is not available. A crash also shows a fault.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct {
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t to; // Address of the other endpoint.
} side[2];

static void die(const char *what, long code)
{
	printf("%s: %s (%ld)\n", what, fi_strerror(code < 0 ? -code : code), code);
	exit(1);
}

#define MUST(call)                      \
	do {                            \
		long r = (call);        \
		if (r < 0)              \
			die(#call, r);  \
	} while (0)

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

// wait returns 0, or the error of the completion of side s. The other side progresses, too. Five
// seconds without a completion are a fault.
static int wait_for(int s, struct fi_cq_tagged_entry *got)
{
	for (double end = now() + 5; now() < end;) {
		struct fi_cq_tagged_entry e;
		struct fi_cq_err_entry err = {0};
		long r = fi_cq_read(side[s].cq, &e, 1);
		if (r == 1) {
			*got = e;
			return 0;
		}
		if (r == -FI_EAVAIL && fi_cq_readerr(side[s].cq, &err, 0) == 1)
			return err.err < 0 ? -err.err : err.err;
		fi_cq_read(side[1 - s].cq, NULL, 0);
	}
	printf("no completion within five seconds\n");
	exit(1);
}

static void send8(uint64_t tag)
{
	static struct fi_context2 all[64];
	static int next;
	static char eight[8];
	long r;
	while ((r = fi_tsend(side[0].ep, eight, 8, NULL, side[0].to, tag, &all[next++ % 64])) == -FI_EAGAIN)
		fi_cq_read(side[0].cq, NULL, 0), fi_cq_read(side[1].cq, NULL, 0);
	MUST(r);
}

// behind sends one message behind others that are received only after it.
static void behind(void)
{
	enum { others = 20 };
	char in[8];
	struct fi_context2 c;
	struct fi_cq_tagged_entry got;
	MUST(fi_trecv(side[1].ep, in, 8, NULL, FI_ADDR_UNSPEC, 2, 0, &c));
	for (int i = 0; i < others; i++)
		send8(1);
	send8(2);
	printf("behind %d messages that nobody has received yet: ", others);
	fflush(stdout);
	int e = wait_for(1, &got);
	if (e)
		die("the receive completes with", e);
	for (int i = 0; i < others; i++) {
		MUST(fi_trecv(side[1].ep, in, 8, NULL, FI_ADDR_UNSPEC, 1, 0, &c));
		if ((e = wait_for(1, &got)))
			die("a receive completes with", e);
	}
	for (int i = 0; i <= others; i++)
		if ((e = wait_for(0, &got)))
			die("a send completes with", e);
	printf("it arrives; ");
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	int rounds = argc > 2 ? atoi(argv[2]) : 100;
	struct fi_info *hints = fi_allocinfo(), *info;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->caps = FI_TAGGED | FI_MSG | FI_DIRECTED_RECV;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->fabric_attr->prov_name = strdup(argv[1]);
	if (fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info)) {
		printf("there is no provider %s\n", argv[1]);
		return 2;
	}
	MUST(fi_fabric(info->fabric_attr, &fabric, NULL));
	MUST(fi_domain(fabric, info, &domain, NULL));
	for (int s = 0; s < 2; s++) {
		struct fi_av_attr av = {.type = info->domain_attr->av_type};
		struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED, .size = 4096};
		struct fi_info *own = fi_dupinfo(info);
		MUST(fi_av_open(domain, &av, &side[s].av, NULL));
		MUST(fi_cq_open(domain, &cq, &side[s].cq, NULL));
		MUST(fi_endpoint(domain, own, &side[s].ep, NULL));
		MUST(fi_ep_bind(side[s].ep, &side[s].av->fid, 0));
		MUST(fi_ep_bind(side[s].ep, &side[s].cq->fid, FI_TRANSMIT | FI_RECV));
		MUST(fi_enable(side[s].ep));
	}
	for (int s = 0; s < 2; s++) {
		char name[256];
		size_t n = sizeof(name);
		MUST(fi_getname(&side[s].ep->fid, name, &n));
		MUST(fi_av_insert(side[1 - s].av, name, 1, &side[1 - s].to, 0, NULL));
	}
	behind();
	static const size_t lengths[] = {8, 3000, 100000, 0};
	for (int i = 0; i < rounds; i++) {
		// Three messages. Two are claimed. Then the third is received, followed by the
		// claimed ones in reverse order.
		size_t n = lengths[i % 4];
		static char out[3][100000], in[3][100000];
		static struct fi_context2 tx[3], rx[3];
		struct fi_cq_tagged_entry got;
		int e;
		for (int k = 0; k < 3; k++) {
			long r;
			memset(out[k], 3 * i + k, n);
			while ((r = fi_tsend(side[0].ep, out[k], n, NULL, side[0].to, 7, &tx[k])) == -FI_EAGAIN)
				fi_cq_read(side[0].cq, NULL, 0), fi_cq_read(side[1].cq, NULL, 0);
			MUST(r);
		}
		struct fi_msg_tagged m[2];
		for (int k = 0; k < 2; k++) {
			m[k] = (struct fi_msg_tagged){.addr = FI_ADDR_UNSPEC, .tag = 7, .context = &rx[k]};
			double end = now() + 5;
			for (;;) {
				MUST(fi_trecvmsg(side[1].ep, &m[k], FI_PEEK | FI_CLAIM | FI_COMPLETION));
				if (!(e = wait_for(1, &got)))
					break;
				if (e != FI_ENOMSG)
					printf("round %d, %zu bytes: ", i, n), die("a peek with FI_CLAIM completes with", e);
				if (now() > end) {
					printf("round %d: %zu bytes were sent, and five seconds of peeks do not find them\n", i, n);
					return 1;
				}
				fi_cq_read(side[0].cq, NULL, 0);
			}
			if (got.len != n) {
				printf("round %d: %zu bytes were sent, and a peek says %zu\n", i, n, got.len);
				return 1;
			}
		}
		for (int k = 2; k >= 0; k--) {
			struct iovec iov = {in[k], n};
			if (k == 2) {
				MUST(fi_trecv(side[1].ep, in[k], n, NULL, FI_ADDR_UNSPEC, 7, 0, &rx[k]));
			} else {
				m[k].msg_iov = &iov;
				m[k].iov_count = n > 0;
				MUST(fi_trecvmsg(side[1].ep, &m[k], FI_CLAIM | FI_COMPLETION));
			}
			if ((e = wait_for(1, &got)))
				printf("round %d, %zu bytes, message %d: ", i, n, k), die("its receive completes with", e);
			if (memcmp(in[k], out[k], n)) {
				printf("round %d: %zu bytes of message %d arrived changed\n", i, n, k);
				return 1;
			}
		}
		for (int k = 0; k < 3; k++)
			if ((e = wait_for(0, &got)))
				die("a send completes with", e);
	}
	printf("with %s, and in %d rounds all that was claimed arrived\n", argv[1], rounds);
	return 0;
}
