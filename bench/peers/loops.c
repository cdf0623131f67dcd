/* The loops of OSU's micro-benchmarks. */
#include "world.h"

#include <stdlib.h>

#include "peer.h"

MPI_Comm world = MPI_COMM_WORLD;

/* latency: half of the round trip of a ping-pong, in us. */
double latency(const struct options *o)
{
    char *send = buffer(o->size), *recv = buffer(o->size);
    int n = (int)o->size;
    double start = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        if (i == 0)
            start = MPI_Wtime();
        if (o->rank == 0) {
            MPI_Send(send, n, MPI_CHAR, 1, 1, world);
            MPI_Recv(recv, n, MPI_CHAR, 1, 1, world, MPI_STATUS_IGNORE);
        } else if (o->rank == 1) {
            MPI_Recv(recv, n, MPI_CHAR, 0, 1, world, MPI_STATUS_IGNORE);
            MPI_Send(send, n, MPI_CHAR, 0, 1, world);
        }
    }
    double t = MPI_Wtime() - start;
    free(send);
    free(recv);
    return t * 1e6 / o->iterations / 2;
}

double mean(const struct options *o, double mine)
{
    double total = 0;
    MPI_Barrier(world); /* who goes on takes the processor from who has yet to read the clock */
    MPI_Reduce(&mine, &total, 1, MPI_DOUBLE, MPI_SUM, 0, world);
    return total / o->ranks;
}

/* multi_latency: latency of several pairs at once, in us. */
double multi_latency(const struct options *o)
{
    char *send = buffer(o->size), *recv = buffer(o->size);
    int n = (int)o->size, half = o->ranks / 2;
    double start = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        if (i == 0)
            start = MPI_Wtime();
        if (o->rank < half) {
            MPI_Send(send, n, MPI_CHAR, o->rank + half, 1, world);
            MPI_Recv(recv, n, MPI_CHAR, o->rank + half, 1, world, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(recv, n, MPI_CHAR, o->rank - half, 1, world, MPI_STATUS_IGNORE);
            MPI_Send(send, n, MPI_CHAR, o->rank - half, 1, world);
        }
    }
    double t = MPI_Wtime() - start;
    free(send);
    free(recv);
    return mean(o, t * 1e6 / o->iterations / 2);
}

void windows_on(MPI_Comm comm, const struct options *o, char *buf, int count)
{
    char ack[4] = {0};
    int n = (int)o->size, half = o->ranks / 2;
    MPI_Request reqs[WINDOW];
    MPI_Status statuses[WINDOW];
    for (int i = 0; i < count; i++) {
        if (o->rank < half) {
            int peer = o->rank + half;
            for (int w = 0; w < WINDOW; w++)
                MPI_Isend(buf, n, MPI_CHAR, peer, 100, comm, &reqs[w]);
            MPI_Waitall(WINDOW, reqs, statuses);
            MPI_Recv(ack, sizeof ack, MPI_CHAR, peer, 101, comm, MPI_STATUS_IGNORE);
        } else {
            int peer = o->rank - half;
            for (int w = 0; w < WINDOW; w++)
                MPI_Irecv(buf, n, MPI_CHAR, peer, 100, comm, &reqs[w]);
            MPI_Waitall(WINDOW, reqs, statuses);
            MPI_Send(ack, sizeof ack, MPI_CHAR, peer, 101, comm);
        }
    }
}

/* windows returns the time of a window in seconds. */
static double windows(const struct options *o)
{
    char *buf = buffer(o->size);
    windows_on(world, o, buf, o->warmup);
    double start = MPI_Wtime();
    windows_on(world, o, buf, o->iterations);
    double t = MPI_Wtime() - start;
    free(buf);
    return t / o->iterations;
}

/* bandwidth, in MB/s. */
double bandwidth(const struct options *o) { return (double)o->size * WINDOW / windows(o) / 1e6; }

/* rate: messages per second of all pairs, over the mean of the senders' times. */
double rate(const struct options *o)
{
    int pairs = o->ranks / 2;
    double t = windows(o), total = 0;
    if (o->rank >= pairs)
        t = 0;
    MPI_Reduce(&t, &total, 1, MPI_DOUBLE, MPI_SUM, 0, world);
    return pairs * (double)WINDOW / (total / pairs);
}

/* bidirectional: windows both ways at the same time, in MB/s. */
double bidirectional(const struct options *o)
{
    char *send = buffer(o->size), *recv = buffer(o->size);
    int n = (int)o->size, peer = 1 - o->rank, out = 100 + o->rank, in = 101 - o->rank;
    MPI_Request sends[WINDOW], recvs[WINDOW];
    MPI_Status statuses[WINDOW];
    double start = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        if (i == 0)
            start = MPI_Wtime();
        for (int w = 0; w < WINDOW; w++)
            MPI_Irecv(recv, n, MPI_CHAR, peer, in, world, &recvs[w]);
        for (int w = 0; w < WINDOW; w++)
            MPI_Isend(send, n, MPI_CHAR, peer, out, world, &sends[w]);
        MPI_Waitall(WINDOW, sends, statuses);
        MPI_Waitall(WINDOW, recvs, statuses);
    }
    double t = MPI_Wtime() - start;
    free(send);
    free(recv);
    return 2.0 * (double)o->size * WINDOW * o->iterations / t / 1e6;
}

/* barrier: in us. The whole loop is timed, not each barrier as OSU does, so that
 * reading the clock costs the peer nothing: a barrier takes 150 ns. */
double barrier(const struct options *o)
{
    double start = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        if (i == 0)
            start = MPI_Wtime();
        MPI_Barrier(world);
    }
    return mean(o, (MPI_Wtime() - start) * 1e6 / o->iterations);
}

/* dup_comm: MPI_Comm_dup in us; freeing is not timed. */
double dup_comm(const struct options *o)
{
    double t = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        MPI_Comm c;
        double start = MPI_Wtime();
        MPI_Comm_dup(world, &c);
        if (i >= 0)
            t += MPI_Wtime() - start;
        MPI_Comm_free(&c);
    }
    return mean(o, t * 1e6 / o->iterations);
}
