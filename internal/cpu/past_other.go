//go:build race || !amd64

package cpu

// Streams says that CopyPast is another way to copy than CopyShared.
const Streams = false

// CopyPast is CopyShared.
func CopyPast(dst, src []byte) { CopyShared(dst, src) }
