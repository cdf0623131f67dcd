/* The cache line that ranks 0 and 1 share. */
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "peer.h"

static void map_line(int fd)
{
    void *p = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        fail("hop: cannot map the shared line");
    hop_at(p);
    close(fd);
}

void hop_open(int rank)
{
    char path[] = "/dev/shm/ferry-peer-hop-XXXXXX";
    if (rank == 0) {
        int fd = mkstemp(path);
        if (fd < 0 || posix_fallocate(fd, 0, sysconf(_SC_PAGESIZE)) != 0) {
            if (fd >= 0)
                unlink(path);
            fail("hop: cannot make a file of one page in /dev/shm");
        }
        map_line(fd);
        MPI_Send(path, sizeof path, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        unlink(path);
    } else {
        MPI_Recv(path, sizeof path, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            fail("hop: cannot open %s", path);
        map_line(fd);
        MPI_Send(NULL, 0, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
    }
}
