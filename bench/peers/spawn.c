/* A job that grows: MPI_Comm_spawn and MPI_Intercomm_merge. */
#include <errno.h>
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "peer.h"
#include "world.h"

/* circulate sends a message from rank 0 round a communicator, and back to it. */
static void circulate(MPI_Comm all)
{
    char message[8] = {0};
    int rank, ranks;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &ranks);
    if (rank == 0)
        MPI_Send(message, sizeof message, MPI_CHAR, 1, 1, all);
    MPI_Recv(message, sizeof message, MPI_CHAR, (rank + ranks - 1) % ranks, 1, all, MPI_STATUS_IGNORE);
    if (rank > 0)
        MPI_Send(message, sizeof message, MPI_CHAR, (rank + 1) % ranks, 1, all);
}

/* merge makes the communicator of the first and the added processes, and sends a message round it. */
static MPI_Comm merge(MPI_Comm others, int is_added)
{
    MPI_Comm all;
    MPI_Intercomm_merge(others, is_added, &all);
    circulate(all);
    return all;
}

/* disconnect ends the communicators, after pids has got the process ids of all ranks at rank 0. */
static void disconnect(MPI_Comm all, MPI_Comm others, int *pids)
{
    int pid = (int)getpid();
    MPI_Gather(&pid, 1, MPI_INT, pids, 1, MPI_INT, 0, all);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&others);
}

void join(MPI_Comm parent) { disconnect(merge(parent, 1), parent, NULL); }

/* await_end returns when a process has ended. */
static void await_end(int pid)
{
    while (kill(pid, 0) == 0 || errno != ESRCH)
        nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* grow: adding o->size processes, until rank 0 has got back a message that it sent round all ranks, in
 * ms. The added processes have ended before the next ones are started. */
double grow(const struct options *o)
{
    int added = (int)o->size, *pids = buffer(((size_t)o->ranks + o->size) * sizeof *pids);
    char *args[] = {(char *)o->bench, NULL};
    double total = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        MPI_Comm others;
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Comm_spawn(o->program, args, added, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &others, MPI_ERRCODES_IGNORE);
        MPI_Comm all = merge(others, 0);
        if (i >= 0)
            total += MPI_Wtime() - start;
        disconnect(all, others, pids);
        for (int j = 0; o->rank == 0 && j < added; j++)
            await_end(pids[o->ranks + j]);
    }
    free(pids);
    return total * 1e3 / o->iterations;
}
