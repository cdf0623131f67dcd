//go:build !race

package cpu

// Store32 stores v so that everybody who sees it sees all that this
// goroutine stored before (store-release). sync/atomic has only the sequentially
// consistent store, an XCHG on amd64: it waits until the cache line is ours, which
// is the time of a hop, and nothing behind it can begin. This one doesn't wait. What
// it costs: a load behind it may be older than the store.
//
// The processor makes stores visible in their order, and the compiler keeps that order, and
// loads before a store before it. So an ordinary store does, without a call.
func Store32(p *uint32, v uint32) { *p = v }

// Store64 is Store32 of a longer word.
func Store64(p *uint64, v uint64) { *p = v }
