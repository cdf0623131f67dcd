/* openmp BENCH [-m SIZE | -m MIN:MAX] [-i ITERATIONS] [-x WARMUP] [--hop]
 *
 * Two threads of OpenMP, each bound to a processor. barrier is the barrier directive. reduce adds an array of ints
 * of each thread to one of all by the reduction clause. Its time includes entering and leaving the parallel
 * region, to which the clause belongs. */
#define _GNU_SOURCE
#include <omp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../peer.h"

enum { THREADS = 2 };

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("openmp: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* spin makes waiting threads spin. The library reads its settings before main, so the program starts anew. */
static void spin(char **argv)
{
    static const char name[] = "OMP_WAIT_POLICY", value[] = "active";
    const char *now = getenv(name);
    if (now && !strcmp(now, value))
        return;
    if (setenv(name, value, 1) != 0)
        fail("%s cannot be set", name);
    execv("/proc/self/exe", argv);
    fail("the program cannot start anew");
}

/* barriers is in us. The whole loop is timed, as of MPI's. */
static double barriers(const struct options *o)
{
    double total = 0;
#pragma omp parallel num_threads(THREADS) reduction(+ : total)
    {
        double start = 0;
        for (int i = -o->warmup; i < o->iterations; i++) {
            if (i == 0)
                start = seconds();
#pragma omp barrier
        }
        total += seconds() - start;
    }
    return total / THREADS * 1e6 / o->iterations;
}

/* reductions is in us. */
static double reductions(const struct options *o)
{
    size_t n = o->size / sizeof(int);
    int *mine[THREADS], *sum = buffer(o->size);
    for (int thread = 0; thread < THREADS; thread++) {
        mine[thread] = buffer(o->size);
        for (size_t i = 0; i < n; i++)
            mine[thread][i] = 1;
    }
    memset(sum, 0, o->size);
    double t = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        double start = seconds();
#pragma omp parallel num_threads(THREADS) reduction(+ : sum[:n])
        {
            const int *my = mine[omp_get_thread_num()];
            for (size_t j = 0; j < n; j++)
                sum[j] += my[j];
        }
        if (i >= 0)
            t += seconds() - start;
    }
    for (size_t i = 0; i < n; i++)
        if (sum[i] != THREADS * (o->warmup + o->iterations))
            fail("element %zu of the sum is %d", i, sum[i]);
    for (int thread = 0; thread < THREADS; thread++)
        free(mine[thread]);
    free(sum);
    return t * 1e6 / o->iterations;
}

/* hop takes the raw hop between the two threads. */
static double hop(const struct options *o)
{
    double raw = 0;
    if (!o->hop)
        return 0;
#pragma omp parallel num_threads(THREADS)
    {
        double mine = hop_ns(omp_get_thread_num());
        if (omp_get_thread_num() == 0)
            raw = mine;
    }
    return raw;
}

int main(int argc, char **argv)
{
    spin(argv);
    struct options o = parse(argc, argv);
    int reduces = !strcmp(o.bench, "reduce");
    if (!reduces && strcmp(o.bench, "barrier"))
        fail("unknown benchmark %s", o.bench);
    o.ranks = THREADS;
    hop_at(buffer((size_t)sysconf(_SC_PAGESIZE)));
#pragma omp parallel num_threads(THREADS)
    {
        if (omp_get_num_threads() != THREADS)
            fail("there are %d threads", omp_get_num_threads());
        bind_to(omp_get_thread_num());
    }
    for (o.size = o.min; o.size <= o.max; o.size *= 2) {
        double before = hop(&o), figure = reduces ? reductions(&o) : barriers(&o), after = hop(&o);
        row(&o, "", o.size, "us", figure, after > before ? after : before);
        if (o.size == 0)
            break; /* a barrier has no size */
    }
    return 0;
}
