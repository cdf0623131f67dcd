// What takes the place of shim.c where libfabric's headers were missing: everything
// says "not built".
#include "shim.h"

#ifndef FERRY_BUILT

int ferry_built(void) { return 0; }
const char *ferry_header_version(void) { return ""; }
int ferry_load(const char *p, ferry_lib **l, char *w, size_t r) { return -FERRY_NOT_BUILT; }
uint32_t ferry_version(ferry_lib *l) { return 0; }
const char *ferry_error(ferry_lib *l, int c) { return ""; }
int ferry_infos(ferry_lib *l, const char *p, void **o) { return -FERRY_NOT_BUILT; }
int ferry_providers(ferry_lib *l, void **o) { return -FERRY_NOT_BUILT; }
int ferry_next_info(void **a, ferry_info *o) { return 0; }
void ferry_free_infos(ferry_lib *l, void *o) {}
int ferry_open(ferry_lib *l, const void *i, int w, int d, size_t n, ferry_ep **e, const char **s) { return -FERRY_NOT_BUILT; }
void ferry_close(ferry_ep *e) {}
int ferry_name(ferry_ep *e, void *b, size_t *n) { return -FERRY_NOT_BUILT; }
int ferry_grow(ferry_ep *e) { return -FERRY_NOT_BUILT; }
int ferry_insert(ferry_ep *e, const void *a, uint64_t *o) { return -FERRY_NOT_BUILT; }
int ferry_remove(ferry_ep *e, uint64_t a) { return -FERRY_NOT_BUILT; }
int ferry_fd(ferry_ep *e) { return -1; }
int ferry_trywait(ferry_ep *e) { return -FERRY_NOT_BUILT; }
int ferry_tsend(ferry_ep *e, uint32_t s, const void *b, size_t n, uint64_t to, uint64_t tag, uint64_t d, int k) { return -FERRY_NOT_BUILT; }
int ferry_trecv(ferry_ep *e, uint32_t s, void *b, size_t n, uint64_t f, uint64_t tag, uint64_t g, int k) { return -FERRY_NOT_BUILT; }
int ferry_peek(ferry_ep *e, uint32_t s, uint64_t f, uint64_t tag, uint64_t g, int k) { return -FERRY_NOT_BUILT; }
int ferry_send(ferry_ep *e, uint32_t s, const void *b, size_t n, uint64_t to, int k) { return -FERRY_NOT_BUILT; }
int ferry_recv(ferry_ep *e, uint32_t s, void *b, size_t n) { return -FERRY_NOT_BUILT; }
int ferry_cancel(ferry_ep *e, uint32_t s) { return -FERRY_NOT_BUILT; }
int ferry_poll(ferry_ep *e, ferry_event *o, int r) { return -FERRY_NOT_BUILT; }
const char *ferry_cq_error(ferry_ep *e, int p) { return ""; }

#endif
