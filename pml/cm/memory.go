package cm

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/mem"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/progress"
)

// mtlCall is an operation of the MTL that a goroutine waits for.
type mtlCall struct {
	m          *Module
	op         mtl.Op
	completion progress.Completion
}

// Done implements mtl.Owner.
func (a *mtlCall) Done(*mtl.Op) { a.m.engine.Complete(&a.completion) }

// runMTLOp starts an operation of the MTL and waits for its completion. Lock held, and released during the wait.
func (m *Module) runMTLOp(begin func(*mtl.Op) error) (mtl.Result, error) {
	a := &mtlCall{m: m}
	a.op.Owner = a
	if err := begin(&a.op); err != nil {
		return mtl.Result{}, err
	}
	if err := m.engine.Wait(context.Background(), &a.completion, m.pollSource); err != nil {
		return mtl.Result{}, err
	}
	return a.op.Result, a.op.Err
}

// registrar returns the MTL's Registrar, if the network registers memory.
func (m *Module) registrar() (mtl.Registrar, error) {
	r, ok := framework.As[mtl.Registrar](m.mtl)
	if !ok {
		return nil, fmt.Errorf("%w: mtl %s registers no memory", framework.ErrUnsupported, m.mtlName)
	}
	return r, nil
}

// Register implements pml.Registrar.
func (m *Module) Register(memory []byte) error {
	r, err := m.registrar()
	if err != nil {
		return err
	}
	m.engine.Lock()
	defer m.engine.Unlock()
	if _, err = m.runMTLOp(func(op *mtl.Op) error { return r.Register(op, memory) }); err == nil {
		m.registeredMemory[&memory[0]] = struct{}{}
	}
	return err
}

// Deregister implements pml.Registrar.
func (m *Module) Deregister(memory []byte) (held bool, err error) {
	m.engine.Lock()
	defer m.engine.Unlock()
	if m.uses(memory) {
		return false, fmt.Errorf("%w: an operation uses the memory", framework.ErrPending)
	}
	if _, ok := m.registeredMemory[&memory[0]]; !ok {
		return false, nil
	}
	registrar, err := m.registrar()
	if err != nil {
		return false, err
	}
	res, err := m.runMTLOp(func(op *mtl.Op) error { return registrar.Deregister(op, memory) })
	if err == nil {
		delete(m.registeredMemory, &memory[0])
	}
	return res.Found, err
}

// Allocate implements pml.Allocator. It allocates whole pages.
func (m *Module) Allocate(bytes int) ([]byte, error) {
	if _, err := m.registrar(); err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("pml cm: %w", err)
	}
	if err := m.Register(memory); err != nil {
		_ = unix.Munmap(memory) // It cannot fail for the result of Mmap.
		return nil, err
	}
	return memory, nil
}

// isRegistered reports whether memory that begins at this address is registered.
func (m *Module) isRegistered(memory []byte) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	if len(memory) == 0 {
		return false
	}
	_, ok := m.registeredMemory[&memory[0]]
	return ok
}

// Free implements pml.Allocator. Memory that the network still holds is never unmapped.
func (m *Module) Free(memory []byte) error {
	if !m.isRegistered(memory) {
		return fmt.Errorf("%w: this memory is not from Allocate", framework.ErrUnsupported)
	}
	held, err := m.Deregister(memory)
	if err != nil || held {
		return err
	}
	return unix.Munmap(memory)
}

// Uses implements pml.MemoryUser.
func (m *Module) Uses(memory []byte) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	return m.uses(memory)
}

// uses is Uses with the lock held.
func (m *Module) uses(memory []byte) bool {
	return slices.ContainsFunc(m.allRequests, func(r *request) bool {
		return r.c != nil && r.state != complete && mem.Overlap(r.userBuf.Bytes, memory)
	})
}
