//go:build race || !(amd64 || arm64)

package cpu

import "sync/atomic"

// Store32 is the store of sync/atomic, visible to the race detector.
func Store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Store64 is the store of sync/atomic, visible to the race detector.
func Store64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// Barrier is a no-op, since the stores are sequentially consistent.
func Barrier() {}

// PrefetchWrite is a no-op.
func PrefetchWrite(*uint64) {}
