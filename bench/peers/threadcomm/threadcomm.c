/* threadcomm BENCH [-m SIZE | -m MIN:MAX] [-i ITERATIONS] [-x WARMUP] [--hop]
 *
 * Two threads of one process as the ranks of MPICH's thread communicator (MPIX_Threadcomm_init), each bound
 * to a processor, with the loops of MPI's processes. */
#include "../world.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../peer.h"

enum { THREADS = 2 };

/* A library without them leaves them null. */
extern int MPIX_Threadcomm_init(MPI_Comm, int, MPI_Comm *) __attribute__((weak));
extern int MPIX_Threadcomm_start(MPI_Comm) __attribute__((weak));
extern int MPIX_Threadcomm_finish(MPI_Comm) __attribute__((weak));
extern int MPIX_Threadcomm_free(MPI_Comm *) __attribute__((weak));

static const struct {
    const char *name, *unit;
    benchmark *run;
} table[] = {
    {"latency", "us", latency}, {"bw", "MB/s", bandwidth}, {"barrier", "us", barrier}, {"reduce", "us", collective},
};

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("threadcomm: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void must(int code, const char *call)
{
    if (code != MPI_SUCCESS)
        fail("%s: error %d", call, code);
}

struct thread {
    struct options o;
    int number, entry; /* of the table */
    pthread_t id;
};

/* rows are those of one thread. */
static void *rows(void *arg)
{
    struct thread *t = arg;
    struct options *o = &t->o;
    bind_to(t->number);
    must(MPIX_Threadcomm_start(world), "MPIX_Threadcomm_start");
    MPI_Comm_rank(world, &o->rank);
    MPI_Comm_size(world, &o->ranks);
    for (o->size = o->min; o->size <= o->max; o->size *= 2) {
        double before = o->hop ? hop_ns(o->rank) : 0;
        MPI_Barrier(world);
        double figure = table[t->entry].run(o);
        double after = o->hop ? hop_ns(o->rank) : 0;
        MPI_Barrier(world);
        if (o->rank == 0)
            row(o, "", o->size, table[t->entry].unit, figure, after > before ? after : before);
        if (o->size == 0)
            break; /* a benchmark without messages */
    }
    must(MPIX_Threadcomm_finish(world), "MPIX_Threadcomm_finish");
    return NULL;
}

int main(int argc, char **argv)
{
    struct thread threads[THREADS];
    struct options o = parse(argc, argv);
    int entry = -1, level = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, o.bench))
            entry = (int)i;
    if (entry < 0)
        fail("unknown benchmark %s", o.bench);
    if (!MPIX_Threadcomm_init || !MPIX_Threadcomm_start || !MPIX_Threadcomm_finish || !MPIX_Threadcomm_free)
        fail("this MPICH has no thread communicators (MPIX_Threadcomm_init)");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (level != MPI_THREAD_MULTIPLE)
        fail("this MPICH has no MPI_THREAD_MULTIPLE");
    must(MPIX_Threadcomm_init(MPI_COMM_WORLD, THREADS, &world), "MPIX_Threadcomm_init");
    hop_at(buffer((size_t)sysconf(_SC_PAGESIZE)));
    for (int i = 0; i < THREADS; i++) {
        threads[i].o = o;
        threads[i].number = i;
        threads[i].entry = entry;
        if (pthread_create(&threads[i].id, NULL, rows, &threads[i]) != 0)
            fail("no thread %d", i);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
    must(MPIX_Threadcomm_free(&world), "MPIX_Threadcomm_free");
    MPI_Finalize();
    return 0;
}
