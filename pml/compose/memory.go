package compose

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Memory is allocated by the node's PML, so that processes of the node can read it, and registered with the network. If
// the node's PML has none, the network's PML allocates it.

// memoryOwner is the allocator of memory, and the network that it is registered with, or nil.
type memoryOwner struct {
	pml.Allocator
	networkRegistrar pml.Registrar
}

// Allocate implements pml.Allocator.
func (m *Module) Allocate(bytes int) ([]byte, error) {
	memory, o, err := m.allocate(bytes)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.memoryOwners[&memory[0]] = o
	m.mu.Unlock()
	return memory, nil
}

func (m *Module) allocate(bytes int) (memory []byte, o memoryOwner, err error) {
	err = fmt.Errorf("%w: neither PML allocates memory", framework.ErrUnsupported)
	for _, from := range []pml.Module{m.nodePML, m.networkPML} {
		var ok bool
		if o.Allocator, ok = framework.As[pml.Allocator](from); !ok {
			continue
		}
		if memory, err = o.Allocate(bytes); errors.Is(err, framework.ErrUnsupported) {
			continue
		}
		if network, ok := framework.As[pml.Registrar](m.networkPML); ok && err == nil && from == m.nodePML {
			if failed := network.Register(memory); failed != nil && !errors.Is(failed, framework.ErrUnsupported) {
				return nil, o, errors.Join(failed, o.Free(memory))
			}
			o.networkRegistrar = network
		}
		break
	}
	return memory, o, err
}

// Free implements pml.Allocator. Memory that the network holds stays until the node's PML closes.
func (m *Module) Free(memory []byte) error {
	if len(memory) == 0 {
		return framework.ErrUnsupported
	}
	if m.joiner.Uses(memory) { // The two PMLs check the operations that they have.
		return fmt.Errorf("%w: a receive uses the memory", framework.ErrPending)
	}
	// After free, another goroutine may allocate memory at this address.
	m.mu.Lock()
	o, ok := m.memoryOwners[&memory[0]]
	delete(m.memoryOwners, &memory[0])
	m.mu.Unlock()
	if !ok {
		return framework.ErrUnsupported
	}
	err := o.free(memory)
	if err != nil {
		m.mu.Lock()
		m.memoryOwners[&memory[0]] = o
		m.mu.Unlock()
	}
	return err
}

func (o memoryOwner) free(memory []byte) error {
	if o.networkRegistrar == nil {
		return o.Allocator.Free(memory)
	}
	held, err := o.networkRegistrar.Deregister(memory)
	if held || err != nil {
		return err
	}
	if err = o.Allocator.Free(memory); err != nil {
		_ = o.networkRegistrar.Register(memory) // Messages also work without registration.
	}
	return err
}

// Uses implements pml.MemoryUser.
func (m *Module) Uses(memory []byte) bool {
	if m.joiner.Uses(memory) {
		return true
	}
	for _, below := range []pml.Module{m.nodePML, m.networkPML} {
		if u, ok := framework.As[pml.MemoryUser](below); ok && u.Uses(memory) {
			return true
		}
	}
	return false
}
