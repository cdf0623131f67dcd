//go:build !race

package cpu

// Store32 is a store-release (STLR): a reader of v sees all earlier stores of this goroutine.
func Store32(p *uint32, v uint32)

// Store64 is Store32 of a longer word.
func Store64(p *uint64, v uint64)
