package pml

// Allocator is an optional ability of a Module (ask through framework.As): it
// has memory that other processes of the node read directly, so that a large
// message is copied once.
type Allocator interface {
	// Allocate returns that many bytes, aligned to at least 64, with undefined
	// contents. A Buffer inside it is of kind Registered. ErrUnsupported: no
	// transport that is open has such memory.
	Allocate(bytes int) ([]byte, error)
	// Free takes back exactly what Allocate returned, when no operation uses it
	// any more. Nobody may touch it afterwards.
	Free([]byte) error
}
