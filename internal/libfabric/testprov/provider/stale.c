// A registration cache that is not notified of unmapped memory. It holds the pages that were at an
// address at registration, as a network interface does, and continues to read them after other
// pages were mapped. A pipe can hold pages.
#include "testprov.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KEPT = 64, BYTES = 32 << 10 }; // Number of registrations, and the compared bytes at the beginning of each.

typedef struct registration {
	const char *at;
	size_t n;
	int held[2]; // The pages.
} registration;

static registration kept[KEPT];
static int used, oldest;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// add registers the beginning of a buffer. It first makes the pages private to the process.
// Otherwise a store would replace them.
static registration *add(const char *body, size_t n, size_t prefix)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *first = (char *)((uintptr_t)body & ~(page - 1));
	if (madvise(first, body + prefix - first, MADV_POPULATE_WRITE))
		return NULL; // It may be a constant.
	registration r = {.at = body, .n = n};
	if (pipe2(r.held, O_CLOEXEC | O_NONBLOCK))
		return NULL;
	struct iovec v = {(void *)body, prefix};
	if (vmsplice(r.held[1], &v, 1, SPLICE_F_NONBLOCK) != (ssize_t)prefix) {
		close(r.held[0]);
		close(r.held[1]);
		return NULL;
	}
	registration *at = &kept[used < KEPT ? used++ : oldest++ % KEPT];
	if (at->at) {
		close(at->held[0]);
		close(at->held[1]);
	}
	*at = r;
	return at;
}

// tp_registered returns the beginning of a buffer as the network sees it, in *prefix bytes that the
// caller frees, or NULL if that is the current content.
char *tp_registered(const char *body, size_t n, size_t *prefix)
{
	size_t want = n < BYTES ? n : BYTES;
	char *copy = NULL;
	int view[2] = {-1, -1};
	pthread_mutex_lock(&lock);
	registration *r = NULL;
	for (int i = 0; i < used && !r; i++)
		if (kept[i].at == body && kept[i].n == n)
			r = &kept[i];
	if (!r)
		r = add(body, n, want);
	if (r && pipe2(view, O_CLOEXEC | O_NONBLOCK) == 0 && tee(r->held[0], view[1], want, SPLICE_F_NONBLOCK) == (ssize_t)want &&
	    (copy = malloc(want)))
		for (size_t got = 0; got < want;) {
			ssize_t k = read(view[0], copy + got, want - got);
			if (k <= 0) {
				free(copy);
				copy = NULL;
				break;
			}
			got += k;
		}
	if (view[0] >= 0) {
		close(view[0]);
		close(view[1]);
	}
	pthread_mutex_unlock(&lock);
	*prefix = copy ? want : 0;
	return copy;
}
