package host_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/plugin/host"
)

// With an MTL for the network, ob1 serves the processes of a node, and a plugin may carry their messages. ob1 reconnects after a restart of the
// plugin. pml/cm is not involved.
func TestKill_UnderCM_NewCommunicatorWorks(t *testing.T) {
	network := mtltest.NewMemory(mtltest.Options{}).Component()
	mpitest.Job{
		Size: 2, Timeout: 2 * time.Minute,
		Params: map[string]string{"pml": "cm", "mtl": network.Info().Name, "btl": "self,acme", "btl.acme.restarts": "100"},
		Options: func(int) []mpi.SessionOption {
			r := components.Standard()
			r.Register(network)
			if err := host.Register(r, entry("tcp")); err != nil {
				t.Error(err)
			}
			return []mpi.SessionOption{mpi.WithRegistry(r)}
		},
	}.RunSessions(t, inWorld(func(ctx context.Context, world *mpi.Group) error {
		const kills = 3
		for done, attempt := 0, 0; ; attempt++ {
			c, err := mpi.CommFromGroup(ctx, world, fmt.Sprint("attempt ", attempt))
			if err != nil {
				return err
			}
			err = bounce(ctx, c, func(n int) bool {
				if n == 50 && done < kills {
					killAll(t)
					done++
				}
				return n > 50 && done == kills
			})
			_ = c.Close() // its peer may be lost
			if err == nil {
				return nil
			}
			if !errors.Is(err, mpi.ErrTransport) || attempt == 20*kills {
				return fmt.Errorf("attempt %d: %w", attempt, err)
			}
			t.Logf("attempt %d of rank %d: %v", attempt, c.Rank(), err)
		}
	}))
}
