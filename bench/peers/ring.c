/* Rings: each rank sends 8 bytes to both of its neighbors. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

static const MPI_Comm world = MPI_COMM_WORLD;

enum { RINGS = 10 }; /* random orders, each with all iterations */

/* neighbors finds the ranks before and after this one in an order. */
static void neighbors(const struct options *o, const int *order, int *left, int *right)
{
    for (int i = 0; i < o->ranks; i++)
        if (order[i] == o->rank) {
            *left = order[(i + o->ranks - 1) % o->ranks];
            *right = order[(i + 1) % o->ranks];
        }
}

/* shuffle makes a random permutation, the same in all ranks. */
static void shuffle(int *order, int n, unsigned *seed)
{
    for (int i = n - 1; i > 0; i--) {
        int j = rand_r(seed) % (i + 1), other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
}

/* one times a ring, in us for each of the two messages. */
static double one(const struct options *o, int left, int right)
{
    char send[8] = {0}, recv[8];
    double start = 0;
    MPI_Barrier(world);
    for (int i = -o->warmup; i < o->iterations; i++) {
        if (i == 0)
            start = MPI_Wtime();
        MPI_Sendrecv(send, sizeof send, MPI_CHAR, right, 1, recv, sizeof recv, MPI_CHAR, left, 1, world, MPI_STATUS_IGNORE);
        MPI_Sendrecv(send, sizeof send, MPI_CHAR, left, 1, recv, sizeof recv, MPI_CHAR, right, 1, world, MPI_STATUS_IGNORE);
    }
    return (MPI_Wtime() - start) * 1e6 / o->iterations / 2;
}

/* ring: the mean of all ranks, in the order of the ranks or in random ones. */
double ring(const struct options *o)
{
    int *order = buffer(sizeof *order * (size_t)o->ranks), left = 0, right = 0, rings = 1;
    unsigned seed = 1;
    double sum = 0;
    if (!strcmp(o->bench, "ring/random"))
        rings = RINGS;
    for (int i = 0; i < o->ranks; i++)
        order[i] = i;
    for (int i = 0; i < rings; i++) {
        if (rings > 1)
            shuffle(order, o->ranks, &seed);
        neighbors(o, order, &left, &right);
        sum += one(o, left, right);
    }
    free(order);
    return mean(o, sum / rings);
}
