//go:build !race && (amd64 || arm64)

package simd

import "reflect"

// allKernels returns the kernels of this architecture; the others are nil. Sums of complex
// numbers use the kernels of their parts. Products of complex numbers have no kernel.
func allKernels() (t kernelTable) {
	t[Sum] = integerKernels(sum8, sum16, sum32, sum64)
	t[Sum][reflect.Float32], t[Sum][reflect.Float64] = sumF32, sumF64
	t[Sum][reflect.Complex64], t[Sum][reflect.Complex128] = sumF32, sumF64

	t[Prod] = integerKernels(prod8, prod16, prod32, prod64)
	t[Prod][reflect.Float32], t[Prod][reflect.Float64] = prodF32, prodF64

	t[Max] = integerKernels(maxInt8, maxInt16, maxInt32, maxInt64)
	t[Max].setUnsigned(maxUint8, maxUint16, maxUint32, maxUint64)
	t[Max][reflect.Float32], t[Max][reflect.Float64] = maxF32, maxF64

	t[Min] = integerKernels(minInt8, minInt16, minInt32, minInt64)
	t[Min].setUnsigned(minUint8, minUint16, minUint32, minUint64)
	t[Min][reflect.Float32], t[Min][reflect.Float64] = minF32, minF64

	t[And] = integerKernels(andBits, andBits, andBits, andBits)
	t[Or] = integerKernels(orBits, orBits, orBits, orBits)
	t[Xor] = integerKernels(xorBits, xorBits, xorBits, xorBits)
	return t
}

//go:noescape
func sum8(inout, in *byte, n int)

//go:noescape
func sum16(inout, in *byte, n int)

//go:noescape
func sum32(inout, in *byte, n int)

//go:noescape
func sum64(inout, in *byte, n int)

//go:noescape
func sumF32(inout, in *byte, n int)

//go:noescape
func sumF64(inout, in *byte, n int)

//go:noescape
func prod16(inout, in *byte, n int)

//go:noescape
func prod32(inout, in *byte, n int)

//go:noescape
func prodF32(inout, in *byte, n int)

//go:noescape
func prodF64(inout, in *byte, n int)

//go:noescape
func maxInt8(inout, in *byte, n int)

//go:noescape
func maxInt16(inout, in *byte, n int)

//go:noescape
func maxInt32(inout, in *byte, n int)

//go:noescape
func maxUint8(inout, in *byte, n int)

//go:noescape
func maxUint16(inout, in *byte, n int)

//go:noescape
func maxUint32(inout, in *byte, n int)

//go:noescape
func maxF32(inout, in *byte, n int)

//go:noescape
func maxF64(inout, in *byte, n int)

//go:noescape
func minInt8(inout, in *byte, n int)

//go:noescape
func minInt16(inout, in *byte, n int)

//go:noescape
func minInt32(inout, in *byte, n int)

//go:noescape
func minUint8(inout, in *byte, n int)

//go:noescape
func minUint16(inout, in *byte, n int)

//go:noescape
func minUint32(inout, in *byte, n int)

//go:noescape
func minF32(inout, in *byte, n int)

//go:noescape
func minF64(inout, in *byte, n int)

//go:noescape
func andBits(inout, in *byte, n int)

//go:noescape
func orBits(inout, in *byte, n int)

//go:noescape
func xorBits(inout, in *byte, n int)
