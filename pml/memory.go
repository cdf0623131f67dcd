package pml

// Allocator is an optional ability of a Module (ask through framework.As): it
// has memory that other processes of the node read directly, so that a large
// message is copied once, or that the network knows.
type Allocator interface {
	// Allocate returns that many bytes, at least 1, zeroed and aligned to at least
	// 64. It may wait until the network knows them. A Buffer inside it is of kind Registered. ErrUnsupported: no transport
	// that is open has such memory.
	Allocate(bytes int) ([]byte, error)
	// Free takes back exactly what Allocate returned; touching it afterwards is a
	// crash. ErrPending, and nothing happens, while an operation uses it.
	Free([]byte) error
}

// MemoryUser is an optional ability of a Module.
type MemoryUser interface {
	// Uses reports whether an operation that is not complete uses a part of the memory.
	Uses(memory []byte) bool
}

// Registrar is an optional ability of a Module (ask through framework.As): its network
// reads and writes memory by itself, and has less to do where it knows that memory.
type Registrar interface {
	// Register has the network know memory, at least a byte, that stays until Deregister. It waits for that.
	// ErrUnsupported: the network knows none, or no more; messages there go on as elsewhere.
	Register(memory []byte) error
	// Deregister takes exactly what Register was given, though it may have been ErrUnsupported. ErrPending, and nothing happens, while an
	// operation uses it. held: the network may go on reading it until the module closes, so that the memory has to stay.
	Deregister(memory []byte) (held bool, err error)
}
