//go:build !race && (amd64 || arm64)

package cpu

// Store32 and Store64 store v so that everybody who sees it sees all that this
// goroutine stored before (store-release). sync/atomic has only the sequentially
// consistent store, an XCHG on amd64: it waits until the cache line is ours, which
// is the time of a hop, and nothing behind it can begin. These don't wait. What
// this costs: a load behind them may be older than the store (see Barrier).
func Store32(p *uint32, v uint32)

// Store64 is Store32 for 64 bits.
func Store64(p *uint64, v uint64)

// PrefetchWrite asks for the cache line at p, to be written soon.
func PrefetchWrite(p *uint64)
