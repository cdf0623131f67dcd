package assembly

import (
	"runtime"
	"testing"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// guest is a process of another job, with a communicator.
type guest struct {
	proc        framework.Proc
	incarnation framework.Incarnation
	comm        pml.Comm
}

// joins creates a communicator with process n, which has nonce n.
func joins(t *testing.T, a *Assembly, n int) guest {
	t.Helper()
	g := guest{proc: framework.Proc{Namespace: "other", Rank: uint32(n)}}
	g.incarnation = framework.Incarnation{ID: a.env.Worlds.ID(g.proc), Nonce: uint64(n)}
	if err := a.learn(g.incarnation, g.proc, wireup.Payload{Nonce: g.incarnation.Nonce, Capabilities: a.encodedCapabilities, Card: a.ownCard.encodedCard}); err != nil {
		t.Fatal(err)
	}
	m := a.pmls[0]
	local, err := m.CIDs().Reserve()
	if err != nil {
		t.Fatal(err)
	}
	g.comm, err = m.AddComm(pml.CommSpec{ID: cid.Extended{Base: uint64(n)}, Local: local, Members: pml.NewMembers([]pml.Member{{Incarnation: a.env.Self}, {Incarnation: g.incarnation}})})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// died is the event of a process's death.
func (g guest) died() bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: g.proc, Nonce: g.incarnation.Nonce, Reason: "test"}
}

// left is the event that a process has closed its session.
func (g guest) left() bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.PeerLeft, Proc: g.proc, Nonce: g.incarnation.Nonce}
}

// counts are the entries of the tables of processes.
type counts struct{ known, noted, dead, ended, past int }

func (a *Assembly) counts() counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wireUps.Lock()
	defer a.wireUps.Unlock()
	return counts{a.peers.len(), len(a.savedRoutes), len(a.failedIncarnations), len(a.wireUps.pendingDrops), len(a.droppedRoutes.dropOrder)}
}

// await yields until all events are delivered, and returns the number of entries.
func (a *Assembly) await() counts {
	for {
		a.upcalls.Lock()
		isDelivering := a.upcalls.isDelivering
		a.upcalls.Unlock()
		if !isDelivering {
			return a.counts()
		}
		runtime.Gosched()
	}
}

func TestAssembly_ProcessesComeAndGo_TheLastThousandRoutesStay(t *testing.T) {
	a, events := newHanging().open(t, nil)
	defer a.Close()
	a.hasLateRoutes = true
	for n := 1; n <= maxDroppedRoutes+500; n++ {
		g := joins(t, a, n)
		a.saveRoutes(pml.NewMembers([]pml.Member{{Incarnation: g.incarnation}}))
		if n%2 == 0 {
			events.event(g.died())
			g.comm.Close()
		} else {
			g.comm.Close()
			events.event(g.left())
		}
		a.await()
	}
	if got, want := a.await(), (counts{past: maxDroppedRoutes}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	pairs := a.Explain().Pairs
	if len(pairs) != 1+maxDroppedRoutes || pairs[1].ToRank != 501 || pairs[maxDroppedRoutes].ToRank != maxDroppedRoutes+500 {
		t.Errorf("%d pairs, from rank %d to rank %d", len(pairs), pairs[1].ToRank, pairs[len(pairs)-1].ToRank)
	}
}

func TestAssembly_WireUpInProgressAtTheEnd_KeepsTheProcess(t *testing.T) {
	a, events := newHanging().open(t, nil)
	defer a.Close()
	release := a.HoldPeers()
	g := joins(t, a, 1)
	g.comm.Close()
	events.event(g.died())
	if got := a.await(); got.known != 1 || got.dead != 1 {
		t.Errorf("%+v while a wire-up is in progress", got)
	}
	later := a.HoldPeers()
	release()
	if got, want := a.await(), (counts{past: 1}); got != want {
		t.Errorf("%+v after it, want %+v", got, want)
	}
	later()
}

func TestAssembly_CardOfADroppedProcessComesLate_IsDroppedAgain(t *testing.T) {
	a, events := newHanging().open(t, nil)
	defer a.Close()
	g := joins(t, a, 1)
	g.comm.Close()
	events.event(g.left())
	a.await()
	release := a.HoldPeers()
	late := joins(t, a, 1)
	if _, err := late.comm.Recv(t.Context(), pml.Buffer{}, 1, 0, pml.PointToPoint); err == nil {
		t.Error("a receive from a dropped process has no error")
	}
	late.comm.Close()
	release()
	if got, want := a.await(), (counts{past: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAssembly_ProcessIsDisconnected_IsKept(t *testing.T) {
	a, events := newHanging().open(t, nil)
	defer a.Close()
	g := joins(t, a, 1)
	g.comm.Close()
	events.event(bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: g.proc, Nonce: g.incarnation.Nonce, Reason: "test"})
	if got := a.await(); got.known != 1 {
		t.Errorf("%+v: it may begin again", got)
	}
}
