package simd

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/ferrympi/ferry/internal/mem"
)

// subject is a reduction of one type of elements, with its loop in Go.
type subject struct {
	name   string
	kernel Kernel
	size   int
	loop   func(inout, in []byte)
	fill   func(b []byte, r *rand.Rand)
}

// of returns a subject; special holds edge cases.
func of[T any](name string, op Op, loop func(inout, in []T), special ...T) subject {
	var t T
	return subject{
		fmt.Sprintf("%s/%T", name, t), Of[T](op), mem.Size[T](),
		func(inout, in []byte) { loop(mem.Of[T](inout), mem.Of[T](in)) },
		func(b []byte, r *rand.Rand) {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			all := mem.Of[T](b)
			for i := range all {
				if r.IntN(3) > 0 && len(special) > 0 {
					all[i] = special[r.IntN(len(special))]
				}
			}
		},
	}
}

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint
}

type real interface{ integer | ~float32 | ~float64 }

func sum[T real | complex64 | complex128](inout, in []T) {
	inout = inout[:len(in)]
	for i, x := range in {
		inout[i] = x + inout[i]
	}
}

func prod[T real | complex64 | complex128](inout, in []T) {
	inout = inout[:len(in)]
	for i, x := range in {
		inout[i] = x * inout[i]
	}
}

func ordered[T real](special ...T) []subject {
	return []subject{
		of("sum", Sum, sum[T], special...),
		of("prod", Prod, prod[T], special...),
		of("max", Max, func(inout, in []T) {
			inout = inout[:len(in)]
			for i, x := range in {
				inout[i] = max(x, inout[i])
			}
		}, special...),
		of("min", Min, func(inout, in []T) {
			inout = inout[:len(in)]
			for i, x := range in {
				inout[i] = min(x, inout[i])
			}
		}, special...),
	}
}

func bits[T integer]() []subject {
	least := T(1) << (mem.Size[T]()*8 - 1)
	return append(ordered(0, 1, ^T(0), least, least-1),
		of("band", And, func(inout, in []T) {
			inout = inout[:len(in)]
			for i, x := range in {
				inout[i] &= x
			}
		}),
		of("bor", Or, func(inout, in []T) {
			inout = inout[:len(in)]
			for i, x := range in {
				inout[i] |= x
			}
		}),
		of("bxor", Xor, func(inout, in []T) {
			inout = inout[:len(in)]
			for i, x := range in {
				inout[i] ^= x
			}
		}))
}

// celsius is a defined type, as in user programs.
type celsius float64

func subjects() (all []subject) {
	// Quiet and signalling NaN of either sign that differ in their payload.
	var f32 []float32
	for _, b := range []uint32{0x7fc00000, 0x7fc00001, 0xffc12345, 0x7f800001, 0xff812345, 1, 0x80000001, 0x7f7fffff, 0xff7fffff} {
		f32 = append(f32, math.Float32frombits(b))
	}
	var f64 []float64
	for _, b := range []uint64{0x7ff8 << 48, 0x7ff8<<48 | 1, 0xfff812345 << 28, 0x7ff0<<48 | 1, 0xfff012345 << 28, 1, 1<<63 | 1, 0x7fef << 48, 0xffef << 48} {
		f64 = append(f64, math.Float64frombits(b))
	}
	for _, x := range []float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), 0.1, 3} {
		f32, f64 = append(f32, float32(x)), append(f64, x)
	}
	var degrees []celsius
	for _, x := range f64 {
		degrees = append(degrees, celsius(x))
	}
	for _, s := range [][]subject{
		ordered(f32...), ordered(f64...), ordered(degrees...),
		bits[int8](), bits[int16](), bits[int32](), bits[int64](), bits[int](),
		bits[uint8](), bits[uint16](), bits[uint32](), bits[uint64](), bits[uint](),
		{
			of("sum", Sum, sum[complex64]), of("prod", Prod, prod[complex64]),
			of("sum", Sum, sum[complex128], complex(f64[0], f64[2]), complex(f64[2], f64[0]), complex(f64[3], f64[1])),
		},
	} {
		all = append(all, s...)
	}
	return all
}

// compare requires that the kernel changes inout as Go's loop does, and no byte around it.
func (s subject) compare(t interface{ Fatalf(string, ...any) }, inout, in []byte, at, from int) {
	const guard = 0xee
	want := bytes.Clone(inout)
	s.loop(want, in)
	room := bytes.Repeat([]byte{guard}, at+len(inout)+64)
	mine := room[at : at+len(inout)]
	copy(mine, inout)
	moved := append(make([]byte, from, from+len(in)), in...)[from:]
	n := s.kernel.Run(mine, moved)
	if n != len(in)/Stride*Stride {
		t.Fatalf("%s: processed %d bytes of %d", s.name, n, len(in))
	}
	for i := 0; i < n; i += s.size {
		if x, y := mine[i:i+s.size], want[i:i+s.size]; !bytes.Equal(x, y) {
			t.Fatalf("%s of %d bytes at %d and %d: %x op %x is %x at %d, and %x in Go",
				s.name, len(in), at, from, in[i:i+s.size], inout[i:i+s.size], x, i, y)
		}
	}
	if !bytes.Equal(mine[n:], inout[n:]) || !bytes.Equal(moved, in) ||
		bytes.Count(room[:at], []byte{guard}) != at || bytes.Count(room[at+len(inout):], []byte{guard}) != 64 {
		t.Fatalf("%s of %d bytes at %d and %d: memory outside the result changed", s.name, len(in), at, from)
	}
}

func withKernels(t testing.TB) (some []subject) {
	for _, s := range subjects() {
		if s.kernel != nil {
			some = append(some, s)
		}
	}
	if len(some) == 0 {
		t.Skip("this processor or build has no kernels")
	}
	return some
}

// Covers all lengths up to 100 elements, some of several chunks, and all addresses within a vector.
func TestRun_LengthsAndAlignments_EqualsGoLoop(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range withKernels(t) {
		for n := 0; n <= 107; n++ {
			length := n
			if n > 100 {
				length = maxChunk/s.size*(1+n%2) + n - 104
			}
			in, inout := make([]byte, length*s.size), make([]byte, length*s.size)
			s.fill(in, r)
			s.fill(inout, r)
			s.compare(t, inout, in, n%Stride, n/2%Stride)
		}
	}
}

func TestRun_RandomOperands_EqualsGoLoop(t *testing.T) {
	some := withKernels(t)
	rapid.Check(t, func(t *rapid.T) {
		s := some[rapid.IntRange(0, len(some)-1).Draw(t, "subject")]
		length := rapid.IntRange(0, 100).Draw(t, "length")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		in, inout := make([]byte, length*s.size), make([]byte, length*s.size)
		s.fill(in, r)
		s.fill(inout, r)
		s.compare(t, inout, in, rapid.IntRange(0, 63).Draw(t, "at"), rapid.IntRange(0, 63).Draw(t, "from"))
	})
}

func FuzzRun_EqualsGoLoop(f *testing.F) {
	some := withKernels(f)
	for i := range some {
		f.Add(bytes.Repeat([]byte{0, 0, 0xf8, 0x7f}, 40), uint8(3), uint16(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint8, subject uint16) {
		half := min(len(data), 2048) / 32 * 16
		some[int(subject)%len(some)].compare(t, data[half:2*half], data[:half], int(at%64), int(at/4))
	})
}

func TestRun_ShortResult_PanicsBeforeWriting(t *testing.T) {
	k := withKernels(t)[0].kernel
	room := make([]byte, 4*Stride)
	defer func() {
		if recover() == nil || !bytes.Equal(room, make([]byte, len(room))) {
			t.Error("no panic, or memory changed")
		}
	}()
	k.Run(room[:Stride:Stride], bytes.Repeat([]byte{1}, 2*Stride))
}

func TestOf_UnsupportedType_ReturnsNil(t *testing.T) {
	if Of[string](Sum) != nil || Of[struct{ x int }](Max) != nil || Of[complex128](Prod) != nil || Of[int](None) != nil {
		t.Error("kernel for an unsupported type")
	}
}

// BenchmarkKernel compares each kernel with Go's loop, in the first and in the second cache.
func BenchmarkKernel(b *testing.B) {
	for _, s := range withKernels(b) {
		for _, size := range []int{256, 16 << 10, 256 << 10} {
			in, inout := make([]byte, size), make([]byte, size) // Zeros, which favor branch prediction in Go's loop.
			for _, variant := range []struct {
				name string
				run  func()
			}{{"go", func() { s.loop(inout, in) }}, {"kernel", func() { s.kernel.Run(inout, in) }}} {
				b.Run(fmt.Sprintf("%s/%d/%s", s.name, size, variant.name), func(b *testing.B) {
					b.SetBytes(int64(size))
					for b.Loop() {
						variant.run()
					}
				})
			}
		}
	}
}
