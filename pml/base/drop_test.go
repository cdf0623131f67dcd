package base

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// counts are the numbers of entries of all tables.
func (t *Procs[P]) counts() [4]int {
	return [4]int{len(t.Incarnations), len(t.presentProcs), len(t.endRecords), len(t.newestRosters)}
}

// comm returns a communicator of process 0 and another one.
func comm(t *testing.T, procs *Procs[*stub], id uint64, other int) Comm[*stub] {
	t.Helper()
	c, err := procs.Comm(pml.CommSpec{ID: cid.Extended{Base: id}, Members: members([2]int{0, 0}, [2]int{other, 0})}, cid.CommClose{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRemove_ProcessesComeAndGo_TablesStayAsTheyWere(t *testing.T) {
	procs := newProcs(1)
	before := procs.counts()
	for n := 1; n <= 3*maxDropped; n++ {
		p := procs.Get(incarnation(n))
		procs.SetPresent(p)
		c := comm(t, procs, uint64(n), n)
		procs.HandlePeerEvent(framework.FailedEvent(incarnation(n), "signal: killed"))
		if _, ok := procs.Remove(incarnation(n)); ok {
			t.Fatal("a process is removed that a communicator has")
		}
		procs.Drop(&c)
		if q, ok := procs.Remove(incarnation(n)); !ok || q != p {
			t.Fatalf("process %d is not removed: %v, %t", n, q, ok)
		}
	}
	if after := procs.counts(); after != before {
		t.Errorf("lives, present, ended and rosters are %v, want %v", after, before)
	}
}

func TestRemove_ProcessIsPresent_IsRefused(t *testing.T) {
	procs := newProcs(2)
	for n := range 2 {
		if _, ok := procs.Remove(incarnation(n)); ok || procs.Find(incarnation(n)) == nil {
			t.Errorf("process %d is removed", n)
		}
	}
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(1), "signal: killed"))
	if _, ok := procs.Remove(incarnation(1)); !ok {
		t.Error("a process is kept that has failed")
	}
}

func TestRemove_EndWithoutCard_IsForgotten(t *testing.T) {
	procs := newProcs(1)
	before := procs.counts()
	procs.HandlePeerEvent(framework.LeftEvent(incarnation(5)))
	if _, ok := procs.Remove(incarnation(5)); !ok || procs.counts() != before {
		t.Errorf("the tables are %v, want %v", procs.counts(), before)
	}
}

func TestDroppable_LastCommunicatorOfFailedProcess_IsReported(t *testing.T) {
	procs := newProcs(2)
	var reported []framework.Incarnation
	procs.env.Droppable = func(l framework.Incarnation) { reported = append(reported, l) }
	procs.SetPresent(procs.Get(incarnation(2)))
	first, second := comm(t, procs, 1, 2), comm(t, procs, 2, 2)
	procs.Drop(&first)
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(2), "signal: killed"))
	if len(reported) > 0 {
		t.Fatalf("%v is reported, which a communicator has", reported)
	}
	procs.Drop(&second)
	if len(reported) != 1 || reported[0] != incarnation(2) {
		t.Errorf("reported are %v", reported)
	}
	// Without a communicator, the end itself is reported.
	procs.SetPresent(procs.Get(incarnation(3)))
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(3), "signal: killed"))
	if len(reported) != 2 || reported[1] != incarnation(3) {
		t.Errorf("reported are %v", reported)
	}
}

func TestRemove_LateFrameAndCard_LeaveNoState(t *testing.T) {
	procs := newProcs(2)
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(1), "signal: killed"))
	procs.Remove(incarnation(1))
	before := procs.counts()
	p := procs.Get(incarnation(1))
	if !p.HasEnded() || !p.IsDropped() {
		t.Errorf("a late frame makes process 1 %v", p.PeerState())
	}
	procs.SetPresent(p)
	if procs.counts() != before || procs.Find(incarnation(1)) != nil {
		t.Errorf("the tables are %v, want %v", procs.counts(), before)
	}
	c := comm(t, procs, 1, 1)
	if err := c.SourceError(1, pml.PointToPoint); !errors.Is(err, framework.ErrPeerClosed) {
		t.Errorf("a receive from a dropped process: %v", err)
	}
}
