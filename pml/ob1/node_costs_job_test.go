package ob1_test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/ob1"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// Rank 0 sends to rank 1 until the protocol is selected, and then to rank 2.
func TestNodeCosts_LaterPair_StartsWithCostsOfTheFirst(t *testing.T) {
	copies(t)
	if _, ok := cpu.CacheDomain(os.Getpid()); !ok {
		t.Skip("the distance of two processes is unknown, as the processors share no cache")
	}
	for name, stack := range map[string]pmltest.Stack{"files": stack(), "heap": heap()} {
		if underRace && name == "files" {
			continue // The race detector observes Go memory only.
		}
		w := pmltest.OpenWorld(t, stack, 3)
		comms := w.Comms(t, cid.PolicyAgree)
		ctx := bounded(t)
		exchange := func(receiver, messages int) {
			want := patterned(200_000, 3)
			if err := pmltest.Each(comms, func(rank int, c pml.Comm) error {
				got := make([]byte, len(want))
				for range messages {
					switch rank {
					case 0:
						if err := c.Send(ctx, pml.Buffer{Bytes: want}, receiver, 1, pml.PointToPoint, pml.Synchronous); err != nil {
							return err
						}
					case receiver:
						if _, err := c.Recv(ctx, pml.Buffer{Bytes: got}, 0, 1, pml.PointToPoint); err != nil || !bytes.Equal(got, want) {
							return fmt.Errorf("%v, right: %v", err, bytes.Equal(got, want))
						}
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		exchange(1, 300)
		exchange(2, 3)
		for rank, want := range []bool{1: false, 2: true} {
			if rank > 0 && ob1.HasAdoptedCosts(w.Procs[rank].Module.(*ob1.Module), w.Procs[0].Incarnation) != want {
				t.Errorf("%s: rank %d has adopted costs: %v", name, rank, !want)
			}
		}
	}
}
