//go:build !race

package simd

import xcpu "golang.org/x/sys/cpu"

func detectKernels() kernelTable {
	if !xcpu.X86.HasAVX2 {
		return kernelTable{}
	}
	return allKernels()
}

// prod8 is nil because AVX2 has no 8-bit product.
var prod8 Kernel

//go:noescape
func prod64(inout, in *byte, n int)

//go:noescape
func maxInt64(inout, in *byte, n int)

//go:noescape
func maxUint64(inout, in *byte, n int)

//go:noescape
func minInt64(inout, in *byte, n int)

//go:noescape
func minUint64(inout, in *byte, n int)
