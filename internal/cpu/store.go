//go:build !race && (amd64 || arm64)

package cpu

// Barrier orders a preceding Store32 or Store64 before a following atomic load.
func Barrier()

// PrefetchWrite prefetches the cache line at p for writing.
func PrefetchWrite(p *uint64)
