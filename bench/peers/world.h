/* The communicator of the loops, for programs of MPI's. */
#ifndef WORLD_H
#define WORLD_H

#include <mpi.h>

/* world is MPI_COMM_WORLD, unless a program sets it before the first loop. */
extern MPI_Comm world;

#endif
