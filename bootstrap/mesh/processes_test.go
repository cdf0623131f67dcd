package mesh_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/bootstrap/local/localtest"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
)

// These tests run processes under the launcher of bootstrap/local, which provides the identity and
// the name service.

func TestMain(m *testing.M) {
	if _, rank := os.LookupEnv("LOCALTEST_PROGRAM"); rank {
		localtest.Main(m, map[string]localtest.Program{"killed": runKilledProcess, "first": runFirstConstruct})
	}
	goleak.VerifyTestMain(m)
}

// nameServiceLauncher is a mesh.Launcher over another bootstrap.
type nameServiceLauncher struct {
	bootstrap.Client
	names bootstrap.Directory
}

func launcher(ctx context.Context) (mesh.Launcher, error) {
	c, err := local.Dial(ctx, os.Environ(), bootstrap.Env{})
	if err != nil {
		return nil, err
	}
	names, ok := framework.As[bootstrap.Directory](c)
	if !ok {
		return nil, errors.New("no name service")
	}
	return nameServiceLauncher{c, names}, nil
}

func (n nameServiceLauncher) Publish(ctx context.Context, entry []byte) error {
	return n.names.Publish(ctx, n.Identity().Proc.String(), entry)
}

func (n nameServiceLauncher) Find(ctx context.Context, p framework.Proc) ([]byte, bool, error) {
	return n.names.Lookup(ctx, p.String(), false)
}

func (n nameServiceLauncher) Abort(context.Context, int, string) error { return nil }

// openClient opens this process's client.
func openClient(ctx context.Context) (bootstrap.Client, []framework.Proc, error) {
	l, err := launcher(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := mesh.Open(ctx, bootstrap.Env{}, l)
	if err != nil {
		return nil, nil, err
	}
	world, _, _ := bootstrap.BuiltinPset(c.Identity(), bootstrap.PsetWorld)
	return c, world.Members.List(), nil
}

func TestProcess_IsKilled_AllPeersReceiveDeath(t *testing.T) {
	for _, victim := range []string{"0", "2"} {
		r := localtest.RunJob(t, localtest.Job{Size: 4, Program: "killed", Env: []string{"VICTIM=" + victim}, MayFail: true})
		for rank, err := range r.Exit {
			if fmt.Sprint(rank) == victim {
				if err == nil || !strings.Contains(err.Error(), "signal: killed") {
					t.Errorf("the victim ended with %v", err)
				}
			} else if err != nil {
				t.Errorf("rank %d: %v\n%s", rank, err, r.Output[rank])
			}
		}
	}
}

func runKilledProcess(ctx context.Context) error {
	c, world, err := openClient(ctx)
	if err != nil {
		return err
	}
	me := c.Identity().Proc
	events, _ := framework.As[bootstrap.EventSource](c)
	events.BeginIncarnation(uint64(100 + me.Rank))
	if _, err := c.Construct(ctx, world, "start", nil); err != nil {
		return err
	}
	if err := c.Put(ctx, "has begun", nil); err != nil {
		return err
	}
	heard := make(chan bootstrap.Event, 16)
	events.OnEvent(func(e bootstrap.Event) { heard <- e })
	if fmt.Sprint(me.Rank) == os.Getenv("VICTIM") {
		for _, p := range world { // A dying coordinator takes unsent frames with it.
			if _, err := c.Get(ctx, p, "has begun"); p != me && err != nil {
				return err
			}
		}
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if err := c.Fence(ctx, world, "never"); !errors.Is(err, framework.ErrProcFailed) {
		return fmt.Errorf("fence with a process that was killed: %w", err)
	}
	select {
	case e := <-heard:
		if e.Kind != bootstrap.PeerFailed || fmt.Sprint(e.Proc.Rank) != os.Getenv("VICTIM") || e.Nonce != uint64(100+e.Proc.Rank) {
			return fmt.Errorf("event %+v", e)
		}
	case <-ctx.Done():
		return errors.New("no event")
	}
	return c.Close()
}

// The log has the time from opening to the first communicator.
func TestProcesses_FirstConstruct_LogsTime(t *testing.T) {
	for _, n := range []int{2, 32} {
		r := localtest.Run(t, n, "first")
		t.Logf("%d processes: %s", n, strings.TrimSpace(r.Output[0]))
	}
}

func runFirstConstruct(ctx context.Context) error {
	l, err := launcher(ctx)
	if err != nil {
		return err
	}
	// All processes start at the same time, as after a launch.
	n := l.(nameServiceLauncher)
	world, _, _ := bootstrap.BuiltinPset(n.Identity(), bootstrap.PsetWorld)
	if err := n.Fence(ctx, world.Members.List(), "begin"); err != nil {
		return err
	}
	begin := time.Now()
	c, err := mesh.Open(ctx, bootstrap.Env{}, l)
	if err != nil {
		return err
	}
	opened := time.Since(begin)
	if _, err := c.Construct(ctx, world.Members.List(), "t", make([]byte, 256)); err != nil {
		return err
	}
	first := time.Since(begin)
	if _, err := c.Construct(ctx, world.Members.List(), "t", make([]byte, 256)); err != nil {
		return err
	}
	if n.Identity().Proc.Rank == 0 {
		fmt.Printf("open %v, first construct %v, next %v\n", opened, first-opened, time.Since(begin)-first)
	}
	return c.Close()
}
