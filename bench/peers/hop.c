/* The raw cache-line hop, measured as internal/hop does it: a counter goes to
 * and fro in one line of a shared file, with a PAUSE in every poll. */
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "peer.h"

enum {
    TRIPS = 200,     /* there and back, per batch */
    BATCHES = 5,     /* the median counts */
    PATIENCE = 1000, /* polls before giving the processor away */
    LIMIT_S = 10     /* then the other side is gone */
};

static _Atomic uint64_t *line;
static uint64_t hops; /* that this process knows of */

static void map_line(int fd)
{
    void *p = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        fail("hop: cannot map the shared line");
    line = p;
    close(fd);
}

void hop_open(int rank)
{
    char path[] = "/dev/shm/ferry-peer-hop-XXXXXX";
    if (rank == 0) {
        int fd = mkstemp(path);
        if (fd < 0 || posix_fallocate(fd, 0, sysconf(_SC_PAGESIZE)) != 0) {
            if (fd >= 0)
                unlink(path);
            fail("hop: cannot make a file of one page in /dev/shm");
        }
        map_line(fd);
        MPI_Send(path, sizeof path, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        unlink(path);
    } else {
        MPI_Recv(path, sizeof path, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            fail("hop: cannot open %s", path);
        map_line(fd);
        MPI_Send(NULL, 0, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

static void await(uint64_t n)
{
    double start = MPI_Wtime();
    for (unsigned i = 1; atomic_load_explicit(line, memory_order_acquire) != n; i++) {
        if (i % PATIENCE != 0) {
            pause_cpu();
            continue;
        }
        if (MPI_Wtime() - start > LIMIT_S)
            fail("hop: the other process does not answer");
        sched_yield();
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double hop_ns(int rank)
{
    double times[BATCHES];
    for (int b = 0; b < BATCHES; b++) {
        double start = MPI_Wtime();
        for (int t = 0; t < TRIPS; t++) {
            if (rank == 0) {
                atomic_store_explicit(line, hops + 1, memory_order_seq_cst);
                await(hops + 2);
            } else {
                await(hops + 1);
                atomic_store_explicit(line, hops + 2, memory_order_seq_cst);
            }
            hops += 2;
        }
        times[b] = (MPI_Wtime() - start) * 1e9 / (2 * TRIPS);
    }
    qsort(times, BATCHES, sizeof *times, by_value);
    return times[BATCHES / 2];
}
