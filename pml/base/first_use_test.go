package base

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// cards are the cards of processes, with the number of those that were taken.
type cards struct {
	incarnations map[framework.Incarnation]bool
	taken        int
}

func (c *cards) Card(peer framework.Incarnation) (framework.Card, bool) {
	if c.incarnations[peer] {
		c.taken++
	}
	return nil, c.incarnations[peer]
}

func (c *cards) Find(nonce uint64) (framework.Incarnation, bool) {
	for l := range c.incarnations {
		if l.Nonce == nonce {
			return l, true
		}
	}
	return framework.Incarnation{}, false
}

func (c *cards) Node(framework.Incarnation) string { return "" }

// failing is a PML's process type that reports its end.
type failing struct {
	Proc
	ends *[]framework.Incarnation
}

func (f *failing) Fail(err error) {
	if f.MarkEnded(err) {
		*f.ends = append(*f.ends, f.Incarnation)
	}
}

// lazy returns processes with cards that are not taken yet, except that of process 0, which is this one.
func lazy(n int) (*Procs[*failing], *cards, *[]framework.Incarnation) {
	known, ends := &cards{incarnations: map[framework.Incarnation]bool{}}, new([]framework.Incarnation)
	for i := range n {
		known.incarnations[incarnation(i)] = true
	}
	env := &pml.Env{Env: progress.Env{Worlds: framework.NewWorlds("test"), Self: incarnation(0)}, Cards: known}
	t := new(Procs[*failing])
	*t = NewProcs("test", env, func(p Proc) *failing { return &failing{p, ends} }, func(peer framework.Incarnation, _ framework.Card) error {
		if old := t.SetPresent(t.Get(peer)); old != nil {
			t.Forget(old)
			old.Fail(t.ReplacedError(old.Incarnation))
		}
		return nil
	})
	t.SetPresent(t.Get(incarnation(0)))
	return t, known, ends
}

// world returns a communicator of the first n processes.
func world(t *testing.T, procs *Procs[*failing], n int) *Comm[*failing] {
	t.Helper()
	var pairs [][2]int
	for i := range n {
		pairs = append(pairs, [2]int{i, 0})
	}
	c, err := procs.Comm(pml.CommSpec{Members: members(pairs...)}, cid.CommClose{})
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestProc_FirstUse_TakesOneCard(t *testing.T) {
	procs, known, _ := lazy(1000)
	c := world(t, procs, 1000)
	if len(procs.Incarnations) != 1 || known.taken != 0 {
		t.Fatalf("%d processes have state, and %d cards were taken before the first use", len(procs.Incarnations), known.taken)
	}
	p := c.Proc(7)
	if !p.HasCard || p.Incarnation != incarnation(7) || c.Proc(7) != p || !c.IsProc(7, p) || c.RankOf(p, 0) != 7 || !c.HasProc(p) {
		t.Errorf("rank 7 is %+v", p.Proc)
	}
	if len(procs.Incarnations) != 2 || known.taken != 1 {
		t.Errorf("%d processes have state, and %d cards were taken after the first use", len(procs.Incarnations), known.taken)
	}
}

func TestProc_CardHasNotCome_HasEnded(t *testing.T) {
	procs, known, _ := lazy(3)
	c := world(t, procs, 3)
	delete(known.incarnations, incarnation(2))
	if p := c.Proc(2); !errors.Is(p.Err, framework.ErrTransport) || p.HasCard {
		t.Errorf("a process without a card: %v", p.Err)
	}
}

func TestMember_UnusedFails_OperationsEnd(t *testing.T) {
	procs, _, ends := lazy(3)
	c := world(t, procs, 3)
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(1), "killed"))
	if len(*ends) != 1 {
		t.Errorf("%v ended: waiters are not notified", *ends)
	}
	for _, err := range []error{c.SourceError(1, pml.PointToPoint), c.MemberError(c.Proc(1).Err, 1)} {
		if !errors.Is(err, framework.ErrProcFailed) {
			t.Errorf("a receive from the dead: %v", err)
		}
	}
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(1), "killed"))
	n := 0
	for range c.Failed() {
		n++
	}
	if n != 1 {
		t.Errorf("%d processes have failed", n)
	}
	later := world(t, procs, 3)
	if err := later.SourceError(1, pml.PointToPoint); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("a receive in a later communicator: %v", err)
	}
}

func TestMembers_UnusedLeave_ReceivesFromAnyEndWithoutState(t *testing.T) {
	procs, _, ends := lazy(4)
	c := world(t, procs, 4)
	for i := 1; i < 4; i++ {
		if err := c.SourceError(pml.AnySource, pml.PointToPoint); err != nil {
			t.Fatalf("after %d of 3 have left: %v", i-1, err)
		}
		procs.HandlePeerEvent(framework.LeftEvent(incarnation(i)))
	}
	if err := c.SourceError(pml.AnySource, pml.PointToPoint); !errors.Is(err, framework.ErrPeerClosed) {
		t.Errorf("after all have left: %v", err)
	}
	if len(*ends) != 3 || len(procs.Incarnations) != 1 {
		t.Errorf("waiters were notified of %d, and %d processes have state", len(*ends), len(procs.Incarnations))
	}
	if p := c.Proc(2); !errors.Is(p.Err, framework.ErrPeerClosed) {
		t.Errorf("a send to one of them: %v", p.Err)
	}
}

func TestMember_UnusedHasNewIncarnation_HasEnded(t *testing.T) {
	procs, known, ends := lazy(2)
	c := world(t, procs, 2)
	next := framework.Incarnation{ID: incarnation(1).ID, Nonce: 77}
	delete(known.incarnations, incarnation(1))
	known.incarnations[next] = true
	if err := procs.takeCard(next, nil); err != nil { // As Module.Learn does.
		t.Fatal(err)
	}
	if err := c.SourceError(pml.AnySource, pml.PointToPoint); !errors.Is(err, framework.ErrPeerClosed) || len(*ends) != 1 {
		t.Errorf("a receive from any source: %v; ended are %v", err, *ends)
	}
	if p := c.Proc(1); p.Incarnation != incarnation(1) || !errors.Is(p.Err, framework.ErrPeerClosed) {
		t.Errorf("rank 1 is %v: %v", p.Incarnation, p.Err)
	}
	if p := procs.Member(next); !p.HasCard || p.Err != nil {
		t.Errorf("the new incarnation: %v", p.Err)
	}
}

func TestMember_UsedHasNewIncarnation_HasEnded(t *testing.T) {
	procs, known, _ := lazy(2)
	c := world(t, procs, 2)
	old := c.Proc(1)
	next := framework.Incarnation{ID: incarnation(1).ID, Nonce: 77}
	known.incarnations[next] = true
	if err := procs.takeCard(next, nil); err != nil {
		t.Fatal(err)
	}
	if c.Proc(1) != old || !errors.Is(old.Err, framework.ErrPeerClosed) {
		t.Errorf("rank 1: %v", old.Err)
	}
}

func TestReconnect_UnusedMember_StaysEndedInOldCommunicators(t *testing.T) {
	procs, _, _ := lazy(2)
	before := world(t, procs, 2)
	if !procs.Reconnect(incarnation(1), nil) {
		t.Fatal("not renewed")
	}
	after := world(t, procs, 2)
	p := after.Proc(1)
	if p.Err != nil || !p.HasCard {
		t.Errorf("the process after Reconnect: %v", p.Err)
	}
	if q := before.Proc(1); q == p || !errors.Is(q.Err, framework.ErrPeerDisconnected) || before.HasProc(p) || before.RankOf(p, 0) != -1 {
		t.Errorf("the old communicator has %v: %v", q, q.Err)
	}
}

func TestMeet_UnknownProcess_LearnsItsCardOnceItHasCome(t *testing.T) {
	procs, known, _ := lazy(1)
	p := procs.Get(incarnation(1)) // As for its first frame.
	procs.LearnCard(p)
	if p.HasCard || p.Err != nil {
		t.Fatalf("known %t, %v before the card has come", p.HasCard, p.Err)
	}
	known.incarnations[incarnation(1)] = true
	if procs.LearnCard(p); !p.HasCard || procs.ByNonce(incarnation(1).Nonce) != p {
		t.Errorf("known %t after the card has come", p.HasCard)
	}
	if q := procs.ByNonce(99); q != nil {
		t.Errorf("nonce 99 is %v", q)
	}
}

func TestRemove_UnusedMember_WaitsForTheCommunicator(t *testing.T) {
	procs, _, _ := lazy(2)
	var reported []framework.Incarnation
	procs.env.Droppable = func(l framework.Incarnation) { reported = append(reported, l) }
	c := world(t, procs, 2)
	procs.HandlePeerEvent(framework.LeftEvent(incarnation(1)))
	if _, ok := procs.Remove(incarnation(1)); ok || len(reported) > 0 {
		t.Fatalf("removed %t, reported %v", ok, reported)
	}
	procs.Drop(c)
	if _, ok := procs.Remove(incarnation(1)); !ok || len(reported) != 1 || len(procs.endRecords) != 0 {
		t.Errorf("removed %t, reported %v", ok, reported)
	}
	if late := world(t, procs, 2); !errors.Is(late.Proc(1).Err, framework.ErrPeerClosed) {
		t.Errorf("in a later communicator it is %v", late.Proc(1).Err)
	}
}

func TestComm_EndpointsOfUnusedProcess_AreLearnedTogether(t *testing.T) {
	procs, known, _ := lazy(3)
	c, err := procs.Comm(pml.CommSpec{Members: members([2]int{0, 0}, [2]int{1, 1}, [2]int{2, 0}, [2]int{1, 0})}, cid.CommClose{})
	if err != nil {
		t.Fatal(err)
	}
	if c.IsWhole() || known.taken != 0 {
		t.Fatalf("%d cards were taken", known.taken)
	}
	p := c.Proc(3)
	if c.Proc(1) != p || known.taken != 1 || c.RankOf(p, 1) != 1 || len(c.Ranks(p)) != 2 || c.MostRanks() != 2 {
		t.Errorf("ranks %v, %d cards were taken", c.Ranks(p), known.taken)
	}
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(2), "killed"))
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(1), "killed"))
	if err := c.SourceError(3, pml.PointToPoint); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("a receive from an endpoint of the dead: %v", err)
	}
	if err := c.SourceError(pml.AnySource, pml.PointToPoint); err != nil {
		t.Errorf("a receive from any source, before the deaths are settled: %v", err)
	}
	c.SetSuspended(pml.PointToPoint, nil)
	if err := c.SourceError(pml.AnySource, pml.PointToPoint); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("a receive from any source: %v", err)
	}
}
