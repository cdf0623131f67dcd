//go:build !race

package simd

import xcpu "golang.org/x/sys/cpu"

func choose() table {
	if !xcpu.X86.HasAVX2 {
		return table{}
	}
	return all()
}

// AVX2 has no product of 8 bits.
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
