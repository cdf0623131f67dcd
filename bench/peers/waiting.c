/* The memory of ranks, and their processor time in a wait. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

static const MPI_Comm world = MPI_COMM_WORLD;

/* shift sends 8 bytes to the rank at this distance. */
static void shift(const struct options *o, int step)
{
    char send[8] = {0}, recv[8];
    MPI_Sendrecv(send, sizeof send, MPI_CHAR, (o->rank + step) % o->ranks, 1, recv, sizeof recv, MPI_CHAR,
                 (o->rank + o->ranks - step) % o->ranks, 1, world, MPI_STATUS_IGNORE);
}

/* resident reads the private memory of this process in KiB, and its memory with shared pages
 * divided by the number of their users. */
void resident(double *private, double *share)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256], name[64];
    double kib;
    *private = *share = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %lf kB", name, &kib) != 2)
            continue;
        if (!strcmp(name, "Pss:"))
            *share = kib;
        else if (!strcmp(name, "Private_Clean:") || !strcmp(name, "Private_Dirty:"))
            *private += kib;
    }
    if (f)
        fclose(f);
    if (*private == 0 || *share == 0)
        fail("no Pss and Private_* in /proc/self/smaps_rollup");
}

double shared_memory(void)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0)
        fail("cannot look at /dev/shm");
    return (double)(fs.f_blocks - fs.f_bfree) * (double)fs.f_frsize / 1024;
}

/* memory prints, at rank 0, the mean memory of ranks in KiB after a barrier and a
 * message to each neighbor, or to all ranks. Memory in
 * /dev/shm is counted once for all its users. */
void memory(const struct options *o)
{
    MPI_Barrier(world);
    if (!strcmp(o->bench, "memory_all")) {
        for (int step = 0; step < o->ranks; step++)
            shift(o, step);
    } else {
        shift(o, 1 % o->ranks);
        shift(o, (o->ranks - 1) % o->ranks);
    }
    MPI_Barrier(world);
    double mine[2], total[2] = {0}, shm;
    resident(&mine[0], &mine[1]);
    shm = shared_memory();
    MPI_Barrier(world); /* what follows takes memory itself */
    MPI_Reduce(mine, total, 2, MPI_DOUBLE, MPI_SUM, 0, world);
    if (o->rank != 0)
        return;
    row(o, "/private", 0, "KiB", total[0] / o->ranks, 0);
    row(o, "/pss", 0, "KiB", total[1] / o->ranks, 0);
    row(o, "/shm", 0, "KiB", shm, 0);
}

static double processor_time(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* idle: the processor time of a rank in a blocked receive, in %, as
 * the mean of all ranks but the first, which makes them wait for a second at a time. */
double idle(const struct options *o)
{
    double used = 0, total = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        if (o->rank == 0) {
            nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
            for (int peer = 1; peer < o->ranks; peer++)
                MPI_Send(NULL, 0, MPI_CHAR, peer, 1, world);
            continue;
        }
        double before = processor_time(), start = MPI_Wtime();
        MPI_Recv(NULL, 0, MPI_CHAR, 0, 1, world, MPI_STATUS_IGNORE);
        double whole = MPI_Wtime() - start;
        if (i >= 0)
            used += 100 * (processor_time() - before) / whole;
    }
    MPI_Reduce(&used, &total, 1, MPI_DOUBLE, MPI_SUM, 0, world);
    return total / (o->ranks - 1) / o->iterations;
}
