package pml

// Allocator is an optional ability of a Module (ask through framework.As): it
// has memory that other processes of the node read directly, so that a large
// message is copied once.
type Allocator interface {
	// Allocate returns that many bytes, at least 1, zeroed and aligned to at least
	// 64. A Buffer inside it is of kind Registered. ErrUnsupported: no transport
	// that is open has such memory.
	Allocate(bytes int) ([]byte, error)
	// Free takes back exactly what Allocate returned; touching it afterwards is a
	// crash. ErrPending, and nothing happens, while an operation uses it.
	Free([]byte) error
}
