/* Arguments, buffers and rows of the programs in this folder. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"

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


double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct options parse(int argc, char **argv)
{
    struct options o = {.size = 8, .min = 8, .max = 8, .iterations = 1000, .warmup = 100};
    if (argc < 2)
        fail("usage: %s BENCH [-m SIZE | -m MIN:MAX] [-i ITERATIONS] [-x WARMUP] [--hop] [--threads T [--streams]]", argv[0]);
    o.program = argv[0];
    o.bench = argv[1];
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--hop"))
            o.hop = 1;
        else if (!strcmp(argv[i], "--streams"))
            o.streams = 1;
        else if (!strcmp(argv[i], "--threads"))
            o.threads = (int)number("--threads", argv[++i], 1024);
        else if (!strcmp(argv[i], "-m"))
            sizes(argv[++i], &o.min, &o.max);
        else if (!strcmp(argv[i], "-i"))
            o.iterations = (int)number("-i", argv[++i], 1L << 30);
        else if (!strcmp(argv[i], "-x"))
            o.warmup = (int)number("-x", argv[++i], 1L << 30);
        else
            fail("unknown argument %s", argv[i]);
    }
    if (o.iterations < 1)
        fail("-i: want at least 1 iteration");
    return o;
}
