//go:build !race && (amd64 || arm64)

package cpu

// Barrier returns when everybody sees what this goroutine has stored by Store32 and Store64: no
// load behind it is older.
func Barrier()

// PrefetchWrite asks for the cache line at p, to be written soon.
func PrefetchWrite(p *uint64)
