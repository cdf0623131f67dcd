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
)

// Memory that lasts is registered with the network once. Operations in it are given its
// descriptor, which saves those providers a look into their cache, or a registration, that
// have the network interface read and write memory (verbs, efa). A provider that wants a
// descriptor for every buffer (FI_MR_LOCAL) gets one: a buffer elsewhere is registered for the time
// of its operation (docs/decisions/registered-memory.md).

// region is memory that lasts.
type region struct {
	buf  []byte
	r    *libfabric.Region // nil: not yet, or not any more
	op   *mtl.Op           // of the Register or Deregister that is under way
	gone bool              // Deregister has taken it; libfabric holds it until the endpoint closes
	pins runtime.Pinner
}

// Register implements mtl.Registrar.
func (m *module) Register(op *mtl.Op, memory []byte) error {
	if m.broken != nil {
		return m.broken
	}
	if len(memory) == 0 {
		return errNoMemory
	}
	x := &region{buf: memory, op: op}
	x.pins.Pin(&memory[0])
	m.regions = append(m.regions, x)
	m.queue(func() { m.know(x) })
	m.next()
	return nil
}

// know registers a region.
func (m *module) know(x *region) {
	ep := m.ep
	var r *libfabric.Region
	var err error
	m.run(func() {
		// Some providers want pages to be there (FI_MR_ALLOCATED). Where the kernel does not know
		// how, registration does it.
		_ = unix.Madvise(x.buf, unix.MADV_POPULATE_WRITE)
		r, err = ep.Register(x.buf)
	}, func() {
		if x.r = r; err != nil {
			err = fmt.Errorf("%s: %w: %s does not register memory: %w", component, framework.ErrUnsupported, m.about.Provider, err)
			m.drop(x)
		}
		m.concluded(x, mtl.Result{Err: err})
	})
}

// concluded has the next Poll say that what was asked for a region is over.
func (m *module) concluded(x *region, r mtl.Result) {
	m.end(x.op, r)
	x.op = nil
}

func (m *module) drop(x *region) {
	x.pins.Unpin()
	m.regions = slices.DeleteFunc(m.regions, func(y *region) bool { return x == y })
}

// errNoMemory is for what Register was not given, or Deregister has taken.
var errNoMemory = errors.New("mtl ofi: this memory is not registered")

// Deregister implements mtl.Registrar.
func (m *module) Deregister(op *mtl.Op, memory []byte) error {
	i := slices.IndexFunc(m.regions, func(x *region) bool {
		return len(memory) > 0 && &x.buf[0] == &memory[0] && len(x.buf) == len(memory) && !x.gone && x.op == nil
	})
	if i < 0 {
		return errNoMemory
	}
	x := m.regions[i]
	for _, s := range m.slots {
		if s.kind == unused || !mem.Overlap(s.buf, x.buf) && !mem.Overlap(s.user, x.buf) {
			continue
		}
		if s.kind != abandoned {
			return fmt.Errorf("%s: %w: an operation uses the memory", component, framework.ErrPending)
		}
		x.gone = true
	}
	if x.gone || m.broken != nil {
		m.end(op, mtl.Result{Found: x.gone})
		return nil
	}
	x.op = op
	m.queue(func() { m.unknow(x) })
	m.next()
	return nil
}

// unknow ends a registration.
func (m *module) unknow(x *region) {
	ep, r := m.ep, x.r
	x.r = nil
	var err error
	m.run(func() { err = ep.Deregister(r) }, func() {
		if x.gone = err != nil; x.gone {
			m.env.Logger.Warn("mtl ofi: memory stays registered", "provider", m.about.Provider, "err", err)
		} else {
			m.drop(x)
		}
		m.concluded(x, mtl.Result{Found: x.gone})
	})
}

// register tells libfabric where an operation's buffer lies.
func (m *module) register(s *slot) error {
	if s.alone {
		return nil
	}
	var found *libfabric.Region
	for _, x := range m.regions {
		if x.r != nil && !x.gone && mem.Within(x.buf, s.buf) {
			found = x.r
			break
		}
	}
	if found == nil && m.local && len(s.buf) > 0 {
		var err error
		if found, err = m.ep.Register(s.buf); err != nil {
			return err
		}
		s.alone = true
	}
	if found != s.region {
		m.ep.Use(s.number, found)
		s.region = found
	}
	return nil
}

// deregister ends registrations for one operation.
func (m *module) deregister() {
	for _, r := range m.worn {
		if err := m.ep.Deregister(r); err != nil {
			m.env.Logger.Warn("mtl ofi: memory stays registered", "provider", m.about.Provider, "err", err)
		}
	}
	clear(m.worn)
	m.worn = m.worn[:0]
}
