package hop

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestBothSidesSeeTheSameCounter(t *testing.T) {
	a, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := Open(a.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := a.Unlink(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(a.Path()); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // a second measurement goes on where the first ended
		other := make(chan error, 1)
		go func() {
			_, err := b.Measure(ctx, false)
			other <- err
		}()
		ns, err := a.Measure(ctx, true)
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
	l, err := Create()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	defer l.Unlink()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.Measure(ctx, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestShortFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("mapped a file that is shorter than a page")
	}
	if _, err := Open(path + "-missing"); err == nil {
		t.Error("mapped a file that is not there")
	}
}
