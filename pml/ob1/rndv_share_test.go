package ob1

import (
	"testing"

	"github.com/ferrympi/ferry/btl"
)

// diedInWrite is the share of a sender that has died in the middle of its last chunk.
type diedInWrite struct {
	btl.Share
	hasEnded bool
}

func (s *diedInWrite) Claim() (offset int64, n int)         { return 0, 0 }
func (s *diedInWrite) State() (left, writing, stopped bool) { return false, true, false }
func (s *diedInWrite) End() (ended bool)                    { s.hasEnded = true; return true }

// The transport may end such a share, but the buffer has a hole.
func TestShare_SenderDiesInWrite_ReceiveDoesNotComplete(t *testing.T) {
	for _, protocol := range []string{"put", "split"} {
		t.Run(protocol, func(t *testing.T) {
			r := &request{state: stateTransferring, rndv: new(rendezvous)}
			share := new(diedInWrite)
			s := &r.rndv.shared
			s.share = share
			var x stepper = splitReceive{s}
			if protocol == "put" {
				x = putReceive{s}
			}
			defer func() {
				if why := recover(); why != nil || share.hasEnded {
					t.Error("the receive has ended")
				}
			}()
			if steps, more := x.progress(r); steps != 0 || !more {
				t.Errorf("%d steps, more: %v", steps, more)
			}
		})
	}
}
