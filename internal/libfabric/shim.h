// The interface between Go and libfabric, with plain types. library.c and shim.c document the functions. Results are 0, a count, or a
// negated error number of libfabric.
#ifndef FERRY_LIBFABRIC_SHIM_H
#define FERRY_LIBFABRIC_SHIM_H

#include "abi.h"

// Number of bytes that a receive with FERRY_SPILL can discard.
#define FERRY_SPILL_BYTES (64 << 10)

// Result of a call that reported success without an object. Other results are negated error numbers.
#define FERRY_NO_RESULT (-(1 << 20))

// Slot of an event that belongs to no operation.
#define FERRY_NO_SLOT UINT32_MAX

typedef struct ferry_lib ferry_lib;
typedef struct ferry_ep ferry_ep;
typedef struct ferry_region ferry_region; // registered memory

// ferry_info is a provider on a domain.
typedef struct ferry_info {
	const char *provider, *fabric, *domain;
	uint64_t tag_format;
	uint64_t max_message;
	uint64_t inject;
	uint64_t cq_data_bytes;
	uint64_t tx_size, rx_size; // Operations in its queues.
	uint64_t rx_parts;	   // Largest number of buffers of a receive.
	uint32_t address_format;
	const void *address; // Address of this process, or NULL.
	uint64_t address_bytes;
	int local_only;  // FI_LOCAL_COMM without FI_REMOTE_COMM
	int directed;    // FI_DIRECTED_RECV
	int registers;   // FI_MR_LOCAL: only registered buffers.
	int has_pci; // PCI address of the network interface.
	uint16_t pci_domain;
	uint8_t pci_bus, pci_device, pci_function;
	const void *raw; // ffi_info
} ferry_info;

// ferry_event is one completion.
typedef struct ferry_event {
	uint64_t tag, data, length;
	uint64_t overflow; // Bytes that did not fit, with FFI_ETRUNC.
	uint32_t slot;
	int32_t error; // 0 or an error number of libfabric.
	int32_t provider_error;
	int32_t unused;
} ferry_event;

// Kinds of sends, receives and peeks.
enum {
	FERRY_WITH_DATA = 1, // The message has remote completion data.
	FERRY_INJECT = 2,    // The buffer is free on return, and there is no completion.
	FERRY_CLAIM = 4,
	FERRY_SPILL = 8, // The excess of a message is discarded, and counts as received.
};

int ferry_load(const char *path, ferry_lib **lib, char *why, size_t room);
uint32_t ferry_version(ferry_lib *lib);
const char *ferry_error(ferry_lib *lib, int code);

int ferry_infos(ferry_lib *lib, const char *provider, void **list, const char **step);
int ferry_providers(ferry_lib *lib, void **list);
int ferry_next_info(void **at, ferry_info *out);
void ferry_free_infos(ferry_lib *lib, void *list);

int ferry_open(ferry_lib *lib, const void *info, int wait_fd, int directed, size_t entries, ferry_ep **ep, const char **step);
void ferry_close(ferry_ep *ep);
int ferry_name(ferry_ep *ep, void *buf, size_t *bytes);
int ferry_grow(ferry_ep *ep);
int ferry_insert(ferry_ep *ep, const void *address, uint64_t *out);
int ferry_remove(ferry_ep *ep, uint64_t address);
int ferry_fd(ferry_ep *ep);
int ferry_trywait(ferry_ep *ep);

int ferry_register(ferry_ep *ep, char *buf, size_t n, ferry_region **out);
int ferry_deregister(ferry_ep *ep, ferry_region *region);
void ferry_use(ferry_ep *ep, uint32_t slot, ferry_region *region);

// Buffers are pointers to char. For a pointer to void cgo would check the whole object around the buffer for Go pointers.
int ferry_tsend(ferry_ep *ep, uint32_t slot, const char *buf, size_t n, uint64_t to, uint64_t tag, uint64_t data, int kind);
int ferry_trecv(ferry_ep *ep, uint32_t slot, char *buf, size_t n, uint64_t from, uint64_t tag, uint64_t ignore, int kind);
int ferry_peek(ferry_ep *ep, uint32_t slot, uint64_t from, uint64_t tag, uint64_t ignore, int kind);
int ferry_send(ferry_ep *ep, uint32_t slot, const char *buf, size_t n, uint64_t to, int kind);
int ferry_recv(ferry_ep *ep, uint32_t slot, char *buf, size_t n);
int ferry_cancel(ferry_ep *ep, uint32_t slot);
int ferry_poll(ferry_ep *ep, ferry_event *out, int room);
const char *ferry_cq_error(ferry_ep *ep, int provider_error);

#endif
