package ob1

import (
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/mem"
)

// Allocate implements pml.Allocator by the first transport with memory for peers.
func (m *Module) Allocate(bytes int) ([]byte, error) {
	for _, t := range m.transports {
		if t.reader != nil {
			return t.reader.Allocate(bytes)
		}
	}
	return nil, fmt.Errorf("%w: no open transport has memory that peers read directly", framework.ErrUnsupported)
}

// Free implements pml.Allocator.
func (m *Module) Free(memory []byte) error {
	if m.Uses(memory) {
		return fmt.Errorf("%w: an operation uses the memory", framework.ErrPending)
	}
	for _, t := range m.transports {
		if t.reader != nil {
			return t.reader.Free(memory)
		}
	}
	return framework.ErrUnsupported
}

// Uses implements pml.MemoryUser.
func (m *Module) Uses(memory []byte) bool {
	m.engine.Lock()
	defer m.engine.Unlock()
	return slices.ContainsFunc(m.requests, func(r *request) bool {
		return r.state != stateIdle && r.state != stateComplete && mem.Overlap(r.buf.Bytes, memory)
	})
}
