/* Message rate of pairs of threads, --threads of each rank, each pair on a communicator of its own. */
#include "world.h"

#include <pthread.h>
#include <stdlib.h>

#include "peer.h"

/* A library without streams leaves them null. MPIX_Stream is an int in MPICH. */
extern int MPIX_Stream_create(MPI_Info, int *) __attribute__((weak));
extern int MPIX_Stream_free(int *) __attribute__((weak));
extern int MPIX_Stream_comm_create(MPI_Comm, int, MPI_Comm *) __attribute__((weak));

struct lane {
    const struct options *o;
    MPI_Comm comm;
    int stream;
    char *buf;
    pthread_barrier_t *warm; /* all threads have ended their warm-up */
    pthread_t id;
};

static void must(int code, const char *call)
{
    if (code != MPI_SUCCESS)
        fail("%s: error %d", call, code);
}

static void open_lane(struct lane *l)
{
    if (!l->o->streams) {
        must(MPI_Comm_dup(world, &l->comm), "MPI_Comm_dup");
        return;
    }
    must(MPIX_Stream_create(MPI_INFO_NULL, &l->stream), "MPIX_Stream_create");
    must(MPIX_Stream_comm_create(world, l->stream, &l->comm), "MPIX_Stream_comm_create");
}

static void close_lane(struct lane *l)
{
    must(MPI_Comm_free(&l->comm), "MPI_Comm_free");
    if (l->o->streams)
        must(MPIX_Stream_free(&l->stream), "MPIX_Stream_free");
    free(l->buf);
}

static void *run_lane(void *arg)
{
    struct lane *l = arg;
    windows_on(l->comm, l->o, l->buf, l->o->warmup);
    pthread_barrier_wait(l->warm);
    windows_on(l->comm, l->o, l->buf, l->o->iterations);
    return NULL;
}

/* paired_rate: messages per second of all pairs, over the mean of the senders' times from the first start of a thread to
 * the last end. */
double paired_rate(const struct options *o)
{
    int pairs = o->ranks / 2, n = o->threads;
    pthread_barrier_t warm;
    struct lane *lanes = calloc((size_t)n, sizeof *lanes);
    if (!lanes || pthread_barrier_init(&warm, NULL, (unsigned)n + 1) != 0)
        fail("no memory for %d threads", n);
    if (o->streams && (!MPIX_Stream_create || !MPIX_Stream_free || !MPIX_Stream_comm_create))
        fail("this MPI has no streams (MPIX_Stream_create)");
    for (int i = 0; i < n; i++) {
        lanes[i] = (struct lane){.o = o, .buf = buffer(o->size), .warm = &warm};
        open_lane(&lanes[i]);
    }
    for (int i = 0; i < n; i++)
        if (pthread_create(&lanes[i].id, NULL, run_lane, &lanes[i]) != 0)
            fail("no thread %d", i);
    pthread_barrier_wait(&warm);
    double start = seconds();
    for (int i = 0; i < n; i++)
        pthread_join(lanes[i].id, NULL);
    double t = o->rank < pairs ? seconds() - start : 0, total = 0;
    for (int i = 0; i < n; i++)
        close_lane(&lanes[i]);
    pthread_barrier_destroy(&warm);
    free(lanes);
    MPI_Reduce(&t, &total, 1, MPI_DOUBLE, MPI_SUM, 0, world);
    return (double)n * pairs * WINDOW * o->iterations / (total / pairs);
}
