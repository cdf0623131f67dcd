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

// Functions as a compiler of C makes them.
var (
	sum   = []byte{0x48, 0x8b, 0x07, 0x48, 0x03, 0x06, 0x48, 0x03, 0x02, 0xc3}                                     // return *a + *b + *c
	align = []byte{0x48, 0x89, 0xe0, 0x83, 0xe0, 0x0f, 0xc3}                                                       // return rsp & 15
	spin  = []byte{0x48, 0x8b, 0x0f, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0x31, 0xc0, 0xc3}                               // count *a down
	deep  = []byte{0x48, 0x8b, 0x07, 0x48, 0x89, 0xe1, 0x50, 0x48, 0xff, 0xc8, 0x75, 0xfa, 0x48, 0x89, 0xcc, 0xc3} // push *a times
	fault = []byte{0x31, 0xc0, 0x8b, 0x00, 0xc3}                                                                   // return *NULL
	trap  = []byte{0x0f, 0x0b}                                                                                     // __builtin_trap()
)

// machine puts a function where it can be called.
func machine(t testing.TB, code []byte) unsafe.Pointer {
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

func stack(t testing.TB) *rawsys.Stack {
	t.Helper()
	s, err := rawsys.NewStack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Free)
	return s
}

// TestFunctionsOfC get their arguments, a stack as their rules have it, and most of its memory.
func TestFunctionsOfC(t *testing.T) {
	s := stack(t)
	one, two, three, words := int64(-1), int64(2), int64(3), int64(100_000)
	if got := s.Call(machine(t, sum), unsafe.Pointer(&one), unsafe.Pointer(&two), unsafe.Pointer(&three)); got != 4 {
		t.Errorf("-1 + 2 + 3 are %d", got)
	}
	if got := s.Call(machine(t, align), nil, nil, nil); got != 8 {
		t.Errorf("behind the return address the stack lies at %d of 16", got)
	}
	s.Call(machine(t, deep), unsafe.Pointer(&words), nil, nil)
	s.Free()
	s.Free()
}

// TestCallsWhileEverythingElseHappens: the world is stopped, profiled and preempted, and the stacks of
// the goroutines that call move.
func TestCallsWhileEverythingElseHappens(t *testing.T) {
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Log(err)
	} else {
		defer pprof.StopCPUProfile()
	}
	add, count := machine(t, sum), machine(t, spin)
	var over atomic.Bool
	ended := make(chan bool)
	go func() {
		defer close(ended)
		buf := make([]byte, 1<<16)
		for !over.Load() {
			runtime.GC()
			runtime.Stack(buf, true)
		}
	}()
	callers := make(chan string)
	for range 2 {
		s := stack(t)
		go func() {
			for i := range 3000 {
				turns := int64(100_000 + i*100)
				s.Call(count, unsafe.Pointer(&turns), nil, nil)
				if !onAStackThatGrows(s, add, i%50) {
					callers <- "a call got other arguments, or Go's memory changed"
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
	over.Store(true)
	<-ended
}

//go:noinline
func onAStackThatGrows(s *rawsys.Stack, add unsafe.Pointer, depth int) bool {
	var frame [64]int64 // on the goroutine's stack, and handed to C
	frame[0], frame[63] = int64(depth), 7
	one := int64(1)
	right := s.Call(add, unsafe.Pointer(&frame[0]), unsafe.Pointer(&frame[63]), unsafe.Pointer(&one)) == depth+8
	if depth > 0 {
		right = onAStackThatGrows(s, add, depth-1) && right
	}
	return right && frame[0] == int64(depth) && frame[63] == 7
}

// TestFaultsOfCEndTheProgram: nothing recovers from them, and at the stack's end no other memory is
// overwritten.
func TestFaultsOfCEndTheProgram(t *testing.T) {
	const child = "FERRY_TEST_FAULT"
	words := int64(1 << 20)
	switch os.Getenv(child) {
	case "null":
		defer func() { recover() }()
		stack(t).Call(machine(t, fault), nil, nil, nil)
		return
	case "trap":
		stack(t).Call(machine(t, trap), nil, nil, nil)
		return
	case "deep":
		stack(t).Call(machine(t, deep), unsafe.Pointer(&words), nil, nil)
		return
	}
	for _, what := range []string{"null", "trap", "deep"} {
		c := exec.Command(os.Args[0], "-test.run=^TestFaultsOfCEndTheProgram$")
		c.Env = append(os.Environ(), child+"="+what)
		c.WaitDelay = time.Minute
		out, err := c.CombinedOutput()
		if said := bytes.Contains(out, []byte("goroutine ")); err == nil || len(out) > 1<<20 || !said && what != "deep" {
			t.Errorf("%s: %v, %d bytes:\n%.1000s", what, err, len(out), out)
		}
	}
}

func BenchmarkCall(b *testing.B) {
	s, f, n := stack(b), machine(b, sum), int64(1)
	for b.Loop() {
		s.Call(f, unsafe.Pointer(&n), unsafe.Pointer(&n), unsafe.Pointer(&n))
	}
}
