//go:build !race

package simd

// detectKernels returns all kernels, since NEON is part of arm64.
func detectKernels() kernelTable { return allKernels() }

// NEON has no 64-bit products, maxima and minima.
var prod64, maxInt64, maxUint64, minInt64, minUint64 Kernel

//go:noescape
func prod8(inout, in *byte, n int)
