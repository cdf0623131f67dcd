package base

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// recorder is a Comm that records calls. Its requests are pending until finish.
type recorder struct {
	pml.Comm
	engine *progress.Engine
	mu     sync.Mutex
	calls  []string
	last   *recorded
}

// recorded is a request of a recorder.
type recorded struct {
	pml.Request
}

func (r *recorded) Release()               {}
func (r *recorded) First() progress.Source { return nil }
func (r *recorded) Cancel() {
	r.Status.Canceled = true
	r.Finish()
}

func (c *recorder) call(name string) *pml.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, name)
	c.last = new(recorded)
	c.last.Init(c.engine, c.last)
	c.last.Start()
	return &c.last.Request
}

func (c *recorder) Send(context.Context, pml.Buffer, int, int, pml.Plane, pml.Mode) error {
	c.call("Send")
	return nil
}

func (c *recorder) Recv(context.Context, pml.Buffer, int, int, pml.Plane) (pml.Status, error) {
	c.call("Recv")
	return pml.Status{}, nil
}

func (c *recorder) StartSend(pml.Buffer, int, int, pml.Plane, pml.Mode) (*pml.Request, error) {
	return c.call("StartSend"), nil
}

func (c *recorder) StartRecv(pml.Buffer, int, int, pml.Plane) *pml.Request {
	return c.call("StartRecv")
}

// noSource is the source of a rank without a ring.
type noSource struct{}

func (noSource) Poll() int { return 0 }

// blocker is a task that runs until release is closed.
type blocker struct{ started, release chan struct{} }

func (b blocker) Run(*progress.Tasks) {
	close(b.started)
	<-b.release
}

func deferring(t *testing.T) (process, rank *progress.Engine, c *recorder, d *Deferring) {
	process = progress.New(progress.Options{})
	rank = process.NewRank(noSource{}, new(progress.PollWord))
	t.Cleanup(func() {
		rank.Close()
		process.Close()
	})
	c = &recorder{engine: process}
	return process, rank, c, NewDeferring(c, NewDeferredPool(rank, process))
}

// TestDeferring_CallBehindDeferredOne_DoesNotOvertakeIt delays the task in another goroutine.
func TestDeferring_CallBehindDeferredOne_DoesNotOvertakeIt(t *testing.T) {
	for _, name := range []string{"Send", "Recv"} {
		_, rank, c, d := deferring(t)
		b := blocker{make(chan struct{}), make(chan struct{})}
		rank.Lock()
		rank.Defer(b)
		var others sync.WaitGroup
		others.Go(rank.Release)
		<-b.started
		rank.Lock()
		if _, err := d.StartSend(pml.Buffer{}, 0, 0, 0, pml.Standard); err != nil {
			t.Fatal(err)
		}
		d.StartRecv(pml.Buffer{}, 0, 0, 0)
		rank.Release()
		others.Go(func() {
			if name == "Send" {
				_ = d.Send(t.Context(), pml.Buffer{}, 0, 0, 0, pml.Standard)
			} else {
				_, _ = d.Recv(t.Context(), pml.Buffer{}, 0, 0, 0)
			}
		})
		for range 1000 {
			runtime.Gosched()
		}
		close(b.release)
		others.Wait()
		if want := []string{"StartSend", "StartRecv", name}; !slices.Equal(c.calls, want) {
			t.Errorf("the Comm was called in the order %v, want %v", c.calls, want)
		}
	}
}

// TestDeferring_CanceledBeforeItsTask_DoesNotStart also covers a cancellation after the task.
func TestDeferring_CanceledBeforeItsTask_DoesNotStart(t *testing.T) {
	_, rank, c, d := deferring(t)
	rank.Lock()
	early := d.StartRecv(pml.Buffer{}, 0, 0, 0)
	generation := early.Generation()
	early.CancelLocked()
	rank.Release()
	if st, err := early.Wait(t.Context(), generation); err != nil || !st.Canceled || len(c.calls) != 0 {
		t.Errorf("canceled before its task: %+v, %v, calls %v", st, err, c.calls)
	}
	rank.Lock()
	late := d.StartRecv(pml.Buffer{}, 0, 0, 0)
	generation = late.Generation()
	rank.Release()
	if err := late.Cancel(generation); err != nil {
		t.Fatal(err)
	}
	if st, err := late.Wait(t.Context(), generation); err != nil || !st.Canceled || len(c.calls) != 1 {
		t.Errorf("canceled in the Comm: %+v, %v, calls %v", st, err, c.calls)
	}
}

// TestDeferring_RequestOfTheCommFails_EndsLikeIt checks that the statuses are equal.
func TestDeferring_RequestOfTheCommFails_EndsLikeIt(t *testing.T) {
	process, rank, c, d := deferring(t)
	rank.Lock()
	r, err := d.StartSend(pml.Buffer{}, 0, 0, 0, pml.Standard)
	if err != nil {
		t.Fatal(err)
	}
	generation := r.Generation()
	rank.Release()
	process.Lock()
	c.last.Status.Err = framework.ErrTruncate
	c.last.Finish()
	process.Unlock()
	if _, err := r.Wait(t.Context(), generation); !errors.Is(err, framework.ErrTruncate) {
		t.Error(err)
	}
}
