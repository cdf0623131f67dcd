package ofi

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// Memory that programs use for many messages is registered once. Operations in it pass its descriptor to
// libfabric, which spares providers whose network interface accesses memory (verbs, efa) a cache
// lookup or a registration. A provider that requires a descriptor for each buffer (FI_MR_LOCAL) gets
// one: other buffers are registered for one operation (docs/decisions/registered-memory.md).

// registrations holds the registered memory of a module.
type registrations struct {
	regions []*region
	// expiredRegions are registrations of single operations that have ended. The next Poll closes them.
	expiredRegions []*libfabric.Region
	// isRequired is set for a provider that accepts only registered buffers.
	isRequired bool
}

// region is memory that is registered until Deregister.
type region struct {
	buf []byte
	// handle is nil before registration has completed and after deregistration has started.
	handle *libfabric.Region
	// pendingOp is the Register or Deregister in progress, or nil.
	pendingOp *mtl.Op
	// isRetired is set if libfabric may read the memory after Deregister, until the endpoint closes.
	isRetired  bool
	bufferPins runtime.Pinner
}

// Register implements mtl.Registrar.
func (m *module) Register(op *mtl.Op, memory []byte) error {
	if m.Err != nil {
		return m.Err
	}
	if len(memory) == 0 {
		return errNotRegistered
	}
	x := &region{buf: memory, pendingOp: op}
	x.bufferPins.Pin(&memory[0])
	m.registrations.regions = append(m.registrations.regions, x)
	m.queueOffload(func() { m.registerRegion(x) })
	m.startOffloads()
	return nil
}

func (m *module) registerRegion(x *region) {
	ep := m.ep
	var r *libfabric.Region
	var err error
	m.runOffloaded(func() {
		// Some providers require populated pages (FI_MR_ALLOCATED). An old kernel lacks this call, and
		// registration populates them.
		_ = unix.Madvise(x.buf, unix.MADV_POPULATE_WRITE)
		r, err = ep.Register(x.buf)
	}, func() {
		if x.handle = r; err != nil {
			err = fmt.Errorf("%s: %w: %s does not register memory: %w", component, framework.ErrUnsupported, m.Description.Provider, err)
			m.removeRegion(x)
		}
		m.completeRegion(x, mtl.Result{Err: err})
	})
}

// completeRegion queues the result of the operation on a region.
func (m *module) completeRegion(x *region, r mtl.Result) {
	m.QueueResult(x.pendingOp, r)
	x.pendingOp = nil
}

func (m *module) removeRegion(x *region) {
	x.bufferPins.Unpin()
	m.registrations.regions = slices.DeleteFunc(m.registrations.regions, func(y *region) bool { return x == y })
}

var errNotRegistered = errors.New("mtl ofi: this memory is not registered")

// Deregister implements mtl.Registrar.
func (m *module) Deregister(op *mtl.Op, memory []byte) error {
	i := slices.IndexFunc(m.registrations.regions, func(x *region) bool {
		return len(memory) > 0 && &x.buf[0] == &memory[0] && len(x.buf) == len(memory) && !x.isRetired && x.pendingOp == nil
	})
	if i < 0 {
		return errNotRegistered
	}
	x := m.registrations.regions[i]
	for _, s := range m.slotsByNumber {
		if s.Kind == base.SlotUnused || !mem.Overlap(s.Buf, x.buf) && !mem.Overlap(s.UserBuf, x.buf) {
			continue
		}
		if s.Kind != base.SlotAbandoned {
			return fmt.Errorf("%s: %w: an operation uses the memory", component, framework.ErrPending)
		}
		x.isRetired = true
	}
	if x.isRetired || m.Err != nil {
		m.QueueResult(op, mtl.Result{Found: x.isRetired})
		return nil
	}
	x.pendingOp = op
	m.queueOffload(func() { m.deregisterRegion(x) })
	m.startOffloads()
	return nil
}

func (m *module) deregisterRegion(x *region) {
	ep, r := m.ep, x.handle
	x.handle = nil
	var err error
	m.runOffloaded(func() { err = ep.Deregister(r) }, func() {
		if x.isRetired = err != nil; x.isRetired {
			m.Env.Logger.Warn("mtl ofi: memory stays registered", "provider", m.Description.Provider, "err", err)
		} else {
			m.removeRegion(x)
		}
		m.completeRegion(x, mtl.Result{Found: x.isRetired})
	})
}

// attachRegion sets the memory descriptor of an operation's buffer.
func (m *module) attachRegion(s *slot) error {
	if s.ownsRegion {
		return nil
	}
	var found *libfabric.Region
	for _, x := range m.registrations.regions {
		if x.handle != nil && !x.isRetired && mem.Within(x.buf, s.Buf) {
			found = x.handle
			break
		}
	}
	if found == nil && m.registrations.isRequired && len(s.Buf) > 0 {
		var err error
		if found, err = m.ep.Register(s.Buf); err != nil {
			return err
		}
		s.ownsRegion = true
	}
	if found != s.region {
		m.ep.SetRegion(s.Number, found)
		s.region = found
	}
	return nil
}

// releaseExpired closes the registrations of operations that have ended.
func (m *module) releaseExpired() {
	for _, r := range m.registrations.expiredRegions {
		if err := m.ep.Deregister(r); err != nil {
			m.Env.Logger.Warn("mtl ofi: memory stays registered", "provider", m.Description.Provider, "err", err)
		}
	}
	clear(m.registrations.expiredRegions)
	m.registrations.expiredRegions = m.registrations.expiredRegions[:0]
}
