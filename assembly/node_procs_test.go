package assembly

import (
	"testing"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// newHere returns the processes of a node for rank 4 of a job, which was added with ranks 5 and
// 6 and shares its node with rank 5.
func newHere(t *testing.T) *nodeProcs {
	t.Helper()
	engine := progress.New(progress.Options{})
	t.Cleanup(engine.Close)
	n := newNodeProcs(&progress.Env{
		Identity: bootstrap.Identity{Proc: framework.Proc{Namespace: "job", Rank: 4}, FirstRank: 4, Size: 3, MaxSize: 8, LocalSize: 2, LocalRanks: []uint32{4, 5}},
		Worlds:   framework.NewWorlds("job"), Self: incarnation(4, 40), Engine: engine,
	})
	return &n
}

func incarnation(rank uint32, nonce uint64) framework.Incarnation {
	return framework.Incarnation{ID: framework.MakeProcID(0, rank), Nonce: nonce}
}

func (n *nodeProcs) expect(t *testing.T, what string, want int) {
	t.Helper()
	if got := n.processEngine.NodeProcs(); got != want {
		t.Errorf("%s: %d processes on the node, want %d", what, got, want)
	}
}

func TestNodeProcs_CardsComeAndIncarnationsEnd_AreCountedOnce(t *testing.T) {
	n := newHere(t)
	n.expect(t, "open", 2)
	n.arrive(incarnation(5, 50), true)
	n.expect(t, "card of a counted process", 2)
	n.arrive(incarnation(0, 1), true)
	n.arrive(incarnation(6, 60), false)
	n.expect(t, "cards of this node and of another one", 3)
	n.arrive(incarnation(0, 2), true)
	n.end(incarnation(0, 1))
	n.expect(t, "the end of an earlier incarnation", 3)
	n.end(incarnation(0, 2))
	n.end(incarnation(0, 2))
	n.expect(t, "an end that is reported twice", 2)
	n.end(incarnation(5, 50))
	n.arrive(incarnation(5, 51), false) // In another container, without shared memory.
	n.expect(t, "the next incarnation of a process that the launcher counts here", 2)
	n.end(incarnation(5, 0))
	n.expect(t, "the end of any incarnation", 1)
	n.end(incarnation(77, 0))
	n.expect(t, "the end of an unknown process", 1)
}

func TestNodeProcs_ProcessEndsBeforeItsCard_IsNotCounted(t *testing.T) {
	n := newHere(t)
	n.end(incarnation(5, 0))
	n.expect(t, "a process that never opened a session", 1)
	n.beginWireUp()
	n.beginWireUp()
	n.end(incarnation(0, 1))
	n.endWireUp()
	n.arrive(incarnation(0, 1), true)
	n.arrive(incarnation(5, 50), true)
	n.end(incarnation(5, 50))
	n.expect(t, "ends during a wire-up", 1)
	n.endWireUp()
	if len(n.endedInWireUps) > 0 {
		t.Errorf("%d ends are kept after the last wire-up", len(n.endedInWireUps))
	}
}

// After 10,000 changes the number is that of the running processes, and ended ones leave no state.
func TestNodeProcs_RanksRise_CountsLivingProcesses(t *testing.T) {
	n := newHere(t)
	for rank := uint32(7); rank < 20_000; rank += 2 {
		n.beginWireUp()
		n.arrive(incarnation(rank, uint64(rank)), true)
		n.arrive(incarnation(rank+1, uint64(rank+1)), true)
		n.endWireUp()
		n.expect(t, "two more", 4)
		n.end(incarnation(rank, uint64(rank)))
		n.end(incarnation(rank+1, uint64(rank+1)))
	}
	n.expect(t, "after all changes", 2)
	if kept := len(n.nonceByID) + len(n.endedInWireUps); kept != 2 {
		t.Errorf("%d processes are kept, want 2", kept)
	}
}

// The assembly passes on cards of wire-ups and events of the bootstrap.
func TestAssembly_MembersComeAndEnd_EngineHasTheirNumber(t *testing.T) {
	a, events := newHanging().open(t, nil)
	defer a.Close()
	a.nodeProcs.expect(t, "alone", 1)
	card := wireup.Payload{Nonce: 5, Capabilities: a.encodedCapabilities, Card: a.ownCard.encodedCard}
	for rank, kind := range []bootstrap.EventKind{bootstrap.PeerFailed, bootstrap.PeerLeft} {
		other := framework.Proc{Namespace: "other", Rank: uint32(rank)}
		card.Nonce = uint64(rank) + 5
		if err := a.learn(framework.Incarnation{ID: a.env.Worlds.ID(other), Nonce: card.Nonce}, other, card); err != nil {
			t.Fatal(err)
		}
		a.nodeProcs.expect(t, "two", 2)
		events.event(bootstrap.Event{Kind: kind, Proc: other, Nonce: card.Nonce, Reason: "test"})
		a.nodeProcs.expect(t, "one has ended", 1)
	}
	if _, _, err := a.WireUp(t.Context(), nil, 0, "tag", 0); err == nil || a.nodeProcs.runningWireUps != 0 {
		t.Errorf("a wire-up of no members: %v, %d in progress", err, a.nodeProcs.runningWireUps)
	}
}

func TestNodeProcs_MachineIsDivided_CountsProcessesOfAllNodes(t *testing.T) {
	engine := progress.New(progress.Options{})
	t.Cleanup(engine.Close)
	id := bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}, Size: 4, MaxSize: 8}.OnNode(bootstrap.NodeMap{{Count: 2}, {First: 2, Count: 2, Node: 1}})
	id.IsDivided = true
	n := newNodeProcs(&progress.Env{Identity: id, Worlds: framework.NewWorlds("job"), Self: incarnation(0, 1), Engine: engine})
	n.expect(t, "open", 4)
	n.arrive(incarnation(5, 50), false)
	n.expect(t, "the card of an added process on another node", 5)
	n.end(incarnation(3, 0))
	n.expect(t, "an end on another node", 4)
}
