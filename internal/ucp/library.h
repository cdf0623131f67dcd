// The library handle of shim.c and library.c.
#ifndef FERRY_UCP_LIBRARY_H
#define FERRY_UCP_LIBRARY_H

#include "abi.h"

struct ferry_ucp_lib {
	fucp_calls_t f;
	uint64_t cutting; // the datatype of receives that may be cut
};

int ferry_ucp_cutting(struct ferry_ucp_lib *lib);

#endif
