// Registered memory. The network gets a part of it with its descriptor.
#include "testprov.h"

#include <stdlib.h>
#include <unistd.h>

// tell reports the begin or the end of a registration on a descriptor.
static void tell(const tp_domain *d, char what)
{
	if (d->c.registers && write(d->c.registers, &what, 1) != 1)
		abort(); // The test's pipe is full or closed.
}

static int close_region(ffid *f)
{
	tp_mr *m = OF(tp_mr, fid.fid, f);
	static int refused; // Closing the endpoint succeeds.
	if (!refused++)
		MAY_FAIL(&m->domain->c, "fi_close");
	tp_mr **at = &m->domain->regions;
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	tell(m->domain, '-');
	free(m);
	return 0;
}

static int bind_region(ffid *f, ffid *to, uint64_t flags)
{
	tp_mr *m = OF(tp_mr, fid.fid, f);
	MAY_FAIL(&m->domain->c, "fi_mr_bind");
	if (to->fclass != CLASS_EP || flags || m->bound)
		return -FFI_EINVAL;
	m->bound = 1;
	return 0;
}

static int control(ffid *f, int command, void *arg)
{
	(void)arg;
	tp_mr *m = OF(tp_mr, fid.fid, f);
	MAY_FAIL(&m->domain->c, "fi_mr_enable");
	if (command != FFI_ENABLE || !m->bound)
		return -FFI_EINVAL;
	m->enabled = 1;
	return 0;
}

static ffi_ops fid_ops = {.size = sizeof(fid_ops), .close = close_region, .bind = bind_region, .control = control};

static int reg(ffid *f, const void *buf, size_t n, uint64_t access, uint64_t offset, uint64_t key, uint64_t flags, ffid_mr **out, void *context)
{
	(void)key, (void)flags;
	tp_domain *d = OF(tp_domain, fid.fid, f);
	MAY_FAIL(&d->c, "fi_mr_reg");
	if (access != (FFI_SEND | FFI_RECV) || offset || n == 0)
		return -FFI_EINVAL;
	tp_mr *m = calloc(1, sizeof(*m));
	if (!m)
		return -FFI_ENOMEM;
	*m = (tp_mr){.fid = {.fid = {CLASS_MR, context, &fid_ops}, .mem_desc = m}, .next = d->regions, .domain = d, .at = buf, .n = n};
	d->regions = m;
	*out = &m->fid;
	tell(d, '+');
	return 0;
}

ffi_ops_mr tp_region_calls = {.size = sizeof(tp_region_calls), .reg = reg};

// tp_may reports whether a call may get n bytes with a descriptor, or without one.
int tp_may(const tp_domain *d, const void *desc, const void *buf, size_t n)
{
	if (n == 0 || (!desc && !(d->c.mr & FFI_MR_LOCAL)))
		return 1;
	for (const tp_mr *m = d->regions; m; m = m->next)
		if (m == desc)
			return (m->enabled || !(d->c.mr & FFI_MR_ENDPOINT)) && m->at <= (const char *)buf && (const char *)buf + n <= m->at + m->n;
	return 0;
}
