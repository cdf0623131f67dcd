//go:build !race

package cpu

// Store32 is a store-release: a reader of v sees all earlier stores of this goroutine. The store
// of sync/atomic is sequentially consistent, an XCHG on amd64 that blocks later instructions
// until the core owns the cache line, for one core-to-core latency. Store32 does not block, but
// later loads may be reordered before it.
//
// The processor and the compiler keep the order of stores, and of loads before a store, so that
// an ordinary store suffices.
func Store32(p *uint32, v uint32) { *p = v }

// Store64 is Store32 of a longer word.
func Store64(p *uint64, v uint64) { *p = v }
