package mesh

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// revoke revokes a communicator of all processes.
func (j *testJob) revoke(c *client, base uint64) {
	j.t.Helper()
	if err := c.Revoke(cid.Extended{Base: base}, j.world()); err != nil {
		j.t.Fatal(err)
	}
}

// checkRevoked waits for the revocation of a communicator.
func checkRevoked(t *testing.T, ch <-chan bootstrap.Event, base uint64) {
	t.Helper()
	for {
		switch e := nextEvent(t, ch); {
		case e.Kind != bootstrap.CommRevoked:
		case e.Comm.Base != base:
			t.Fatalf("event %+v, want the revocation of communicator %d", e, base)
		default:
			return
		}
	}
}

func TestRevoke_MemberOpensLater_ReceivesItWithItsNextFence(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		first, closed := j.open(0), j.open(1)
		j.fence("start", first, closed)
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
		j.revoke(first, 7)
		again, late := j.open(1), j.open(2)
		j.fence("opened", first, again, late)
		for _, c := range []*client{again, late} {
			events := collectEvents(c)
			checkRevoked(t, events, 7)
			j.fence("received", first, again, late)
			noEvent(t, events)
		}
	})
}

func TestRevoke_FirstMemberHasEnded_ReachesAllAlthoughCallerCloses(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		for what, goes := range map[string]func(*client) error{"dies": (*client).Crash, "closes": (*client).Close} {
			t.Run(what, func(t *testing.T) {
				j := newTestJob(t, on, 4)
				cs := j.openAll()
				j.fence("start", cs...)
				at := []<-chan bootstrap.Event{collectEvents(cs[1]), collectEvents(cs[2])}
				if err := goes(cs[0]); err != nil {
					t.Fatal(err)
				}
				eventually(t, "the caller has no connection", func() bool { return !cs[3].connectedTo(0) })
				j.revoke(cs[3], 7)
				if err := cs[3].Close(); err != nil {
					t.Fatal(err)
				}
				for _, ch := range at {
					checkRevoked(t, ch, 7)
				}
			})
		}
	})
}

func TestRevoke_CoordinatorCloses_ConnectsToNodeLeadersOnly(t *testing.T) {
	j := newTestJob(t, unix, 6)
	j.nodes = 2
	cs := j.openAll()
	j.fence("start", cs...)
	at := collectEvents(cs[5])
	j.revoke(cs[0], 7)
	if err := cs[0].Close(); err != nil {
		t.Fatal(err)
	}
	checkRevoked(t, at, 7)
	for _, rank := range []int{3, 5} { // Node leader is rank 1.
		cs[rank].mu.Lock()
		if p := cs[rank].peers[0]; p != nil && p.hasConnected {
			t.Errorf("rank %d has had a connection with the head", rank)
		}
		cs[rank].mu.Unlock()
	}
}

func TestRevoke_NextCoordinatorCloses_ReachesAll(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 4)
		cs := j.openAll()
		j.fence("start", cs...)
		at := []<-chan bootstrap.Event{collectEvents(cs[2]), collectEvents(cs[3])}
		if err := cs[0].Crash(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the next head has received the death", func() bool { return cs[1].hasDied(0) })
		j.revoke(cs[1], 7)
		if err := cs[1].Close(); err != nil {
			t.Fatal(err)
		}
		for _, ch := range at {
			checkRevoked(t, ch, 7)
		}
	})
}

func TestRevoke_ConnectionsBreak_ReachesAll(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 4)
		cs := j.openAll()
		j.fence("start", cs...)
		at := []<-chan bootstrap.Event{collectEvents(cs[0]), collectEvents(cs[1]), collectEvents(cs[2])}
		for base := range uint64(20) {
			for _, c := range cs {
				c.mu.Lock()
				for l := range c.links {
					l.drop()
				}
				c.mu.Unlock()
			}
			j.revoke(cs[3], base)
			for _, ch := range at {
				checkRevoked(t, ch, base)
			}
			eventually(t, "the connections are restored", func() bool {
				return cs[3].connectedTo(0) && cs[2].connectedTo(0) && cs[1].connectedTo(0)
			})
		}
		// A fence on a connection that is still breaking fails.
		eventually(t, "no connection is breaking", func() bool { return areConnectionsWhole(cs) })
		j.fence("end", cs...)
	})
}

// areConnectionsWhole reports whether all other clients have a connection to the first one, none is
// dropped, and both ends of each pair have as many.
func areConnectionsWhole(cs []*client) bool {
	linkCounts := map[[2]uint32]int{}
	for _, c := range cs {
		c.mu.Lock()
		defer c.mu.Unlock()
		for l := range c.links {
			l.mu.Lock()
			isDropped := l.isDropped
			l.mu.Unlock()
			if isDropped {
				return false
			}
			linkCounts[[2]uint32{c.id.Proc.Rank, l.rank}]++
		}
	}
	for pair, n := range linkCounts {
		if linkCounts[[2]uint32{pair[1], pair[0]}] != n {
			return false
		}
	}
	return !slices.ContainsFunc(cs[1:], func(c *client) bool { return linkCounts[[2]uint32{c.id.Proc.Rank, 0}] == 0 })
}

// A pair has two connections if both ends connect at the same time. A death reaches the peer in the
// same way.
func TestRevoke_OneOfTwoConnectionsBreaks_ReachesThePeer(t *testing.T) {
	j := newTestJob(t, unix, 3)
	cs := j.openAll()
	cs[2].BeginIncarnation(9)
	j.fence("start", cs...)
	if err := cs[2].Crash(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the death is known", func() bool { return cs[1].hasDied(2) && cs[0].hasDied(2) })
	cs[1].mu.Lock()
	delete(cs[1].failures, 2)
	cs[1].mu.Unlock()
	events := collectEvents(cs[1])
	if err := cs[0].connectAddr(t.Context(), 1, cs[1].ownEntry, "unix", cs[1].ownEntry.socketName()); err != nil {
		t.Fatal(err)
	}
	cs[0].mu.Lock()
	l := cs[0].peers[1].links[0]
	cs[0].mu.Unlock()
	l.mu.Lock()
	l.isDropped = true // As after a failed write.
	l.mu.Unlock()
	j.revoke(cs[0], 7)
	l.drop()
	checkRevoked(t, events, 7)
	eventually(t, "the death is known again", func() bool { return cs[1].hasDied(2) })
}

// hasDied reports whether c has received the death of rank.
func (c *client) hasDied(rank uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, isDead := c.failures[rank]
	return isDead
}

func TestRevoke_PeerDoesNotRead_IsQueued(t *testing.T) {
	j := newTestJob(t, unix, 2)
	cs := j.openAll()
	j.fence("start", cs...)
	events := collectEvents(cs[1])
	cs[0].mu.Lock()
	l := cs[0].peers[1].links[0]
	cs[0].mu.Unlock()
	l.mu.Lock()
	l.bytesUnwritten += maxLossyBytes
	l.mu.Unlock()
	j.revoke(cs[0], 7)
	checkRevoked(t, events, 7)
}

func TestRevoke_ClosedClientOrHugeGroup_ReturnsError(t *testing.T) {
	j := newTestJob(t, unix, 1)
	c := j.open(0)
	var group []framework.Proc
	for r := range uint32(wire.MaxElements + 1) { // Runs of two.
		group = append(group, framework.Proc{Namespace: j.namespace, Rank: 3 * r}, framework.Proc{Namespace: j.namespace, Rank: 3*r + 1})
	}
	if err := c.Revoke(cid.Extended{Base: 1}, group); !errors.Is(err, framework.ErrUnsupported) || strings.ContainsRune(err.Error(), '\n') {
		t.Errorf("a group over the limit: %q, want ErrUnsupported in one line", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Revoke(cid.Extended{Base: 2}, group[:1]); !errors.Is(err, framework.ErrClosed) {
		t.Errorf("a closed client: %v, want ErrClosed", err)
	}
}
