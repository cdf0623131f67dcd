//go:build linux && amd64 && cgo && !race && !msan && !asan

package rawsys_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/rawsys"
)

// Machine code of C functions.
var (
	sum   = []byte{0x48, 0x8b, 0x07, 0x48, 0x03, 0x06, 0x48, 0x03, 0x02, 0xc3}                                     // return *a + *b + *c
	align = []byte{0x48, 0x89, 0xe0, 0x83, 0xe0, 0x0f, 0xc3}                                                       // return rsp & 15
	spin  = []byte{0x48, 0x8b, 0x0f, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0x31, 0xc0, 0xc3}                               // count *a down
	deep  = []byte{0x48, 0x8b, 0x07, 0x48, 0x89, 0xe1, 0x50, 0x48, 0xff, 0xc8, 0x75, 0xfa, 0x48, 0x89, 0xcc, 0xc3} // push *a times
	fault = []byte{0x31, 0xc0, 0x8b, 0x00, 0xc3}                                                                   // return *NULL
	trap  = []byte{0x0f, 0x0b}                                                                                     // __builtin_trap()
)

// mapCode copies a function into executable memory.
func mapCode(t testing.TB, code []byte) unsafe.Pointer {
	t.Helper()
	b, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	copy(b, code)
	if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		t.Fatal(err)
	}
	return unsafe.Pointer(&b[0])
}

func newStack(t testing.TB) *rawsys.Stack {
	t.Helper()
	s, err := rawsys.NewStack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Free)
	return s
}

func TestCall_CFunction_HasArgumentsAlignmentAndStackMemory(t *testing.T) {
	s := newStack(t)
	one, two, three, words := int64(-1), int64(2), int64(3), int64(100_000)
	if got := s.Call(mapCode(t, sum), unsafe.Pointer(&one), unsafe.Pointer(&two), unsafe.Pointer(&three)); got != 4 {
		t.Errorf("-1 + 2 + 3 = %d", got)
	}
	if got := s.Call(mapCode(t, align), nil, nil, nil); got != 8 {
		t.Errorf("stack pointer modulo 16 is %d, want 8", got)
	}
	s.Call(mapCode(t, deep), unsafe.Pointer(&words), nil, nil)
	s.Free()
	s.Free()
}

// Garbage collections, profile signals and moves of the callers' stacks happen during the calls.
func TestCall_ConcurrentRuntimeEvents_KeepsMemoryIntact(t *testing.T) {
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Log(err)
	} else {
		defer pprof.StopCPUProfile()
	}
	add, count := mapCode(t, sum), mapCode(t, spin)
	var isDone atomic.Bool
	ended := make(chan bool)
	go func() {
		defer close(ended)
		buf := make([]byte, 1<<16)
		for !isDone.Load() {
			runtime.GC()
			runtime.Stack(buf, true)
		}
	}()
	callers := make(chan string)
	for range 2 {
		s := newStack(t)
		go func() {
			for i := range 3000 {
				iterations := int64(100_000 + i*100)
				s.Call(count, unsafe.Pointer(&iterations), nil, nil)
				if !callOnGrowingStack(s, add, i%50) {
					callers <- "wrong arguments, or memory of Go changed"
					return
				}
			}
			callers <- ""
		}()
	}
	for range 2 {
		if bad := <-callers; bad != "" {
			t.Error(bad)
		}
	}
	isDone.Store(true)
	<-ended
}

//go:noinline
func callOnGrowingStack(s *rawsys.Stack, add unsafe.Pointer, depth int) bool {
	var frame [64]int64 // On the goroutine's stack, passed to C.
	frame[0], frame[63] = int64(depth), 7
	one := int64(1)
	isCorrect := s.Call(add, unsafe.Pointer(&frame[0]), unsafe.Pointer(&frame[63]), unsafe.Pointer(&one)) == depth+8
	if depth > 0 {
		isCorrect = callOnGrowingStack(s, add, depth-1) && isCorrect
	}
	return isCorrect && frame[0] == int64(depth) && frame[63] == 7
}

// A fault is not recoverable, and a stack overflow hits the guard page.
func TestCall_FaultInC_EndsProgram(t *testing.T) {
	const child = "FERRY_TEST_FAULT"
	words := int64(1 << 20)
	switch os.Getenv(child) {
	case "null":
		defer func() { recover() }()
		newStack(t).Call(mapCode(t, fault), nil, nil, nil)
		return
	case "trap":
		newStack(t).Call(mapCode(t, trap), nil, nil, nil)
		return
	case "deep":
		newStack(t).Call(mapCode(t, deep), unsafe.Pointer(&words), nil, nil)
		return
	}
	for _, kind := range []string{"null", "trap", "deep"} {
		c := exec.Command(os.Args[0], "-test.run=^TestCall_FaultInC_EndsProgram$")
		c.Env = append(os.Environ(), child+"="+kind)
		c.WaitDelay = time.Minute
		out, err := c.CombinedOutput()
		if hasTrace := bytes.Contains(out, []byte("goroutine ")); err == nil || len(out) > 1<<20 || !hasTrace && kind != "deep" {
			t.Errorf("%s: %v, %d bytes:\n%.1000s", kind, err, len(out), out)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	s, f, n := newStack(b), mapCode(b, sum), int64(1)
	for b.Loop() {
		s.Call(f, unsafe.Pointer(&n), unsafe.Pointer(&n), unsafe.Pointer(&n))
	}
}
