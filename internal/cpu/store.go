//go:build !race && (amd64 || arm64)

package cpu

// Store32 stores v so that everybody who sees it sees all that this
// goroutine stored before (store-release). sync/atomic has only the sequentially
// consistent store, an XCHG on amd64: it waits until the cache line is ours, which
// is the time of a hop, and nothing behind it can begin. This one doesn't wait. What
// it costs: a load behind it may be older than the store.
func Store32(p *uint32, v uint32)

// Store64 is Store32 of a longer word.
func Store64(p *uint64, v uint64)

// Publish is the store of sync/atomic: Store64, and no load behind it is older. An XCHG waits
// until the stores before it have got the line, and must get it once more when somebody who
// polls has taken it meanwhile. Here the line goes once, with all that was stored.
func Publish(p *uint64, v uint64)

// PrefetchWrite asks for the cache line at p, to be written soon.
func PrefetchWrite(p *uint64)
