//go:build !race

package cpu

// Store32 stores v so that everybody who sees it sees all that this
// goroutine stored before (STLR).
func Store32(p *uint32, v uint32)

// Store64 is Store32 of a longer word.
func Store64(p *uint64, v uint64)
