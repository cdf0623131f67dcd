package hop

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

func TestMeasure_TwoSides_AgreeOnCounter(t *testing.T) {
	mem := make([]byte, 4096)
	a, b := At(mem), At(mem)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // The second measurement continues the counter.
		other := make(chan error, 1)
		go func() {
			_, err := b.Measure(ctx, false, nil)
			other <- err
		}()
		ns, err := a.Measure(ctx, true, nil)
		if err != nil || ns <= 0 {
			t.Fatalf("%v ns, error %v", ns, err)
		}
		if err := <-other; err != nil {
			t.Fatal(err)
		}
	}
	if a.hops != b.hops || a.word.Load() != a.hops {
		t.Errorf("hops: %d, %d, counter %d", a.hops, b.hops, b.word.Load())
	}
}

// On a busy machine each reply costs a time slice, and two thousand of them exceed the timeout.
func TestMeasure_SlowPartner_EndsEarly(t *testing.T) {
	mem := make([]byte, 64)
	word, ends := At(mem).word, uint64(2*trips*batches)
	answers := make(chan int)
	go func() {
		n := 0
		for last := uint64(0); last < ends; n++ {
			for word.Load() == last {
				runtime.Gosched()
			}
			time.Sleep(2 * time.Millisecond)
			last = word.Load() + 1
			word.Store(last)
		}
		answers <- n
	}()
	l := At(mem)
	ns, err := l.Measure(t.Context(), true, nil)
	if err != nil || ns < 1e6 || l.hops != ends {
		t.Fatalf("%.0f ns, error %v, %d hops of %d", ns, err, l.hops, ends)
	}
	if n := <-answers; n < batches || n > batches*trips/4 {
		t.Errorf("%d answers", n)
	}
}

func TestMeasure_SilentPartner_ReturnsError(t *testing.T) {
	l := At(make([]byte, 64))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.Measure(ctx, true, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	dead := errors.New("it has ended")
	if _, err := l.Measure(t.Context(), true, func() error { return dead }); !errors.Is(err, dead) {
		t.Errorf("error %v", err)
	}
}

// Each hop writes to both Lines. A common cache line doubles the time of a hop.
func TestLine_TwoInOneProcess_ShareNoCacheLine(t *testing.T) {
	const cacheLine = 64
	var both [2]Line
	written := unsafe.Offsetof(both[0].hasYielded) + unsafe.Sizeof(both[0].hasYielded)
	if gap := unsafe.Sizeof(both[0]) - written; gap < cacheLine {
		t.Errorf("%d bytes between the fields of two lines", gap)
	}
}
