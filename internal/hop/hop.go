// Package hop measures what the machine itself can do: the time that a cache
// line takes from one process to another. It is the unit in which latencies are
// judged, and tells whether two processors are near or far from one another at
// the moment (they drift on shared machines).
//
// Two processes map one file and pass a counter to and fro in a single line,
// with a PAUSE in every poll. It stands on internal/cpu only.
package hop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/cpu"
)

// Line is one process's view of the shared cache line.
type Line struct {
	mem  []byte
	word *atomic.Uint64
	path string
	hops uint64 // that this process knows of
}

// Create makes a line in a new file, of which it is the user's only. The other
// process opens Path; then the file should go (Unlink).
func Create() (*Line, error) {
	dir := "/dev/shm" // memory, where a page is never written back
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		dir = os.TempDir()
	}
	f, err := os.CreateTemp(dir, "ferry-hop-") // mode 0600
	if err != nil {
		return nil, fmt.Errorf("hop: %w", err)
	}
	defer f.Close()
	// Space is taken now, so that a full file system is an error and not a SIGBUS.
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(os.Getpagesize())); err != nil {
		os.Remove(f.Name())
		return nil, fmt.Errorf("hop: space for one page in %s: %w", dir, err)
	}
	l, err := mapLine(f)
	if err != nil {
		os.Remove(f.Name())
	}
	return l, err
}

// Open maps the line that another process has made.
func Open(path string) (*Line, error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("hop: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("hop: %w", err)
	}
	if st.Size() < int64(os.Getpagesize()) {
		return nil, fmt.Errorf("hop: %s is no line: %d bytes are less than a page", path, st.Size())
	}
	return mapLine(f)
}

func mapLine(f *os.File) (*Line, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("hop: map %s: %w", f.Name(), err)
	}
	return &Line{mem: mem, word: (*atomic.Uint64)(unsafe.Pointer(&mem[0])), path: f.Name()}, nil
}

// Path is the file's.
func (l *Line) Path() string { return l.path }

// Unlink removes the file; lines that are open stay.
func (l *Line) Unlink() error { return os.Remove(l.path) }

// Close unmaps the line.
func (l *Line) Close() error { return unix.Munmap(l.mem) }

const (
	// batches is how many times Measure measures. The median drops the first, in
	// which one side still waits for the other, and an interrupt here or there.
	batches = 5

	// trips makes a measurement some 100 us long: enough for a median, too short to
	// matter beside what it accompanies.
	trips = 200

	// limit is when the other side counts as gone.
	limit = 10 * time.Second
)

// Measure passes the counter to and fro, and returns the median time of one way in
// nanoseconds. Both processes call it, one of them with first set.
func (l *Line) Measure(ctx context.Context, first bool) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var times [batches]float64
	for b := range times {
		start := time.Now()
		for range trips {
			if first {
				l.word.Store(l.hops + 1)
				if err := l.await(ctx, l.hops+2); err != nil {
					return 0, err
				}
			} else {
				if err := l.await(ctx, l.hops+1); err != nil {
					return 0, err
				}
				l.word.Store(l.hops + 2)
			}
			l.hops += 2
		}
		times[b] = float64(time.Since(start).Nanoseconds()) / float64(2*trips)
	}
	slices.Sort(times[:])
	return times[batches/2], nil
}

// await polls until the counter is n.
func (l *Line) await(ctx context.Context, n uint64) error {
	// Some microseconds; beyond, the other side doesn't run: it may need this
	// very processor.
	const patience = 1000
	for i := 1; l.word.Load() != n; i++ {
		if i%patience != 0 {
			cpu.Pause()
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("hop: the other process does not answer: %w", context.Cause(ctx))
		}
		cpu.Yield()
	}
	return nil
}
