/* The communicator of the loops, for programs of MPI's. */
#ifndef WORLD_H
#define WORLD_H

#include <mpi.h>

#include "peer.h"

/* world is MPI_COMM_WORLD, unless a program sets it before the first loop. */
extern MPI_Comm world;

/* windows_on sends windows of messages from the first half of the ranks of comm to the second. Each window is
 * acknowledged. */
void windows_on(MPI_Comm comm, const struct options *o, char *buf, int count);

/* join takes part in grow, as an added process with that parent. */
void join(MPI_Comm parent);

#endif
