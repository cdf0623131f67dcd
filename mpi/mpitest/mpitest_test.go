package mpitest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl/mtltest"
)

func TestMain(m *testing.M) {
	if err := os.Setenv("FERRY_CONFIG", os.DevNull); err != nil { // no user's file in tests
		panic(err)
	}
	os.Exit(m.Run())
}

// exchange has every rank send to every other, and all combine something.
func exchange(ctx context.Context, c *mpi.Comm) error {
	for round := range 20 {
		for shift := range c.Size() {
			to, from := (c.Rank()+shift)%c.Size(), (c.Rank()-shift+c.Size())%c.Size()
			for _, size := range []int{8, 100_000} {
				out, in := make([]byte, size), make([]byte, size)
				out[size-1] = byte(c.Rank() + round)
				if _, err := c.Sendrecv(ctx, out, to, round, in, from, round); err != nil {
					return err
				}
				if in[size-1] != byte(from+round) {
					return fmt.Errorf("round %d: from rank %d came %d", round, from, in[size-1])
				}
			}
		}
	}
	return combine(ctx, c)
}

// combine combines the ranks.
func combine(ctx context.Context, c *mpi.Comm) error {
	sum := make([]int, 1)
	if err := mpi.Allreduce(ctx, c, []int{c.Rank()}, sum, mpi.Sum[int]()); err != nil {
		return err
	}
	if want := c.Size() * (c.Size() - 1) / 2; sum[0] != want {
		return fmt.Errorf("the sum of the ranks is %d, want %d", sum[0], want)
	}
	return nil
}

func TestRun_TwoJobsAtOnce_LeaveNoResources(t *testing.T) {
	for round := range 5 {
		var jobs sync.WaitGroup
		for job := range 2 {
			jobs.Go(func() {
				r := &recorder{TB: t, name: fmt.Sprintf("job %d.%d", round, job)}
				if r.run(func(t testing.TB) { mpitest.Run(t, 4, exchange) }); len(r.failed) > 0 {
					t.Error(r.failed)
				}
			})
		}
		jobs.Wait()
	}
}

func TestRun_AnyStack_Works(t *testing.T) {
	for _, params := range []map[string]string{
		{"pml": "ob1"},
		{"btl.shm.single_copy": "off", "cid.policy": "lazy"},
		{"btl.shm.ring_size": "64KiB", "btl.shm.eager_limit": "1KiB"},
	} {
		mpitest.Job{Size: 3, Params: params}.Run(t, exchange)
	}
	reg := components.Standard()
	reg.Register(mtltest.NewMemory(mtltest.Options{}).Component())
	for _, shared := range []string{"true", "false"} {
		mpitest.Job{
			Size:    3,
			Params:  map[string]string{"pml": "cm", "mtl": "memory", "pml.cm.shared_memory": shared},
			Options: func(int) []mpi.SessionOption { return []mpi.SessionOption{mpi.WithRegistry(reg)} },
		}.Run(t, exchange)
	}
}

func TestRun_RankHangs_IsNamed(t *testing.T) {
	r := &recorder{TB: t}
	r.run(func(t testing.TB) {
		mpitest.Job{Size: 3, Timeout: time.Second}.Run(t, func(ctx context.Context, c *mpi.Comm) error {
			if c.Rank() != 2 {
				return nil
			}
			_, err := c.Recv(ctx, make([]byte, 1), 2, 7) // From itself, because a receive from another rank would end with its Close.
			return err
		})
	})
	if text := r.text(); !strings.Contains(text, "rank 2 did not end within 1s") || strings.Contains(text, "rank 0 did") || !strings.Contains(text, "mpi.(*Comm).Recv") {
		t.Errorf("the report is: %s", text)
	}
}

// limited is a test that go test ends after a time.
type limited struct {
	*recorder
	deadline time.Time
}

func (l limited) Deadline() (time.Time, bool) { return l.deadline, true }

func TestJob_GoTestTimeoutComesFirst_HangIsReported(t *testing.T) {
	r := &recorder{TB: t}
	r.run(func(testing.TB) {
		mpitest.Job{Size: 2}.Run(limited{r, time.Now().Add(6 * time.Second)}, func(ctx context.Context, c *mpi.Comm) error {
			if c.Rank() == 0 {
				return nil
			}
			_, err := c.Recv(ctx, make([]byte, 1), 1, 7)
			return err
		})
	})
	if text := r.text(); !strings.Contains(text, "rank 1 did not end within") || !strings.Contains(text, "which go test -timeout leaves") || !strings.Contains(text, "mpi.(*Comm).Recv") {
		t.Errorf("the report is: %s", text)
	}
}

func TestRun_RankIgnoresContext_IsReportedAsLeak(t *testing.T) {
	release := make(chan struct{})
	r := &recorder{TB: t}
	r.run(func(t testing.TB) {
		mpitest.Job{Size: 2, Timeout: 500 * time.Millisecond}.Run(t, func(_ context.Context, c *mpi.Comm) error {
			if c.Rank() == 1 {
				<-release
			}
			return nil
		})
	})
	close(release)
	if text := r.text(); !strings.Contains(text, "rank 1 hangs") || !strings.Contains(text, "TestRun_RankIgnoresContext_IsReportedAsLeak") {
		t.Errorf("the report is: %s", text)
	}
}

func TestRun_OneRankFails_OnlyItIsReported(t *testing.T) {
	for name, fail := range map[string]func(testing.TB) error{
		"an error": func(testing.TB) error { return errors.New("out of luck") },
		"a panic":  func(testing.TB) error { panic("out of luck") },
	} {
		r := &recorder{TB: t}
		r.run(func(t testing.TB) {
			mpitest.Run(t, 3, func(ctx context.Context, c *mpi.Comm) error {
				if c.Rank() == 1 {
					return fail(t)
				}
				return mpi.Barrier(ctx, c)
			})
		})
		if len(r.failed) != 1 || !strings.Contains(r.failed[0], "rank 1") || !strings.Contains(r.failed[0], "out of luck") {
			t.Errorf("%s: the report is: %s", name, r.text())
		}
	}
}

func TestJob_Goroutines_EachIsARank(t *testing.T) {
	for _, job := range []mpitest.Job{{Size: 1, Goroutines: 4}, {Size: 2, Goroutines: 2}, {Size: 4, Goroutines: 1}} {
		var calls atomic.Int32
		job.Run(t, func(ctx context.Context, c *mpi.Comm) error {
			calls.Add(1)
			if c.Size() != 4 {
				return fmt.Errorf("%d ranks, want 4", c.Size())
			}
			return exchange(ctx, c)
		})
		if n := calls.Load(); n != 4 {
			t.Errorf("%d ranks with %d goroutine ranks: the program ran %d times, want 4", job.Size, job.Goroutines, n)
		}
	}
}

func TestJob_GoroutineRankFails_IsNamedOnce(t *testing.T) {
	for name, x := range map[string]struct {
		fail func() error
		want string
	}{
		"error":  {func() error { return errors.New("out of luck") }, "rank 1: goroutine rank 2: out of luck"},
		"panic":  {func() error { panic("out of luck") }, "rank 1: goroutine rank 2: panic: out of luck"},
		"Goexit": {func() error { runtime.Goexit(); return nil }, "rank 1: goroutine rank 2: its goroutine has ended"},
	} {
		r := &recorder{TB: t, name: name}
		r.run(func(t testing.TB) {
			mpitest.Job{Size: 2, Goroutines: 2}.Run(t, func(ctx context.Context, c *mpi.Comm) error {
				if c.Rank() == 2 {
					return x.fail()
				}
				return mpi.Barrier(ctx, c)
			})
		})
		if len(r.failed) != 1 || !strings.HasPrefix(r.failed[0], x.want) {
			t.Errorf("%s: the report is: %s", name, r.text())
		}
	}
}

func TestRun_Leak_FailsTest(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, leak := range map[string]func(context.Context) error{
		"goroutines are left": func(context.Context) error {
			go func() { <-release }()
			return nil
		},
		"segments are left": func(ctx context.Context) error {
			_, err := mpitest.Open(ctx) // and does not close it
			return err
		},
	} {
		r := &recorder{TB: t}
		r.run(func(t testing.TB) { mpitest.Job{Size: 1}.RunSessions(t, leak) })
		if text := r.text(); !strings.Contains(text, name) {
			t.Errorf("%s: the report is: %s", name, text)
		}
	}
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	name   string
	failed []string
	logged []string
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return "recorder" + r.name }
func (r *recorder) Log(args ...any) {
	r.logged = append(r.logged, fmt.Sprint(args...))
}
func (r *recorder) Error(args ...any) { r.failed = append(r.failed, fmt.Sprint(args...)) }
func (r *recorder) FailNow()          { runtime.Goexit() }

// run runs f with the recorder, to its end or until it fails.
func (r *recorder) run(f func(testing.TB)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
}

func (r *recorder) text() string { return strings.Join(append(r.failed, r.logged...), "\n") }
