package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/plugin/host"
)

// children returns the plugins of this process.
func children(t *testing.T) (pids []int) {
	t.Helper()
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		text, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for _, f := range strings.Fields(string(text)) {
			var pid int
			if _, err := fmt.Sscan(f, &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// overPlugins returns a job with btl/tcp as a plugin between ranks, beside the BTLs in besides.
func overPlugins(t *testing.T, e host.Entry, size int, besides string, params map[string]string) mpitest.Job {
	t.Helper()
	values := map[string]string{"pml": "ob1", "btl": "self,acme" + besides}
	for name, v := range params {
		values[name] = v
	}
	return mpitest.Job{Size: size, Params: values, Timeout: 5 * time.Minute, Options: func(int) []mpi.SessionOption {
		r := components.Standard()
		if err := host.Register(r, e); err != nil {
			t.Error(err)
		}
		return []mpi.SessionOption{mpi.WithRegistry(r)}
	}}
}

const stop = 7 // a tag

// killAll kills the plugins of all ranks.
func killAll(t *testing.T) {
	for _, pid := range children(t) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// inWorld runs f with the group of all ranks.
func inWorld(f func(ctx context.Context, world *mpi.Group) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		s, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		defer s.Close() // peers may be lost
		world, err := s.Group(ctx, "mpi://WORLD")
		if err != nil {
			return err
		}
		return f(ctx, world)
	}
}

// bounce sends a message to and fro, and reports how often it came back.
func bounce(ctx context.Context, c *mpi.Comm, during func(n int) (enough bool)) error {
	buf := make([]byte, 1000)
	for n := 0; ; n++ {
		if c.Rank() == 1 {
			st, err := mpi.Recv(ctx, c, buf, 0, mpi.AnyTag)
			if err == nil && st.Tag == stop {
				return nil
			}
			if err == nil {
				err = mpi.Send(ctx, c, buf, 0, 0)
			}
			if err != nil {
				return err
			}
			continue
		}
		if during(n) {
			return mpi.Send(ctx, c, buf, 1, stop)
		}
		err := mpi.Send(ctx, c, buf, 1, 0)
		if err == nil {
			_, err = mpi.Recv(ctx, c, buf, 1, 0)
		}
		if err != nil {
			return err
		}
	}
}

// Plugins are killed alternately in the middle of traffic between two ranks. Both get an error each time, and reconnect with the next
// communicator.
func TestKill_UnderOB1_NewCommunicatorWorks(t *testing.T) {
	overBoth(t, func(t *testing.T, entry func(string) host.Entry) {
		jobs, kills := 1, 4
		if *full {
			jobs, kills = 20, 5
		}
		var longest time.Duration
		for range jobs {
			var mu sync.Mutex
			var killed time.Time
			overPlugins(t, entry("tcp"), 2, "", map[string]string{"btl.acme.restarts": "1000"}).RunSessions(t, inWorld(func(ctx context.Context, world *mpi.Group) error {
				for done, attempt := 0, 0; ; attempt++ {
					c, err := mpi.CommFromGroup(ctx, world, fmt.Sprint("attempt ", attempt))
					if err != nil {
						return err
					}
					hit := false
					err = bounce(ctx, c, func(n int) bool {
						if n == 50 && done < kills {
							pids := children(t)
							mu.Lock()
							killed, hit = time.Now(), true
							mu.Unlock()
							_ = syscall.Kill(pids[done%len(pids)], syscall.SIGKILL)
						}
						return n > 50 && done == kills
					})
					_ = c.Close() // its peer may be lost
					if err == nil {
						return nil
					}
					mu.Lock()
					took := time.Since(killed)
					mu.Unlock()
					switch {
					case !errors.Is(err, mpi.ErrTransport):
						return fmt.Errorf("attempt %d: %w", attempt, err)
					case hit:
						done++
						longest = max(longest, took)
						t.Logf("kill %d: %v: %v", done, took.Round(time.Millisecond), err)
					case attempt > 20*kills:
						return err
					default:
						t.Logf("attempt %d of rank %d: %v", attempt, c.Rank(), err)
					}
				}
			}))
		}
		t.Logf("%d kills: an error at the latest after %v", jobs*kills, longest)
	})
}

// The plugin is not restarted. Communicators created afterwards use the next transport.
func TestPlugin_NoRestarts_NextTransportIsUsed(t *testing.T) {
	job := overPlugins(t, entry("tcp"), 2, ",tcp", map[string]string{"btl.acme.restarts": "0"})
	job.RunSessions(t, inWorld(func(ctx context.Context, world *mpi.Group) error {
		for _, want := range []string{"before", "after"} {
			c, err := mpi.CommFromGroup(ctx, world, want)
			if err != nil {
				return err
			}
			err = bounce(ctx, c, func(n int) bool {
				if n == 50 && want == "before" {
					killAll(t)
				}
				return n > 50 && want == "after"
			})
			_ = c.Close()
			if (err == nil) != (want == "after") {
				return fmt.Errorf("%s: %w", want, err)
			}
		}
		return nil
	}))
}

// An unused plugin is killed and restarts with another address. Messages between the ranks continue, on old and new communicators.
func TestKill_UnusedPlugin_OtherTransportsContinue(t *testing.T) {
	job := overPlugins(t, entry("tcp"), 2, ",shm", nil)
	job.RunSessions(t, inWorld(func(ctx context.Context, world *mpi.Group) error {
		before, err := mpi.CommFromGroup(ctx, world, "before")
		if err != nil {
			return err
		}
		defer before.Close()
		if err := bounce(ctx, before, func(n int) bool {
			if n == 50 {
				killAll(t)
			}
			return n == 20_000
		}); err != nil {
			return err
		}
		after, err := mpi.CommFromGroup(ctx, world, "after")
		if err != nil {
			return err
		}
		defer after.Close()
		for _, c := range []*mpi.Comm{after, before} {
			if err := bounce(ctx, c, func(n int) bool { return n == 50 }); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Several communicators are created concurrently after a path has failed. The ranks reconnect once, and all communicators work.
func TestCommunicators_CreatedConcurrently_ReconnectOnce(t *testing.T) {
	job := overPlugins(t, entry("tcp"), 3, ",tcp", map[string]string{"btl.acme.restarts": "0"})
	job.RunSessions(t, inWorld(func(ctx context.Context, world *mpi.Group) error {
		c, err := mpi.CommFromGroup(ctx, world, "before")
		if err != nil {
			return err
		}
		if c.Rank() < 2 {
			err = bounce(ctx, c, func(n int) bool {
				if n == 50 {
					killAll(t)
				}
				return false
			})
			if !errors.Is(err, mpi.ErrTransport) {
				return fmt.Errorf("before: %w", err)
			}
		}
		_ = c.Close()
		var all error
		errs := make(chan error)
		for i := range 6 {
			go func() {
				c, err := mpi.CommFromGroup(ctx, world, fmt.Sprint("after ", i))
				if err == nil && c.Rank() < 2 {
					err = bounce(ctx, c, func(n int) bool { return n == 20 })
				}
				if err == nil {
					err = mpi.Barrier(ctx, c)
				}
				if err == nil {
					err = c.Close()
				}
				errs <- err
			}()
		}
		for range 6 {
			all = errors.Join(all, <-errs)
		}
		return all
	}))
}
