package udp

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// killPlugin kills a child process.
func killPlugin(n int) {
	var pids []int
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, task := range tasks {
		text, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		for f := range strings.FieldsSeq(string(text)) {
			var pid int
			if _, err := fmt.Sscan(f, &pid); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	if len(pids) > 0 {
		_ = syscall.Kill(pids[n%len(pids)], syscall.SIGKILL)
	}
}

// pingPong exchanges a message until stop returns true or an operation fails.
func pingPong(ctx context.Context, c *mpi.Comm, stop func(n int) bool) error {
	buf := make([]byte, 100)
	for n := 0; ; n++ {
		if c.Rank() == 1 {
			st, err := mpi.Recv(ctx, c, buf, 0, mpi.AnyTag)
			if err != nil || st.Tag == 1 {
				return err
			}
			if err := mpi.Send(ctx, c, buf, 0, 0); err != nil {
				return err
			}
			continue
		}
		if stop(n) {
			return mpi.Send(ctx, c, buf, 1, 1)
		}
		if err := mpi.Send(ctx, c, buf, 1, 0); err != nil {
			return err
		}
		if _, err := mpi.Recv(ctx, c, buf, 1, 0); err != nil {
			return err
		}
	}
}

// The next communicator uses the new port of the restarted plugin.
func TestPlugin_Killed_Restarts(t *testing.T) {
	plugin := asPlugin(t, protocols[0])
	const kills = 4
	mpitest.Job{
		Size: 2, Timeout: 2 * time.Minute, Params: map[string]string{"pml": "ob1", "btl": "self,udp", "btl.udp.restarts": "100"},
		Options: func(int) []mpi.SessionOption {
			r := components.Standard()
			r.Register(plugin)
			return []mpi.SessionOption{mpi.WithRegistry(r)}
		},
	}.RunSessions(t, func(ctx context.Context) error {
		s, err := mpitest.Open(ctx)
		if err != nil {
			return err
		}
		defer s.Close() // The peer may be unreachable.
		world, err := s.Group(ctx, "mpi://WORLD")
		if err != nil {
			return err
		}
		for killed := 0; ; {
			c, err := mpi.CommFromGroup(ctx, world, t.Name())
			if err != nil {
				return err
			}
			err = pingPong(ctx, c, func(n int) bool {
				if n == 50 && killed < kills {
					killPlugin(killed)
					killed++
					return false
				}
				return n > 50 && killed == kills
			})
			_ = c.Close()
			if err == nil {
				return nil
			}
			t.Logf("rank %d: %v", c.Rank(), err)
		}
	})
}
