// The slots of an endpoint, for shim.c.
#ifndef FERRY_LIBFABRIC_SLOTS_H
#define FERRY_LIBFABRIC_SLOTS_H

#include "abi.h"
#include "shim.h"

#include <stdlib.h>
#include <string.h>

// A slot identifies an operation to libfabric. Slots are in chunks that don't move, because providers write into the
// context.
typedef struct slot {
	ffi_context2 context;
	uint32_t index;
	void *desc; // Descriptor of a registered buffer, or NULL.
} slot;

enum { CHUNK_BITS = 8, CHUNK = 1 << CHUNK_BITS };

typedef struct slots {
	slot **chunks;
	slot **sorted; // The chunks by address.
	uint32_t n;    // Number of chunks.
} slots;

static inline slot *nth_slot(const slots *all, uint32_t i) { return &all->chunks[i >> CHUNK_BITS][i & (CHUNK - 1)]; }

// before returns the number of chunks that begin at or before an address.
static inline uint32_t before(const slots *all, const void *address)
{
	uint32_t low = 0, high = all->n;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if ((uintptr_t)all->sorted[middle] <= (uintptr_t)address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

// slot_of returns the number of the slot with a context. Providers over ofi_rxm report failures with a context of their own, which
// belongs to no slot.
static inline uint32_t slot_of(const slots *all, const void *context)
{
	uint32_t n = before(all, context);
	if (n == 0)
		return FERRY_NO_SLOT;
	uintptr_t offset = (uintptr_t)context - (uintptr_t)all->sorted[n - 1];
	return offset < CHUNK * sizeof(slot) && offset % sizeof(slot) == 0 ? ((const slot *)context)->index : FERRY_NO_SLOT;
}

// longer extends a list of n chunks by one entry. It returns 0 if there is no memory.
static inline int longer(slot ***list, uint32_t n)
{
	slot **more = realloc(*list, (n + 1) * sizeof(*more));
	if (more)
		*list = more;
	return !!more;
}

// more_slots adds a chunk, and returns the total number of slots, or -FFI_ENOMEM.
static inline int more_slots(slots *all)
{
	slot *s = longer(&all->chunks, all->n) && longer(&all->sorted, all->n) ? calloc(CHUNK, sizeof(*s)) : NULL;
	if (!s)
		return -FFI_ENOMEM;
	for (uint32_t i = 0; i < CHUNK; i++)
		s[i].index = all->n * CHUNK + i;
	uint32_t at = before(all, s);
	memmove(all->sorted + at + 1, all->sorted + at, (all->n - at) * sizeof(*all->sorted));
	all->sorted[at] = s;
	all->chunks[all->n++] = s;
	return all->n * CHUNK;
}

static inline void free_slots(slots *all)
{
	for (uint32_t i = 0; i < all->n; i++)
		free(all->chunks[i]);
	free(all->chunks);
	free(all->sorted);
}

#endif
