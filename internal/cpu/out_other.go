//go:build race || !amd64

package cpu

// CopyOut is copy out of memory that another core has written.
func CopyOut(dst, src []byte) int { return copy(dst, src) }
