/* peer BENCH [-m SIZE | -m MIN:MAX] [-i ITERATIONS] [-x WARMUP] [--hop] [--threads T [--streams]]
 *
 * A program of MPI's. init is the time of MPI_Init, the largest of all ranks; hello
 * is a job that does nothing, whose time is taken outside; memory prints three
 * rows. */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "world.h"

static const struct {
    const char *name, *unit;
    benchmark *run;
} table[] = {
    {"latency", "us", latency},     {"multi_lat", "us", multi_latency},
    {"bw", "MB/s", bandwidth},      {"bibw", "MB/s", bidirectional},
    {"mbw_mr", "messages/s", rate}, {"barrier", "us", barrier},
    {"dup", "us", dup_comm},        {"idle", "%", idle},
    {"match/posted/backwards", "ns", match}, {"match/unexpected/backwards", "ns", match},
    {"bcast", "us", collective},    {"ibcast", "us", overlap},
    {"reduce", "us", collective},   {"ireduce", "us", overlap},
    {"allreduce", "us", collective}, {"iallreduce", "us", overlap},
    {"gather", "us", collective},   {"igather", "us", overlap},
    {"scatter", "us", collective},  {"iscatter", "us", overlap},
    {"allgather", "us", collective}, {"iallgather", "us", overlap},
    {"alltoall", "us", collective}, {"ialltoall", "us", overlap},
    {"reduce_scatter", "us", collective}, {"ireduce_scatter", "us", overlap},
    {"ibarrier", "us", overlap},    {"grow/total", "ms", grow},
    {"grow/calls", "ms", grow}, /* MPI_Comm_spawn blocks */
    {"agree", "us", agree},         {"shrink", "us", shrink_comm},
    {"recover", "ms", recover},
    {"ring/natural", "us", ring},   {"ring/random", "us", ring},
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
    MPI_Barrier(world); /* recover has set it to the survivors */
    if (o->rank == 0)
        row(o, "", o->size, unit, figure, raw);
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    int hop = o.hop;
    if (!strncmp(o.bench, "startup", strlen("startup"))) {
        o.bench = "startup"; /* all figures */
        startup(&o);
        return 0;
    }
    double start = seconds();
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, o.threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    if (o.threads && level != MPI_THREAD_MULTIPLE)
        fail("this MPI has no MPI_THREAD_MULTIPLE");
    double mine = (seconds() - start) * 1e3;
    MPI_Comm_rank(MPI_COMM_WORLD, &o.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &o.ranks);

    MPI_Comm parent;
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        join(parent);
    } else if (!strcmp(o.bench, "init")) {
        double largest = 0;
        MPI_Reduce(&mine, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (o.rank == 0)
            row(&o, "", o.min, "ms", largest, 0);
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
        if (o.threads ? run != rate : o.streams)
            fail("--threads, --streams: %s has no pairs of threads; mbw_mr --threads has", o.bench);
        if (o.threads)
            run = paired_rate;
        if (o.ranks < 2 || o.ranks % 2)
            fail("%s needs pairs of ranks", o.bench);
        if (o.ranks != 2 && (run == latency || run == bandwidth || run == bidirectional || run == match))
            fail("%s is between 2 ranks", o.bench);
        hop = hop && o.rank < 2;
        if (hop)
            hop_open(o.rank);
        for (o.size = o.min; o.size <= o.max; o.size *= 2) {
            measure(&o, run, unit, hop);
            if (o.size == 0)
                break; /* a benchmark without messages */
        }
    }
    MPI_Finalize();
    return 0;
}
