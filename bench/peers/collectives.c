/* Collectives, blocking and not: the loops of cmd/ferry/internal/bench/collectives.go. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#include "peer.h"

/* call is one collective with its buffers. */
struct call {
    void *send, *recv;
    int n, *counts;
    MPI_Request request;
};

static void do_bcast(struct call *c) { MPI_Bcast(c->send, c->n, MPI_CHAR, 0, world); }
static void do_reduce(struct call *c)
{
    MPI_Reduce(c->send, c->recv, c->n, MPI_FLOAT, MPI_SUM, 0, world);
}
static void do_allreduce(struct call *c)
{
    MPI_Allreduce(c->send, c->recv, c->n, MPI_FLOAT, MPI_SUM, world);
}
static void do_gather(struct call *c)
{
    MPI_Gather(c->send, c->n, MPI_CHAR, c->recv, c->n, MPI_CHAR, 0, world);
}
static void do_scatter(struct call *c)
{
    MPI_Scatter(c->send, c->n, MPI_CHAR, c->recv, c->n, MPI_CHAR, 0, world);
}
static void do_allgather(struct call *c)
{
    MPI_Allgather(c->send, c->n, MPI_CHAR, c->recv, c->n, MPI_CHAR, world);
}
static void do_alltoall(struct call *c)
{
    MPI_Alltoall(c->send, c->n, MPI_CHAR, c->recv, c->n, MPI_CHAR, world);
}
static void do_reduce_scatter(struct call *c)
{
    MPI_Reduce_scatter(c->send, c->recv, c->counts, MPI_FLOAT, MPI_SUM, world);
}

static void start_barrier(struct call *c) { MPI_Ibarrier(world, &c->request); }
static void start_bcast(struct call *c)
{
    MPI_Ibcast(c->send, c->n, MPI_CHAR, 0, world, &c->request);
}
static void start_reduce(struct call *c)
{
    MPI_Ireduce(c->send, c->recv, c->n, MPI_FLOAT, MPI_SUM, 0, world, &c->request);
}
static void start_allreduce(struct call *c)
{
    MPI_Iallreduce(c->send, c->recv, c->n, MPI_FLOAT, MPI_SUM, world, &c->request);
}
static void start_gather(struct call *c)
{
    MPI_Igather(c->send, c->n, MPI_CHAR, c->recv, c->n, MPI_CHAR, 0, world, &c->request);
}
static void start_scatter(struct call *c)
{
    MPI_Iscatter(c->send, c->n, MPI_CHAR, c->recv, c->n, MPI_CHAR, 0, world, &c->request);
}
static void start_allgather(struct call *c)
{
    MPI_Iallgather(c->send, c->n, MPI_CHAR, c->recv, c->n, MPI_CHAR, world, &c->request);
}
static void start_alltoall(struct call *c)
{
    MPI_Ialltoall(c->send, c->n, MPI_CHAR, c->recv, c->n, MPI_CHAR, world, &c->request);
}
static void start_reduce_scatter(struct call *c)
{
    MPI_Ireduce_scatter(c->send, c->recv, c->counts, MPI_FLOAT, MPI_SUM, world, &c->request);
}

/* Blocks are as many as there are ranks where all is set, else one. */
static const struct operation {
    const char *name;
    void (*run)(struct call *), (*start)(struct call *);
    int reduces, sends_all, recvs_all;
} operations[] = {
    {"barrier", NULL, start_barrier, 0, 0, 0},
    {"bcast", do_bcast, start_bcast, 0, 0, 0},
    {"reduce", do_reduce, start_reduce, 1, 0, 0},
    {"allreduce", do_allreduce, start_allreduce, 1, 0, 0},
    {"gather", do_gather, start_gather, 0, 0, 1},
    {"scatter", do_scatter, start_scatter, 0, 1, 0},
    {"allgather", do_allgather, start_allgather, 0, 0, 1},
    {"alltoall", do_alltoall, start_alltoall, 0, 1, 1},
    {"reduce_scatter", do_reduce_scatter, start_reduce_scatter, 1, 0, 0},
};

static const struct operation *find(const char *name)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(operations[i].name, name))
            return &operations[i];
    fail("no collective %s", name);
}

static struct call prepare(const struct options *o, const struct operation *op)
{
    struct call c = {.n = (int)o->size};
    c.send = buffer((op->sends_all ? (size_t)o->ranks : 1) * o->size);
    c.recv = buffer((op->recvs_all ? (size_t)o->ranks : 1) * o->size);
    c.counts = calloc((size_t)o->ranks, sizeof *c.counts);
    if (!c.counts)
        fail("no memory for %d counts", o->ranks);
    if (op->reduces) {
        c.n = (int)(o->size / sizeof(float));
        for (int i = 0; i < c.n; i++)
            ((float *)c.send)[i] = 1;
        for (int i = 0; i < o->ranks; i++)
            c.counts[i] = (c.n + o->ranks - 1 - i) / o->ranks;
    }
    return c;
}

static void end(struct call *c)
{
    free(c->send);
    free(c->recv);
    free(c->counts);
}

/* collective is in us. A barrier, not timed, keeps the iterations apart. */
double collective(const struct options *o)
{
    const struct operation *op = find(o->bench);
    struct call c = prepare(o, op);
    double t = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        double start = MPI_Wtime();
        op->run(&c);
        if (i >= 0)
            t += MPI_Wtime() - start;
        MPI_Barrier(world);
    }
    end(&c);
    return mean(o, t * 1e6 / o->iterations);
}

/* compute is computation of some seconds, without a call of the library but for the
 * time. */
static void compute(double s)
{
    volatile double x = 1;
    for (double start = MPI_Wtime(); MPI_Wtime() - start < s;)
        for (int i = 0; i < 64; i++)
            x = x * 0.999 + 0.5;
}

/* with returns the time of one collective in us, with computation of some seconds
 * between its start and the wait. */
static double with(const struct options *o, const struct operation *op, struct call *c, double s)
{
    double t = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        double start = MPI_Wtime();
        op->start(c);
        if (s > 0)
            compute(s);
        MPI_Wait(&c->request, MPI_STATUS_IGNORE);
        if (i >= 0)
            t += MPI_Wtime() - start;
        MPI_Barrier(world);
    }
    return mean(o, t * 1e6 / o->iterations);
}

/* overlap: in us, with computation for as long as it takes without. */
double overlap(const struct options *o)
{
    const struct operation *op = find(o->bench + 1); /* behind the i */
    struct call c = prepare(o, op);
    double pure = with(o, op, &c, 0);
    MPI_Bcast(&pure, 1, MPI_DOUBLE, 0, world);
    double whole = with(o, op, &c, pure * 1e-6);
    end(&c);
    return whole;
}
