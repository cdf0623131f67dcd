package hop

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestBothSidesSeeTheSameCounter(t *testing.T) {
	mem := make([]byte, 4096)
	a, b := At(mem), At(mem)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // a second measurement goes on where the first ended
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

func TestSilentPartnerIsNoHang(t *testing.T) {
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
