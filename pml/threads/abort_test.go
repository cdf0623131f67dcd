package threads

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/pml"
)

// canceler is a notifier that cancels another operation, and records its own end.
type canceler struct {
	other *pml.Request
	ended []error
}

func (k *canceler) Completed(r *pml.Request) {
	k.ended = append(k.ended, r.Status.Err)
	if k.other != nil {
		k.other.CancelLocked()
	}
	_, _, _ = r.Take(r.Generation())
}

// TestAbort_NotifierCancelsOtherOperations_EndsAllOnce lets the notifier of one operation cancel the next one of the
// walk.
func TestAbort_NotifierCancelsOtherOperations_EndsAllOnce(t *testing.T) {
	receive := func(c *comm, src, tag int) (*pml.Request, error) {
		return c.StartRecv(pml.Buffer{}, src, tag, p2p), nil
	}
	for name, start := range map[string]func(c *comm, tag int) (*pml.Request, error){
		"receives":                 func(c *comm, tag int) (*pml.Request, error) { return receive(c, 1, tag) },
		"receives from any source": func(c *comm, tag int) (*pml.Request, error) { return receive(c, pml.AnySource, tag) },
		"sends": func(c *comm, tag int) (*pml.Request, error) {
			return c.StartSend(pml.Buffer{}, 1, tag, p2p, pml.Synchronous)
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, comms := openTeam(t, 2)
			c, reason := comms[0], errors.New("the reason")
			var all [6]canceler
			c.rank.engine.Lock()
			for i := range all {
				r, err := start(c, i)
				if err != nil {
					t.Fatal(err)
				}
				r.Notify(&all[i])
				if i == 1 || i == 2 || i == 5 {
					all[i-1].other = r
				}
			}
			c.rank.engine.Release()
			c.Abort(p2p, reason)
			for i, k := range all {
				if len(k.ended) != 1 || !errors.Is(k.ended[0], reason) {
					t.Errorf("operation %d has ended with %v", i, k.ended)
				}
			}
		})
	}
}
