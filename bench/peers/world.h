/* The communicator of the loops, for programs of MPI's. */
#ifndef WORLD_H
#define WORLD_H

#include <mpi.h>

/* world is MPI_COMM_WORLD, unless a program sets it before the first loop. */
extern MPI_Comm world;

/* join takes part in grow, as an added process with that parent. */
void join(MPI_Comm parent);

#endif
