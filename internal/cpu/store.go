//go:build !race && (amd64 || arm64)

package cpu

// Barrier comes between a store by Store32 or Store64 and an atomic load: the load is not older
// than the store.
func Barrier()

// PrefetchWrite asks for the cache line at p, to be written soon.
func PrefetchWrite(p *uint64)
