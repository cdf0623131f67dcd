/* The cost of a message of 8 bytes behind a queue. Rank 1 sends o->size of them, each with
 * another tag. Rank 0 has posted their receives before, in the opposite order, or
 * posts them after all messages have arrived. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

enum { GO = 100000, SENT }; /* the tags behind those of the messages */

struct queue {
    int depth;
    char *bytes;
    MPI_Request *requests;
    MPI_Status *statuses; /* MPICH's prototype warns of MPI_STATUSES_IGNORE here */
};

static void post(struct queue *q)
{
    for (int i = 0; i < q->depth; i++)
        MPI_Irecv(q->bytes + 8 * i, 8, MPI_BYTE, 1, q->depth - 1 - i, MPI_COMM_WORLD, &q->requests[i]);
}

static void wait_all(struct queue *q)
{
    MPI_Waitall(q->depth, q->requests, q->statuses);
}

static void signal_to(int rank, int tag)
{
    MPI_Send(NULL, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD);
}

static void await_from(int rank, int tag)
{
    MPI_Recv(NULL, 0, MPI_BYTE, rank, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* receive is rank 0's part, and returns the time that counts. */
static double receive(struct queue *q, int posted)
{
    if (posted)
        post(q);
    double start = seconds();
    signal_to(1, GO);
    if (!posted) {
        await_from(1, SENT);
        start = seconds();
        post(q);
    }
    wait_all(q);
    double t = seconds() - start;
    if (posted)
        await_from(1, SENT);
    return t;
}

static void send(struct queue *q)
{
    await_from(0, GO);
    for (int i = 0; i < q->depth; i++)
        MPI_Isend(q->bytes + 8 * i, 8, MPI_BYTE, 0, i, MPI_COMM_WORLD, &q->requests[i]);
    signal_to(0, SENT);
    wait_all(q);
}

double match(const struct options *o)
{
    struct queue q = {(int)o->size, buffer(8 * o->size), calloc(o->size, sizeof *q.requests),
                      calloc(o->size, sizeof *q.statuses)};
    int posted = strstr(o->bench, "posted") != NULL;
    double t = 0;
    if (!q.requests || !q.statuses)
        fail("no memory for %zu requests", o->size);
    for (int i = -o->warmup; i < o->iterations; i++) {
        double once = 0;
        if (o->rank == 0)
            once = receive(&q, posted);
        else
            send(&q);
        if (i >= 0)
            t += once;
    }
    free(q.bytes);
    free(q.requests);
    free(q.statuses);
    return t * 1e9 / o->iterations / q.depth;
}
