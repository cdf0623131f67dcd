/* Micro-benchmarks of an MPI library through mpi.h, of sockets and of OpenMP, beside which
 * those of `ferry bench` are judged. The loops, buffers and windows are the same
 * there (cmd/ferry/internal/bench), and follow the OSU micro-benchmarks. */
#ifndef PEER_H
#define PEER_H

#include <stddef.h>

enum { WINDOW = 64 }; /* messages in flight, as in OSU's */

struct options {
    const char *program; /* this one, as it was called */
    const char *bench;
    size_t size;    /* bytes of a message; of grow the number of added processes */
    size_t min, max;
    int iterations; /* timed */
    int warmup;     /* before, not timed */
    int rank, ranks;
    int hop; /* take the raw hop */
    int threads; /* of each rank, in pairs; 0: ranks are paired */
    int streams; /* a stream for each pair of threads, in place of a dup */
};

/* parse reads a program's arguments; rank and ranks are not among them. Rank 0 prints
 * a line of JSON for each size, doubling from min to max, with the names that `ferry
 * bench --format json` uses. With --hop the raw hop between ranks 0 and 1 is taken
 * before and after each, of which the larger is printed. */
struct options parse(int argc, char **argv);

/* A benchmark returns its figure in the unit of the table in peer.c. Only rank
 * 0's counts. */
typedef double benchmark(const struct options *o);

benchmark latency, multi_latency, bandwidth, bidirectional, rate, match;
benchmark paired_rate; /* rate with threads */
benchmark barrier, collective, overlap, dup_comm, idle, grow, ring;
benchmark agree, shrink_comm, recover;

/* mean returns the mean over all ranks, at rank 0. */
double mean(const struct options *o, double mine);

/* memory prints rows of its own. */
void memory(const struct options *o);

/* startup prints rows of its own. MPI is not initialized before it. */
void startup(struct options *o);

/* resident reads, in KiB, the private memory of this process, and its share of everything. */
void resident(double *private, double *share);

/* shared_memory returns the use of /dev/shm, in KiB. */
double shared_memory(void);

/* row prints a line of JSON for figure o->bench followed by what. */
void row(const struct options *o, const char *what, size_t size, const char *unit, double figure, double hop);

/* buffer returns page-aligned memory that was written to. It ends the job when
 * there is none. */
void *buffer(size_t size);

/* seconds is the time of a clock that never goes back. */
double seconds(void);

/* bind_to gives the calling thread a processor, the n-th of those that it may use. */
void bind_to(int n);

/* fail ends the whole job with a message. Each program has its own. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* hop_ns measures the time of one way in the cache line at shared, where both ranks
 * 0 and 1, or their process, have said hop_at; hop_open gives an MPI job's ranks 0 and 1 such a line.
 * Nobody else calls them. */
void hop_at(void *shared);
void hop_open(int rank);
double hop_ns(int rank);

#endif
