package pml

// Allocator is an optional interface of a Module (framework.As). It allocates memory that other processes of the node can
// read directly, so that a large message is copied once, or that is registered with the network.
type Allocator interface {
	// Allocate returns zeroed memory of this length, at least 1, with an alignment of at least 64. It may wait until the
	// memory is registered. Buffers in it are of kind Registered. It returns ErrUnsupported if no open transport has
	// such memory.
	Allocate(bytes int) ([]byte, error)
	// Free frees memory exactly as returned by Allocate, which must not be accessed afterwards. It returns ErrPending and
	// does nothing while an operation uses the memory.
	Free([]byte) error
}

// MemoryUser is an optional interface of a Module.
type MemoryUser interface {
	// Uses reports whether an incomplete operation uses a part of the memory.
	Uses(memory []byte) bool
}

// Registrar is an optional interface of a Module (framework.As) whose network accesses memory directly, and faster if the
// memory is registered.
type Registrar interface {
	// Register registers memory of at least one byte, which must stay valid until Deregister, and waits for completion. It
	// returns ErrUnsupported if the network registers no memory, or no more. The memory then works like any other.
	Register(memory []byte) error
	// Deregister takes memory exactly as passed to Register, even if that has returned ErrUnsupported. It returns ErrPending
	// and does nothing while an operation uses the memory. If held is set, the network may read the memory until the module
	// closes, so that it must stay valid.
	Deregister(memory []byte) (held bool, err error)
}
