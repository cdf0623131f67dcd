/* Agreement, shrinking and recovery after the failure of a process (ULFM). Of the peers, Open MPI 5 with
 * `mpirun --with-ft ulfm` has these calls. */
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "peer.h"
#include "world.h"

#ifdef OMPI_HAVE_MPI_EXT_FTMPI

/* agree: MPIX_Comm_agree over a communicator without failures, in us. A barrier, not timed, keeps the
 * iterations apart, as in collective. */
double agree(const struct options *o)
{
    int flag = 1;
    double t = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        double start = MPI_Wtime();
        if (MPIX_Comm_agree(world, &flag) != MPI_SUCCESS || flag != 1)
            fail("agree: wrong outcome");
        if (i >= 0)
            t += MPI_Wtime() - start;
        MPI_Barrier(world);
    }
    return mean(o, t * 1e6 / o->iterations);
}

/* shrink_comm: MPIX_Comm_shrink of a duplicate that rank 0 has revoked, in us. */
double shrink_comm(const struct options *o)
{
    double t = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        MPI_Comm c, shrunk;
        MPI_Comm_dup(world, &c);
        if (o->rank == 0)
            MPIX_Comm_revoke(c);
        MPI_Barrier(world);
        double start = MPI_Wtime();
        if (MPIX_Comm_shrink(c, &shrunk) != MPI_SUCCESS)
            fail("shrink failed");
        if (i >= 0)
            t += MPI_Wtime() - start;
        MPI_Comm_free(&shrunk);
        MPI_Comm_free(&c);
    }
    return mean(o, t * 1e6 / o->iterations);
}

/* recover: rank 0 kills the last rank. The time until the last survivor leaves its first barrier on the
 * shrunk communicator, in ms. */
double recover(const struct options *o)
{
    int last = o->ranks - 1, pid = (int)getpid(), victim = 0;
    MPI_Comm all, survivors;
    MPI_Comm_dup(world, &all);
    MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    if (o->rank == last)
        MPI_Send(&pid, 1, MPI_INT, 0, 1, all);
    if (o->rank == 0)
        MPI_Recv(&victim, 1, MPI_INT, last, 1, all, MPI_STATUS_IGNORE);
    int failed = MPI_Barrier(all) != MPI_SUCCESS; /* the victim may die before others have left it */
    double start = seconds(), end, latest = 0;
    if (o->rank == 0)
        kill(victim, SIGKILL);
    if (o->rank == last)
        pause();
    if (!failed && MPI_Barrier(all) == MPI_SUCCESS)
        fail("a barrier succeeded without rank %d", last);
    MPIX_Comm_revoke(all);
    if (MPIX_Comm_shrink(all, &survivors) != MPI_SUCCESS)
        fail("shrink failed");
    MPI_Comm_set_errhandler(survivors, MPI_ERRORS_RETURN);
    if (MPI_Barrier(survivors) != MPI_SUCCESS)
        fail("barrier of the survivors failed");
    end = seconds();
    MPI_Reduce(&end, &latest, 1, MPI_DOUBLE, MPI_MAX, 0, survivors);
    world = survivors;
    return (latest - start) * 1e3;
}

#else

static double missing(const struct options *o)
{
    fail("%s: this library has no ULFM", o->bench);
}

double agree(const struct options *o) { return missing(o); }
double shrink_comm(const struct options *o) { return missing(o); }
double recover(const struct options *o) { return missing(o); }

#endif
