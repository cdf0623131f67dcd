// Compares abi.h with libfabric's own headers. It says what differs, and exits with the
// number of differences.
#include "../abi.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>

static int wrong;

static void same(const char *what, unsigned long long ours, unsigned long long theirs)
{
	if (ours != theirs) {
		printf("%s: %llu here, %llu in the library's headers\n", what, ours, theirs);
		wrong++;
	}
}

// What the library makes may be longer than what we read of it, and what we make longer
// than what the library writes.
static void fits(const char *what, size_t shorter, size_t longer)
{
	if (shorter > longer) {
		printf("size of %s: %zu do not fit into %zu\n", what, shorter, longer);
		wrong++;
	}
}

#define SIZE(type) same("size of " #type, sizeof(f##type), sizeof(struct type))
#define THEIRS(type) fits(#type, sizeof(f##type), sizeof(struct type))
#define OURS(type) fits(#type, sizeof(struct type), sizeof(f##type))
#define NUMBER(name) same(#name, (unsigned long long)F##name, (unsigned long long)(name))

// A field: where it is, and how long it is.
#define FIELD(type, field)                                                                           \
	do {                                                                                         \
		same(#type "." #field, offsetof(f##type, field), offsetof(struct type, field));      \
		same("size of " #type "." #field, sizeof(((f##type *)0)->field), sizeof(((struct type *)0)->field)); \
	} while (0)

// A call in a table, and a function: that it takes as many arguments, and has a result of
// the same size. It is not called.
#define CALL(type, field, ...)                                                                       \
	do {                                                                                         \
		f##type ours;                                                                        \
		struct type theirs;                                                                  \
		FIELD(type, field);                                                                  \
		RESULT(#type "." #field, ours.field(__VA_ARGS__), theirs.field(__VA_ARGS__));        \
	} while (0)
#define FUNCTION(name, ...)                                                                          \
	do {                                                                                         \
		ffi_calls ours;                                                                      \
		RESULT(#name, ours.name(__VA_ARGS__), name(__VA_ARGS__));                            \
	} while (0)
#define RESULT(what, ours, theirs) same("size of the result of " what, sizeof(ours), sizeof(theirs))

static void structures(void)
{
	OURS(fi_context2);
	OURS(fi_av_attr);
	FIELD(fi_av_attr, type);
	FIELD(fi_av_attr, rx_ctx_bits);
	FIELD(fi_av_attr, count);
	FIELD(fi_av_attr, ep_per_node);
	FIELD(fi_av_attr, name);
	FIELD(fi_av_attr, map_addr);
	FIELD(fi_av_attr, flags);
	OURS(fi_cq_attr);
	FIELD(fi_cq_attr, size);
	FIELD(fi_cq_attr, flags);
	FIELD(fi_cq_attr, format);
	FIELD(fi_cq_attr, wait_obj);
	FIELD(fi_cq_attr, signaling_vector);
	FIELD(fi_cq_attr, wait_cond);
	FIELD(fi_cq_attr, wait_set);
	OURS(fi_msg_tagged);
	FIELD(fi_msg_tagged, msg_iov);
	FIELD(fi_msg_tagged, desc);
	FIELD(fi_msg_tagged, iov_count);
	FIELD(fi_msg_tagged, addr);
	FIELD(fi_msg_tagged, tag);
	FIELD(fi_msg_tagged, ignore);
	FIELD(fi_msg_tagged, context);
	FIELD(fi_msg_tagged, data);
	SIZE(fi_cq_tagged_entry);
	FIELD(fi_cq_tagged_entry, op_context);
	FIELD(fi_cq_tagged_entry, flags);
	FIELD(fi_cq_tagged_entry, len);
	FIELD(fi_cq_tagged_entry, buf);
	FIELD(fi_cq_tagged_entry, data);
	FIELD(fi_cq_tagged_entry, tag);
	OURS(fi_cq_err_entry);
	FIELD(fi_cq_err_entry, op_context);
	FIELD(fi_cq_err_entry, flags);
	FIELD(fi_cq_err_entry, len);
	FIELD(fi_cq_err_entry, buf);
	FIELD(fi_cq_err_entry, data);
	FIELD(fi_cq_err_entry, tag);
	FIELD(fi_cq_err_entry, olen);
	FIELD(fi_cq_err_entry, err);
	FIELD(fi_cq_err_entry, prov_errno);
	FIELD(fi_cq_err_entry, err_data);
	FIELD(fi_cq_err_entry, err_data_size);

	THEIRS(fi_info);
	FIELD(fi_info, next);
	FIELD(fi_info, caps);
	FIELD(fi_info, mode);
	FIELD(fi_info, addr_format);
	FIELD(fi_info, src_addrlen);
	FIELD(fi_info, src_addr);
	FIELD(fi_info, tx_attr);
	FIELD(fi_info, rx_attr);
	FIELD(fi_info, ep_attr);
	FIELD(fi_info, domain_attr);
	FIELD(fi_info, fabric_attr);
	FIELD(fi_info, nic);
	THEIRS(fi_tx_attr);
	FIELD(fi_tx_attr, msg_order);
	FIELD(fi_tx_attr, inject_size);
	FIELD(fi_tx_attr, size);
	THEIRS(fi_rx_attr);
	FIELD(fi_rx_attr, caps);
	FIELD(fi_rx_attr, msg_order);
	FIELD(fi_rx_attr, size);
	FIELD(fi_rx_attr, iov_limit);
	THEIRS(fi_ep_attr);
	FIELD(fi_ep_attr, type);
	FIELD(fi_ep_attr, max_msg_size);
	FIELD(fi_ep_attr, mem_tag_format);
	THEIRS(fi_domain_attr);
	FIELD(fi_domain_attr, name);
	FIELD(fi_domain_attr, threading);
	FIELD(fi_domain_attr, control_progress);
	FIELD(fi_domain_attr, data_progress);
	FIELD(fi_domain_attr, resource_mgmt);
	FIELD(fi_domain_attr, av_type);
	FIELD(fi_domain_attr, mr_mode);
	FIELD(fi_domain_attr, cq_data_size);
	FIELD(fi_domain_attr, caps);
	THEIRS(fi_fabric_attr);
	FIELD(fi_fabric_attr, name);
	FIELD(fi_fabric_attr, prov_name);
	THEIRS(fid_nic);
	FIELD(fid_nic, bus_attr);
	THEIRS(fi_bus_attr);
	FIELD(fi_bus_attr, bus_type);
	FIELD(fi_bus_attr, attr.pci);
	THEIRS(fi_pci_attr);
	FIELD(fi_pci_attr, domain_id);
	FIELD(fi_pci_attr, bus_id);
	FIELD(fi_pci_attr, device_id);
	FIELD(fi_pci_attr, function_id);
}

static void calls(void)
{
	THEIRS(fid);
	FIELD(fid, ops);
	THEIRS(fi_ops);
	CALL(fi_ops, close, NULL);
	CALL(fi_ops, bind, NULL, NULL, 0);
	CALL(fi_ops, control, NULL, 0, NULL);
	THEIRS(fid_fabric);
	FIELD(fid_fabric, fid);
	FIELD(fid_fabric, ops);
	THEIRS(fi_ops_fabric);
	CALL(fi_ops_fabric, domain, NULL, NULL, NULL, NULL);
	CALL(fi_ops_fabric, trywait, NULL, NULL, 0);
	THEIRS(fid_domain);
	FIELD(fid_domain, fid);
	FIELD(fid_domain, ops);
	THEIRS(fi_ops_domain);
	CALL(fi_ops_domain, av_open, NULL, NULL, NULL, NULL);
	CALL(fi_ops_domain, cq_open, NULL, NULL, NULL, NULL);
	CALL(fi_ops_domain, endpoint, NULL, NULL, NULL, NULL);
	FIELD(fid_domain, mr);
	THEIRS(fid_mr);
	FIELD(fid_mr, fid);
	FIELD(fid_mr, mem_desc);
	THEIRS(fi_ops_mr);
	CALL(fi_ops_mr, reg, NULL, NULL, 0, 0, 0, 0, 0, NULL, NULL);
	THEIRS(fid_av);
	FIELD(fid_av, fid);
	FIELD(fid_av, ops);
	THEIRS(fi_ops_av);
	CALL(fi_ops_av, insert, NULL, NULL, 0, (uint64_t *)NULL, 0, NULL);
	CALL(fi_ops_av, remove, NULL, (uint64_t *)NULL, 0, 0);
	THEIRS(fid_cq);
	FIELD(fid_cq, fid);
	FIELD(fid_cq, ops);
	THEIRS(fi_ops_cq);
	CALL(fi_ops_cq, read, NULL, NULL, 0);
	CALL(fi_ops_cq, readerr, NULL, NULL, 0);
	CALL(fi_ops_cq, strerror, NULL, 0, NULL, NULL, 0);
	THEIRS(fid_ep);
	FIELD(fid_ep, fid);
	FIELD(fid_ep, ops);
	FIELD(fid_ep, cm);
	FIELD(fid_ep, msg);
	FIELD(fid_ep, tagged);
	THEIRS(fi_ops_ep);
	CALL(fi_ops_ep, cancel, NULL, NULL);
	THEIRS(fi_ops_cm);
	CALL(fi_ops_cm, getname, NULL, NULL, (size_t *)NULL);
	THEIRS(fi_ops_msg);
	CALL(fi_ops_msg, recv, NULL, NULL, 0, NULL, 0, NULL);
	CALL(fi_ops_msg, send, NULL, NULL, 0, NULL, 0, NULL);
	CALL(fi_ops_msg, inject, NULL, NULL, 0, 0);
	THEIRS(fi_ops_tagged);
	CALL(fi_ops_tagged, recv, NULL, NULL, 0, NULL, 0, 0, 0, NULL);
	CALL(fi_ops_tagged, recvmsg, NULL, NULL, 0);
	CALL(fi_ops_tagged, send, NULL, NULL, 0, NULL, 0, 0, NULL);
	CALL(fi_ops_tagged, inject, NULL, NULL, 0, 0, 0);
	CALL(fi_ops_tagged, senddata, NULL, NULL, 0, NULL, 0, 0, 0, NULL);
	CALL(fi_ops_tagged, injectdata, NULL, NULL, 0, 0, 0, 0);

	FUNCTION(fi_getinfo, 0, "", "", 0, NULL, NULL);
	FUNCTION(fi_freeinfo, NULL);
	FUNCTION(fi_dupinfo, NULL);
	FUNCTION(fi_fabric, NULL, NULL, NULL);
	FUNCTION(fi_version);
	FUNCTION(fi_strerror, 0);
}

static void numbers(void)
{
	same("FI_VERSION", FFI_VERSION(1, 17), FI_VERSION(1, 17));
	same("size of an address's number", sizeof(uint64_t), sizeof(fi_addr_t));
	NUMBER(FI_EAGAIN);
	NUMBER(FI_ENOMEM);
	NUMBER(FI_EINVAL);
	NUMBER(FI_ENOMSG);
	NUMBER(FI_ENODATA);
	NUMBER(FI_ECANCELED);
	NUMBER(FI_EOTHER);
	NUMBER(FI_EAVAIL);
	NUMBER(FI_ETRUNC);
	NUMBER(FI_MSG);
	NUMBER(FI_TAGGED);
	NUMBER(FI_RECV);
	NUMBER(FI_SEND);
	NUMBER(FI_TRANSMIT);
	NUMBER(FI_PEEK);
	NUMBER(FI_COMPLETION);
	NUMBER(FI_LOCAL_COMM);
	NUMBER(FI_REMOTE_COMM);
	NUMBER(FI_PROV_ATTR_ONLY);
	NUMBER(FI_SOURCE);
	NUMBER(FI_DIRECTED_RECV);
	NUMBER(FI_CLAIM);
	NUMBER(FI_CONTEXT);
	NUMBER(FI_CONTEXT2);
	NUMBER(FI_ORDER_SAS);
	NUMBER(FI_ADDR_UNSPEC);
	NUMBER(FI_ADDR_NOTAVAIL);
	NUMBER(FI_EP_RDM);
	NUMBER(FI_THREAD_DOMAIN);
	NUMBER(FI_PROGRESS_MANUAL);
	NUMBER(FI_RM_ENABLED);
	NUMBER(FI_BUS_PCI);
	NUMBER(FI_CQ_FORMAT_TAGGED);
	NUMBER(FI_WAIT_NONE);
	NUMBER(FI_WAIT_FD);
	NUMBER(FI_GETWAIT);
	NUMBER(FI_ENABLE);
	NUMBER(FI_MR_LOCAL);
	NUMBER(FI_MR_VIRT_ADDR);
	NUMBER(FI_MR_ALLOCATED);
	NUMBER(FI_MR_PROV_KEY);
	NUMBER(FI_MR_ENDPOINT);
	NUMBER(FI_SOCKADDR);
	NUMBER(FI_SOCKADDR_IN);
	NUMBER(FI_SOCKADDR_IN6);
	NUMBER(FI_SOCKADDR_IB);
	NUMBER(FI_ADDR_STR);
}

int main(void)
{
	structures();
	calls();
	numbers();
	return wrong;
}
