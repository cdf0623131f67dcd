// Package simd implements the built-in reductions on numbers with vector instructions, for
// processors and types with at least 1.2 times the speed of Go's loop (BenchmarkKernel; on
// arm64, which ran in an emulator only, by the number of instructions). Results equal those of
// the loop bit by bit, including NaN, -0 and overflow. Race builds have no kernels, since the
// race detector does not instrument assembly.
package simd

import "reflect"

// Op is a reduction.
type Op uint8

// Reductions with kernels.
const (
	None Op = iota
	Sum
	Prod
	Max
	Min
	And
	Or
	Xor
	opCount
)

// Kernel computes inout[i] = in[i] op inout[i] for the elements of n bytes. It retains neither
// pointer. n is a positive multiple of Stride. Alignment is not required.
type Kernel func(inout, in *byte, n int)

// Stride is the granularity of a kernel in bytes.
const Stride = 32

// maxChunk limits one call of a kernel, in bytes, to some microseconds. Assembly is not
// preemptible, and a garbage collection waits for it.
const maxChunk = 64 << 10

// kernelTable holds the kernels by reduction and kind of element.
type kernelTable [opCount]kernelsByKind

type kernelsByKind [reflect.Complex128 + 1]Kernel

// integerKernels returns a table with kernels for signed and unsigned integers by size in bits.
func integerKernels(k8, k16, k32, k64 Kernel) (k kernelsByKind) {
	k[reflect.Int8], k[reflect.Int16], k[reflect.Int32], k[reflect.Int64] = k8, k16, k32, k64
	k[reflect.Int] = k64
	k.setUnsigned(k8, k16, k32, k64)
	return k
}

// setUnsigned replaces the kernels for unsigned integers.
func (k *kernelsByKind) setUnsigned(k8, k16, k32, k64 Kernel) {
	k[reflect.Uint8], k[reflect.Uint16], k[reflect.Uint32], k[reflect.Uint64] = k8, k16, k32, k64
	k[reflect.Uint] = k64
}

// available holds the kernels for this processor.
var available = detectKernels()

// Of returns the kernel of op for elements of type T, or nil if Go's loop is at least as fast.
func Of[T any](op Op) Kernel {
	if kind := reflect.TypeFor[T]().Kind(); kind <= reflect.Complex128 {
		return available[op][kind]
	}
	return nil
}

// Run combines in into inout, which is at least as long, and returns the number of bytes done.
// A remainder of less than Stride bytes is left to the caller.
func (k Kernel) Run(inout, in []byte) int {
	done := 0
	for len(in)-done >= Stride {
		done += k.runChunk(inout[done:], in[done:])
	}
	return done
}

// runChunk calls the kernel once. It is not inlined, since function calls are preemption points.
//
//go:noinline
func (k Kernel) runChunk(inout, in []byte) int {
	n := min(len(in), maxChunk) &^ (Stride - 1)
	_ = inout[n-1]
	k(&inout[0], &in[0], n)
	return n
}
