package ring

import "unsafe"

// OnHeap returns zeroed, aligned Go memory for a ring of n cells, for processes that send to
// themselves and for tests under the race detector, which does not observe mapped memory.
func OnHeap(n int) (header, cells []byte) {
	return Aligned(HeaderSize), Aligned(n * CellSize)
}

// Aligned returns size zeroed bytes of Go memory, aligned to a cache line.
func Aligned(size int) []byte {
	b := make([]byte, size+CellSize)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (CellSize - 1))
	return b[skip : skip+size : skip+size]
}
