// The library handle of shim.c and library.c.
#ifndef FERRY_LIBFABRIC_LIBRARY_H
#define FERRY_LIBFABRIC_LIBRARY_H

#include "abi.h"

struct ferry_lib {
	ffi_calls f;
	char *path;
};

#endif
