/* The raw cache-line hop, measured as internal/hop does it: a counter goes to
 * and fro in one line that two processes or threads share, with a PAUSE in every poll. */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "peer.h"

enum {
    TRIPS = 200,     /* there and back, per batch */
    BATCHES = 5,     /* the median counts */
    PATIENCE = 1000, /* polls before giving the processor away */
    LIMIT_S = 10     /* then the other side is gone */
};

static _Atomic uint64_t *line;
static _Thread_local uint64_t hops; /* that this thread knows of */

void hop_at(void *shared) { line = shared; }

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
    double start = seconds();
    for (unsigned i = 1; atomic_load_explicit(line, memory_order_acquire) != n; i++) {
        if (i % PATIENCE != 0) {
            pause_cpu();
            continue;
        }
        if (seconds() - start > LIMIT_S)
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
        double start = seconds();
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
        times[b] = (seconds() - start) * 1e9 / (2 * TRIPS);
    }
    qsort(times, BATCHES, sizeof *times, by_value);
    return times[BATCHES / 2];
}
