// Package simd has the built-in reductions on numbers in vector instructions, for
// processors and types on which they are at least 1.2 times as fast as Go's loop
// (BenchmarkKernel; for arm64 by the number of instructions, since it was tested in an
// emulator only). They leave the same bits as that loop, also for NaN, -0 and overflow.
// Race builds have none: the detector does not see what assembly touches.
package simd

import "reflect"

// Op is a reduction.
type Op uint8

// The reductions that may have kernels.
const (
	None Op = iota
	Sum
	Prod
	Max
	Min
	And
	Or
	Xor
	ops
)

// Kernel combines n bytes: inout[i] = in[i] op inout[i] for each element. It keeps neither. n is a
// positive multiple of Stride. No alignment is needed.
type Kernel func(inout, in *byte, n int)

// Stride is what a kernel does at a time, in bytes.
const Stride = 32

// piece is what Run does in one call of a kernel, in bytes: some microseconds. The
// runtime can't preempt assembly, and a garbage collection waits for it.
const piece = 64 << 10

// table has the kernels by reduction and kind of element.
type table [ops]kinds

type kinds [reflect.Complex128 + 1]Kernel

// integers has kernels for integers of 8, 16, 32 and 64 bits, signed or not.
func integers(k8, k16, k32, k64 Kernel) (k kinds) {
	k[reflect.Int8], k[reflect.Int16], k[reflect.Int32], k[reflect.Int64] = k8, k16, k32, k64
	k[reflect.Int] = k64
	k.unsigned(k8, k16, k32, k64)
	return k
}

// unsigned sets those for integers without a sign.
func (k *kinds) unsigned(k8, k16, k32, k64 Kernel) {
	k[reflect.Uint8], k[reflect.Uint16], k[reflect.Uint32], k[reflect.Uint64] = k8, k16, k32, k64
	k[reflect.Uint] = k64
}

// chosen is what this processor can do.
var chosen = choose()

// Of returns the kernel of op for elements of type T; nil: Go's loop is the fastest
// that there is.
func Of[T any](op Op) Kernel {
	if kind := reflect.TypeFor[T]().Kind(); kind <= reflect.Complex128 {
		return chosen[op][kind]
	}
	return nil
}

// Run combines what it can of in into inout, which is at least as long, and returns how
// many bytes that was. Fewer than Stride are left to the caller.
func (k Kernel) Run(inout, in []byte) int {
	done := 0
	for len(in)-done >= Stride {
		done += k.piece(inout[done:], in[done:])
	}
	return done
}

// piece runs the kernel once. It is a call of its own, since calls are where the runtime
// preempts who won't stop.
//
//go:noinline
func (k Kernel) piece(inout, in []byte) int {
	n := min(len(in), piece) &^ (Stride - 1)
	_ = inout[n-1]
	k(&inout[0], &in[0], n)
	return n
}
