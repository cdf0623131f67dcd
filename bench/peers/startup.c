/* The steps of a start by sessions, where the library has them (MPI 4.0). */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "peer.h"

#if MPI_VERSION >= 4

enum { STEPS = 3, FIGURES = 4 };

/* record stores the time since start, in ms, and the memory of now. */
static void record(double *figures, double start)
{
    figures[0] = (seconds() - start) * 1e3;
    resident(&figures[1], &figures[2]);
    figures[3] = shared_memory();
}

/* make makes a communicator of a process set. */
static MPI_Comm make(MPI_Session session, const char *pset)
{
    MPI_Group group;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, pset, &group);
    MPI_Comm_create_from_group(group, "org.example.startup", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    return comm;
}

/* startup opens a session, makes communicators of mpi://SELF and mpi://WORLD, and prints a row for each figure of
 * each step, the mean of all ranks. */
void startup(struct options *o)
{
    static const char *const steps[STEPS] = {"session", "self", "world"}, *const names[FIGURES] = {"time", "private", "pss", "shm"};
    double mine[STEPS][FIGURES], total[STEPS][FIGURES], start = seconds();
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    record(mine[0], start);
    start = seconds();
    MPI_Comm self = make(session, "mpi://SELF");
    record(mine[1], start);
    start = seconds();
    MPI_Comm world = make(session, "mpi://WORLD");
    record(mine[2], start);
    MPI_Comm_rank(world, &o->rank);
    MPI_Comm_size(world, &o->ranks);
    MPI_Reduce(mine, total, STEPS * FIGURES, MPI_DOUBLE, MPI_SUM, 0, world);
    for (int i = 0; o->rank == 0 && i < STEPS; i++)
        for (int j = 0; j < FIGURES; j++) {
            char what[32];
            snprintf(what, sizeof what, "/%s/%s", steps[i], names[j]);
            row(o, what, 0, j == 0 ? "ms" : "KiB", total[i][j] / o->ranks, 0);
        }
    MPI_Comm_free(&world);
    MPI_Comm_free(&self);
    MPI_Session_finalize(&session);
}

#else

void startup(struct options *o)
{
    fail("%s needs MPI_Session_init, and this library has MPI %d.%d", o->bench, MPI_VERSION, MPI_SUBVERSION);
}

#endif
