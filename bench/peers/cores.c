/* The processors of ranks that a program starts itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "peer.h"

void bind_to(int n)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) < 0)
        fail("affinity: %s", strerror(errno));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n-- == 0)
            CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) < 0)
        fail("two processors are needed: %s", strerror(errno));
}
