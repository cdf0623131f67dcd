//go:build !race

package simd

// choose has the instructions that every processor of this kind has.
func choose() table { return all() }

// NEON has no products, maxima and minima of 64 bits.
var prod64, maxInt64, maxUint64, minInt64, minUint64 Kernel

//go:noescape
func prod8(inout, in *byte, n int)
