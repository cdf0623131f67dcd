/* peer BENCH [-m SIZE | -m MIN:MAX] [-i ITERATIONS] [-x WARMUP] [--hop]
 *
 * Rank 0 prints a line of JSON for each size, doubling from MIN to MAX, with the
 * names that `ferry bench --format json` uses; memory prints its three. init is
 * the time of MPI_Init, the largest of all ranks; hello is a job that does
 * nothing, whose time is taken outside. --hop measures the raw hop between ranks
 * 0 and 1 before and after, of which the larger is printed. */
#include <errno.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

static const struct {
    const char *name, *unit;
    benchmark *run;
} table[] = {
    {"latency", "us", latency},     {"multi_lat", "us", multi_latency},
    {"bw", "MB/s", bandwidth},      {"bibw", "MB/s", bidirectional},
    {"mbw_mr", "messages/s", rate}, {"barrier", "us", barrier},
    {"allreduce", "us", allreduce}, {"dup", "us", dup_comm},
    {"idle", "%", idle},
};

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("peer: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    int up = 0;
    MPI_Initialized(&up);
    if (up)
        MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

void *buffer(size_t size)
{
    void *p = NULL;
    if (posix_memalign(&p, (size_t)sysconf(_SC_PAGESIZE), size ? size : 1) != 0)
        fail("no memory for %zu bytes", size);
    memset(p, 'a', size);
    return p;
}

/* number parses a decimal number of at most max. */
static long number(const char *flag, const char *s, long max)
{
    char *end = NULL;
    errno = 0;
    long n = s ? strtol(s, &end, 10) : -1;
    if (!s || end == s || *end || errno || n < 0 || n > max)
        fail("%s: want a number from 0 to %ld", flag, max);
    return n;
}

/* sizes parses SIZE or MIN:MAX. */
static void sizes(const char *s, size_t *min, size_t *max)
{
    char low[32];
    const char *colon = s ? strchr(s, ':') : NULL;
    if (!colon || (size_t)(colon - s) >= sizeof low) {
        *min = *max = (size_t)number("-m", s, 1L << 30);
        return;
    }
    memcpy(low, s, (size_t)(colon - s));
    low[colon - s] = 0;
    *min = (size_t)number("-m", low, 1L << 30);
    *max = (size_t)number("-m", colon + 1, 1L << 30);
    if (*min < 1 || *max < *min)
        fail("-m %s: want 1 <= MIN <= MAX", s);
}

void row(const struct options *o, const char *what, size_t size, const char *unit, double figure, double hop)
{
    printf("{\"bench\":\"%s%s\",\"size\":%zu,\"ranks\":%d,\"unit\":\"%s\",\"avg\":%.6f,\"raw_hop_ns\":%.2f}\n",
           o->bench, what, size, o->ranks, unit, figure, hop);
    fflush(stdout);
}

/* measure makes one row of a benchmark that is in the table. */
static void measure(const struct options *o, benchmark *run, const char *unit, int hop)
{
    double raw = hop ? hop_ns(o->rank) : 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double figure = run(o);
    if (hop) {
        double after = hop_ns(o->rank);
        raw = after > raw ? after : raw;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (o->rank == 0)
        row(o, "", o->size, unit, figure, raw);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    struct options o = {.size = 8, .iterations = 1000, .warmup = 100};
    size_t min = 8, max = 8;
    int hop = 0;
    if (argc < 2)
        fail("usage: peer BENCH [-m SIZE | -m MIN:MAX] [-i ITERATIONS] [-x WARMUP] [--hop]");
    o.bench = argv[1];
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--hop"))
            hop = 1;
        else if (!strcmp(argv[i], "-m"))
            sizes(argv[++i], &min, &max);
        else if (!strcmp(argv[i], "-i"))
            o.iterations = (int)number("-i", argv[++i], 1L << 30);
        else if (!strcmp(argv[i], "-x"))
            o.warmup = (int)number("-x", argv[++i], 1L << 30);
        else
            fail("unknown argument %s", argv[i]);
    }
    if (o.iterations < 1)
        fail("-i: want at least 1 iteration");

    double start = seconds();
    MPI_Init(&argc, &argv);
    double mine = (seconds() - start) * 1e3;
    MPI_Comm_rank(MPI_COMM_WORLD, &o.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &o.ranks);

    if (!strcmp(o.bench, "init")) {
        double largest = 0;
        MPI_Reduce(&mine, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (o.rank == 0)
            row(&o, "", min, "ms", largest, 0);
    } else if (!strcmp(o.bench, "hello")) {
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(o.bench, "memory") || !strcmp(o.bench, "memory_all")) {
        memory(&o);
    } else {
        benchmark *run = NULL;
        const char *unit = NULL;
        for (size_t i = 0; i < sizeof table / sizeof *table; i++)
            if (!strcmp(table[i].name, o.bench)) {
                run = table[i].run;
                unit = table[i].unit;
            }
        if (!run)
            fail("unknown benchmark %s", o.bench);
        if (o.ranks < 2 || o.ranks % 2)
            fail("%s needs pairs of ranks", o.bench);
        if (o.ranks != 2 && (run == latency || run == bandwidth || run == bidirectional))
            fail("%s is between 2 ranks", o.bench);
        hop = hop && o.rank < 2;
        if (hop)
            hop_open(o.rank);
        for (o.size = min; o.size <= max; o.size *= 2) {
            measure(&o, run, unit, hop);
            if (o.size == 0)
                break; /* a benchmark without messages */
        }
    }
    MPI_Finalize();
    return 0;
}
