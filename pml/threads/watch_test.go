package threads

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/pml"
)

// receiver is a watcher that receives each message when it arrives.
type receiver struct {
	t        *testing.T
	onArrive func()
	tags     []int
}

func (w *receiver) Eager(int, int, []byte) bool { return false }

func (w *receiver) Arrived(k pml.Claimed, st pml.Status) pml.Unmatched {
	if w.tags = append(w.tags, st.Tag); len(w.tags) == 1 {
		w.onArrive()
	}
	r, err := k.Start(pml.Buffer{})
	if err != nil {
		w.t.Fatal(err)
	}
	r.Notify(&canceler{})
	return nil
}

func (w *receiver) Changed() {}

// TestWatch_ArrivalsAndWithdrawalsMeanwhile_KeepsOrder drains the ring in the call for the first message. The ring has
// the withdrawal of the second message, and a further message.
func TestWatch_ArrivalsAndWithdrawalsMeanwhile_KeepsOrder(t *testing.T) {
	_, comms := openTeam(t, 2)
	sender, c := comms[0], comms[1]
	var requests [3]*pml.Request
	var generations [3]uint32
	for i := range requests {
		r, err := sender.Isend(pml.Buffer{}, 1, i, p2p, pml.Synchronous)
		if err != nil {
			t.Fatal(err)
		}
		requests[i], generations[i] = r, r.Generation()
	}
	w := &receiver{t: t}
	w.onArrive = func() {
		if err := requests[1].Cancel(generations[1]); err != nil {
			t.Fatal(err)
		}
		if err := sender.Send(t.Context(), pml.Buffer{}, 1, 3, p2p, pml.Standard); err != nil {
			t.Fatal(err)
		}
	}
	c.rank.engine.Lock()
	c.Watch(p2p, w)
	c.rank.engine.Release()
	if !slices.Equal(w.tags, []int{0, 2, 3}) {
		t.Errorf("arrived %v, want the messages that are not withdrawn, in order", w.tags)
	}
	for i, r := range requests {
		if st, err := r.Wait(deadline(t), generations[i]); err != nil || st.Canceled != (i == 1) {
			t.Errorf("send %d: %+v, %v", i, st, err)
		}
	}
	c.rank.engine.Lock()
	c.Watch(p2p, nil)
	c.rank.engine.Release()
}
