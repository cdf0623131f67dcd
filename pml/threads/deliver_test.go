package threads

import (
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

const p2p = pml.PointToPoint

// openTeam returns a team of n ranks and their handles of one communicator.
func openTeam(t *testing.T, n int) (*Team, []*comm) {
	t.Helper()
	e := progress.New(progress.Options{})
	t.Cleanup(e.Close)
	p := new(Params)
	framework.FillDefaults(p)
	self := framework.Life{ID: 1, Nonce: 1}
	team := NewTeam(self, e, n, *p)
	t.Cleanup(team.Close)
	group := make([]pml.Member, n)
	for rank := range group {
		group[rank] = pml.Member{Life: self, Endpoint: uint16(rank)}
	}
	members := pml.NewMembers(group)
	comms := make([]*comm, n)
	for rank := range comms {
		c, err := team.Rank(rank).AddComm(pml.CommSpec{ID: cid.Extended{Base: 1}, Members: members, Rank: rank})
		if err != nil {
			t.Fatal(err)
		}
		comms[rank] = c.(*comm)
	}
	return team, comms
}

// refill is a notifier that receives again and sends another message to its own rank.
type refill struct {
	t    *testing.T
	c    *comm
	left int
}

func (f *refill) start() {
	f.c.StartRecv(pml.Buffer{}, 0, 1, p2p).Notify(f)
	s, err := f.c.StartSend(pml.Buffer{}, 0, 1, p2p, pml.Standard)
	if err != nil {
		f.t.Error(err)
	}
	_, _, _ = s.Take(s.Generation())
}

func (f *refill) Completed(r *pml.Request) {
	_, _, _ = r.Take(r.Generation())
	if f.left--; f.left > 0 {
		f.start()
	}
}

// TestDrain_ProducersFillTheRingMeanwhile_Ends: a cell follows each one that is consumed.
func TestDrain_ProducersFillTheRingMeanwhile_Ends(t *testing.T) {
	team, comms := openTeam(t, 1)
	r := team.Rank(0)
	const messages = 100 * ringCells
	for name, drain := range map[string]func() int{"drain": r.drain, "drainAll": r.drainAll, "Poll": r.Poll} {
		f := &refill{t: t, c: comms[0], left: messages}
		r.engine.Lock()
		f.start()
		if n := drain(); n == 0 || n > ringCells {
			t.Errorf("%s has taken %d cells, want 1 to %d", name, n, ringCells)
		}
		r.engine.Release() // delivers the rest
		if f.left != 0 {
			t.Errorf("%s: %d messages are left", name, f.left)
		}
	}
}
