//go:build race || !(amd64 || arm64)

package cpu

import "sync/atomic"

// Store32 is a store that the race detector knows.
func Store32(p *uint32, v uint32) { atomic.StoreUint32(p, v) }

// Store64 is a store that the race detector knows.
func Store64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// Barrier does nothing here: the stores are no weaker than those of sync/atomic.
func Barrier() {}

// PrefetchWrite does nothing here.
func PrefetchWrite(*uint64) {}
