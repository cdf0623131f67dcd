/* sockets BENCH [-m SIZE | -m MIN:MAX] [-i ITERATIONS] [-x WARMUP] [--hop]
 *
 * The cost of TCP over the loopback interface without a library, for two processes, each
 * bound to a processor, and one connection. latency is a ping-pong that spins on
 * non-blocking sockets; bw is windows of messages, each window acknowledged, through
 * a blocking stream. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../peer.h"

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("sockets: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1); /* the other process sees the end of the connection */
}

/* must exits with the failed action. */
static int must(int result, const char *what)
{
    if (result < 0)
        fail("%s: %s", what, strerror(errno));
    return result;
}

/* put sends all; get receives all. Where the socket does not block they spin. */
static void put(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = send(fd, p, n, MSG_NOSIGNAL);
        if (done < 0 && errno != EAGAIN && errno != EINTR)
            fail("send: %s", strerror(errno));
        if (done > 0) {
            p += done;
            n -= (size_t)done;
        }
    }
}

static void get(int fd, char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = recv(fd, p, n, 0);
        if (done == 0)
            fail("the other process has gone");
        if (done < 0 && errno != EAGAIN && errno != EINTR)
            fail("receive: %s", strerror(errno));
        if (done > 0) {
            p += done;
            n -= (size_t)done;
        }
    }
}

/* ping_pong is half of the round trip, in us. */
static double ping_pong(const struct options *o, int fd)
{
    char *send = buffer(o->size), *recv = buffer(o->size);
    double start = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        if (i == 0)
            start = seconds();
        if (o->rank == 0)
            put(fd, send, o->size);
        get(fd, recv, o->size);
        if (o->rank == 1)
            put(fd, send, o->size);
    }
    double t = seconds() - start;
    free(send);
    free(recv);
    return t * 1e6 / o->iterations / 2;
}

/* stream is in MB/s. */
static double stream(const struct options *o, int fd)
{
    char *buf = buffer(o->size), ack[4] = {0};
    double start = 0;
    for (int i = -o->warmup; i < o->iterations; i++) {
        if (i == 0)
            start = seconds();
        for (int w = 0; w < WINDOW; w++) {
            if (o->rank == 0)
                put(fd, buf, o->size);
            else
                get(fd, buf, o->size);
        }
        if (o->rank == 0)
            get(fd, ack, sizeof ack);
        else
            put(fd, ack, sizeof ack);
    }
    double t = seconds() - start;
    free(buf);
    return (double)o->size * WINDOW * o->iterations / t / 1e6;
}

/* connection makes this process two that are connected. */
static int connection(struct options *o)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int on = 1, fd, door = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    must(bind(door, (struct sockaddr *)&at, n), "bind");
    must(listen(door, 1), "listen");
    must(getsockname(door, (struct sockaddr *)&at, &n), "address");
    o->ranks = 2;
    o->rank = must(fork(), "fork") == 0;
    bind_to(o->rank);
    if (o->rank == 0) {
        fd = must(accept4(door, NULL, NULL, SOCK_CLOEXEC), "accept");
    } else {
        must(prctl(PR_SET_PDEATHSIG, SIGKILL), "prctl");
        fd = must(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
        must(connect(fd, (struct sockaddr *)&at, n), "connect");
    }
    close(door);
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "TCP_NODELAY");
    return fd;
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    int spins = !strcmp(o.bench, "latency");
    if (!spins && strcmp(o.bench, "bw"))
        fail("unknown benchmark %s", o.bench);
    void *line = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (line == MAP_FAILED)
        fail("no memory for a shared line");
    hop_at(line);
    int fd = connection(&o);
    if (spins)
        must(fcntl(fd, F_SETFL, O_NONBLOCK), "O_NONBLOCK");
    for (o.size = o.min; o.size <= o.max; o.size *= 2) {
        if (o.size == 0)
            fail("-m: a stream has no messages of 0 bytes");
        double raw = o.hop ? hop_ns(o.rank) : 0;
        double figure = spins ? ping_pong(&o, fd) : stream(&o, fd);
        double after = o.hop ? hop_ns(o.rank) : 0;
        if (o.rank == 0)
            row(&o, "", o.size, spins ? "us" : "MB/s", figure, after > raw ? after : raw);
    }
    if (o.rank == 0) {
        int status = 0;
        must(wait(&status), "wait");
        return status != 0;
    }
    return 0;
}
