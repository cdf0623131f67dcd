// The part of libfabric's binary interface that ferry uses, from version 1.17 to 2.6, so that the
// library's headers are not needed: structures up to the last field that is used, and
// constants. Each name is that of libfabric with the prefix f. testdata/abi.c compares them with
// the library's headers.
//
// Newer versions append fields. Structures of the library end here with the last field that is
// used. Our structures have zeroed space at their end, which newer versions may read or write.
#ifndef FERRY_LIBFABRIC_ABI_H
#define FERRY_LIBFABRIC_ABI_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

// Version of the interface that providers are queried with. 1.17 is the oldest version that ferry
// is tested with.
#define FFI_VERSION(major, minor) ((uint32_t)(major) << 16 | (minor))

// Error numbers of the system and of libfabric.
enum {
	FFI_EAGAIN = EAGAIN,
	FFI_ENOMEM = ENOMEM,
	FFI_EINVAL = EINVAL,
	FFI_ENOMSG = ENOMSG,
	FFI_ENODATA = ENODATA,
	FFI_ECANCELED = ECANCELED,
	FFI_EOTHER = 256,
	FFI_EAVAIL = 259,
	FFI_ETRUNC = 265,
};

// Capabilities, flags of calls and modes are 64-bit sets. A bit may have a meaning in each.
#define FFI_BIT(n) ((uint64_t)1 << (n))
#define FFI_MSG FFI_BIT(1)
#define FFI_TAGGED FFI_BIT(3)
#define FFI_RECV FFI_BIT(10)
#define FFI_SEND FFI_BIT(11)
#define FFI_TRANSMIT FFI_BIT(11)
#define FFI_PEEK FFI_BIT(19)
#define FFI_COMPLETION FFI_BIT(24)
#define FFI_LOCAL_COMM FFI_BIT(51)
#define FFI_REMOTE_COMM FFI_BIT(52)
#define FFI_PROV_ATTR_ONLY FFI_BIT(54)
#define FFI_SOURCE FFI_BIT(57)
#define FFI_DIRECTED_RECV FFI_BIT(59)
#define FFI_CLAIM FFI_BIT(59)
#define FFI_CONTEXT FFI_BIT(59)
#define FFI_CONTEXT2 FFI_BIT(52)
#define FFI_ORDER_SAS FFI_BIT(8)

#define FFI_ADDR_UNSPEC UINT64_MAX
#define FFI_ADDR_NOTAVAIL UINT64_MAX

enum {
	FFI_EP_RDM = 3,
	FFI_THREAD_DOMAIN = 3,
	FFI_PROGRESS_MANUAL = 2,
	FFI_RM_ENABLED = 2,
	FFI_BUS_PCI = 1,
	FFI_CQ_FORMAT_TAGGED = 4,
	FFI_WAIT_NONE = 0,
	FFI_WAIT_FD = 3,
	FFI_GETWAIT = 5, // Command of control.
	FFI_ENABLE = 6,
};

// Modes of memory registration.
enum {
	FFI_MR_LOCAL = 1 << 2, // All buffers of calls must be registered.
	FFI_MR_VIRT_ADDR = 1 << 4,
	FFI_MR_ALLOCATED = 1 << 5,
	FFI_MR_PROV_KEY = 1 << 6,
	FFI_MR_ENDPOINT = 1 << 9,
};

// Formats of addresses.
enum {
	FFI_SOCKADDR = 1,
	FFI_SOCKADDR_IN = 2,
	FFI_SOCKADDR_IN6 = 3,
	FFI_SOCKADDR_IB = 4,
	FFI_ADDR_STR = 9,
};

// Space for fields of newer versions.
#define FFI_ROOM void *later[4]

// Objects. Each begins with an ffid, whose calls they have in common.
typedef struct ffid ffid;
typedef struct ffid_fabric ffid_fabric;
typedef struct ffid_domain ffid_domain;
typedef struct ffid_av ffid_av;
typedef struct ffid_cq ffid_cq;
typedef struct ffid_ep ffid_ep;

// An entry of a table of calls that ferry never uses.
typedef void (*ffi_unused)(void);

typedef struct ffi_ops {
	size_t size;
	int (*close)(ffid *f);
	int (*bind)(ffid *f, ffid *to, uint64_t flags);
	int (*control)(ffid *f, int command, void *arg);
} ffi_ops;

struct ffid {
	size_t fclass;
	void *context;
	ffi_ops *ops;
};

// An offer of a provider. fi_dupinfo(NULL) returns an empty one with all of its parts.
typedef struct ffi_tx_attr {
	uint64_t caps, mode, op_flags, msg_order, comp_order;
	size_t inject_size, size;
} ffi_tx_attr;

typedef struct ffi_rx_attr {
	uint64_t caps, mode, op_flags, msg_order, comp_order;
	size_t total_buffered_recv, size, iov_limit;
} ffi_rx_attr;

typedef struct ffi_ep_attr {
	int type;
	uint32_t protocol, protocol_version;
	size_t max_msg_size, msg_prefix_size, max_order_raw_size, max_order_war_size, max_order_waw_size;
	uint64_t mem_tag_format;
} ffi_ep_attr;

typedef struct ffi_domain_attr {
	ffid_domain *domain;
	char *name;
	int threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode;
	size_t mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt;
	size_t max_ep_tx_ctx, max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit;
	uint64_t caps;
} ffi_domain_attr;

typedef struct ffi_fabric_attr {
	ffid_fabric *fabric;
	char *name, *prov_name;
} ffi_fabric_attr;

typedef struct ffi_pci_attr {
	uint16_t domain_id;
	uint8_t bus_id, device_id, function_id;
} ffi_pci_attr;

typedef struct ffi_bus_attr {
	int bus_type;
	union {
		ffi_pci_attr pci;
	} attr;
} ffi_bus_attr;

typedef struct ffid_nic {
	ffid fid;
	void *device_attr;
	ffi_bus_attr *bus_attr;
} ffid_nic;

typedef struct ffi_info {
	struct ffi_info *next;
	uint64_t caps, mode;
	uint32_t addr_format;
	size_t src_addrlen, dest_addrlen;
	void *src_addr, *dest_addr;
	ffid *handle;
	ffi_tx_attr *tx_attr;
	ffi_rx_attr *rx_attr;
	ffi_ep_attr *ep_attr;
	ffi_domain_attr *domain_attr;
	ffi_fabric_attr *fabric_attr;
	ffid_nic *nic;
} ffi_info;

// Fabric and domain.
typedef struct ffi_ops_fabric {
	size_t size;
	int (*domain)(ffid_fabric *f, ffi_info *info, ffid_domain **out, void *context);
	ffi_unused passive_ep, eq_open, wait_open;
	int (*trywait)(ffid_fabric *f, ffid **fids, int count);
} ffi_ops_fabric;

struct ffid_fabric {
	ffid fid;
	ffi_ops_fabric *ops;
};

typedef struct ffi_av_attr {
	int type, rx_ctx_bits;
	size_t count, ep_per_node;
	const char *name;
	void *map_addr;
	uint64_t flags;
	FFI_ROOM;
} ffi_av_attr;

typedef struct ffi_cq_attr {
	size_t size;
	uint64_t flags;
	int format, wait_obj, signaling_vector, wait_cond;
	void *wait_set;
	FFI_ROOM; // One more after 2.6.
} ffi_cq_attr;

typedef struct ffi_ops_domain {
	size_t size;
	int (*av_open)(ffid_domain *d, ffi_av_attr *attr, ffid_av **out, void *context);
	int (*cq_open)(ffid_domain *d, ffi_cq_attr *attr, ffid_cq **out, void *context);
	int (*endpoint)(ffid_domain *d, ffi_info *info, ffid_ep **out, void *context);
} ffi_ops_domain;

// Registered memory. Calls with a part of it also get mem_desc.
typedef struct ffid_mr {
	ffid fid;
	void *mem_desc;
} ffid_mr;

typedef struct ffi_ops_mr {
	size_t size;
	int (*reg)(ffid *domain, const void *buf, size_t len, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags, ffid_mr **out, void *context);
} ffi_ops_mr;

struct ffid_domain {
	ffid fid;
	ffi_ops_domain *ops;
	ffi_ops_mr *mr;
};

// Address vector.
typedef struct ffi_ops_av {
	size_t size;
	int (*insert)(ffid_av *av, const void *address, size_t count, uint64_t *out, uint64_t flags, void *context);
	ffi_unused insertsvc, insertsym;
	int (*remove)(ffid_av *av, uint64_t *address, size_t count, uint64_t flags);
} ffi_ops_av;

struct ffid_av {
	ffid fid;
	ffi_ops_av *ops;
};

// Completion queue. Entries are an array whose elements have a fixed size.
typedef struct ffi_cq_tagged_entry {
	void *op_context;
	uint64_t flags;
	size_t len;
	void *buf;
	uint64_t data, tag;
} ffi_cq_tagged_entry;

typedef struct ffi_cq_err_entry {
	void *op_context;
	uint64_t flags;
	size_t len;
	void *buf;
	uint64_t data, tag;
	size_t olen;
	int err, prov_errno;
	void *err_data;
	size_t err_data_size;
	FFI_ROOM; // The source, from 1.20 on.
} ffi_cq_err_entry;

typedef struct ffi_ops_cq {
	size_t size;
	ssize_t (*read)(ffid_cq *cq, void *entries, size_t count);
	ffi_unused readfrom;
	ssize_t (*readerr)(ffid_cq *cq, ffi_cq_err_entry *out, uint64_t flags);
	ffi_unused sread, sreadfrom, signal;
	const char *(*strerror)(ffid_cq *cq, int prov_errno, const void *err_data, char *buf, size_t len);
} ffi_ops_cq;

struct ffid_cq {
	ffid fid;
	ffi_ops_cq *ops;
};

// Endpoint.
typedef struct ffi_ops_ep {
	size_t size;
	ssize_t (*cancel)(ffid *f, void *context);
} ffi_ops_ep;

typedef struct ffi_ops_cm {
	size_t size;
	ffi_unused setname;
	int (*getname)(ffid *f, void *address, size_t *len);
} ffi_ops_cm;

typedef struct ffi_ops_msg {
	size_t size;
	ssize_t (*recv)(ffid_ep *ep, void *buf, size_t len, void *desc, uint64_t from, void *context);
	ffi_unused recvv, recvmsg;
	ssize_t (*send)(ffid_ep *ep, const void *buf, size_t len, void *desc, uint64_t to, void *context);
	ffi_unused sendv, sendmsg;
	ssize_t (*inject)(ffid_ep *ep, const void *buf, size_t len, uint64_t to);
} ffi_ops_msg;

typedef struct ffi_msg_tagged {
	const struct iovec *msg_iov;
	void **desc;
	size_t iov_count;
	uint64_t addr, tag, ignore;
	void *context;
	uint64_t data;
	FFI_ROOM;
} ffi_msg_tagged;

typedef struct ffi_ops_tagged {
	size_t size;
	ssize_t (*recv)(ffid_ep *ep, void *buf, size_t len, void *desc, uint64_t from, uint64_t tag, uint64_t ignore, void *context);
	ffi_unused recvv;
	ssize_t (*recvmsg)(ffid_ep *ep, const ffi_msg_tagged *msg, uint64_t flags);
	ssize_t (*send)(ffid_ep *ep, const void *buf, size_t len, void *desc, uint64_t to, uint64_t tag, void *context);
	ffi_unused sendv, sendmsg;
	ssize_t (*inject)(ffid_ep *ep, const void *buf, size_t len, uint64_t to, uint64_t tag);
	ssize_t (*senddata)(ffid_ep *ep, const void *buf, size_t len, void *desc, uint64_t data, uint64_t to, uint64_t tag, void *context);
	ssize_t (*injectdata)(ffid_ep *ep, const void *buf, size_t len, uint64_t data, uint64_t to, uint64_t tag);
} ffi_ops_tagged;

struct ffid_ep {
	ffid fid;
	ffi_ops_ep *ops;
	ffi_ops_cm *cm;
	ffi_ops_msg *msg;
	void *rma;
	ffi_ops_tagged *tagged;
};

// Memory that the library writes while an operation is in progress.
typedef struct ffi_context2 {
	void *internal[8];
} ffi_context2;

// The functions by their names in the library. Its symbols have versions. The dynamic linker
// resolves the newest of each, whose structures are at least as long as these.
typedef struct ffi_calls {
	int (*fi_getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const ffi_info *hints, ffi_info **out);
	void (*fi_freeinfo)(ffi_info *info);
	ffi_info *(*fi_dupinfo)(const ffi_info *info);
	int (*fi_fabric)(ffi_fabric_attr *attr, ffid_fabric **out, void *context);
	uint32_t (*fi_version)(void);
	const char *(*fi_strerror)(int code);
} ffi_calls;

#endif
