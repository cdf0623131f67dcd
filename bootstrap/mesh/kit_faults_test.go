package mesh

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// Faults of the kit's jobs that need more than the end of a client.

// awaitCondition waits until f is true.
func awaitCondition(what string, f func() bool) error {
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("not within 20 s: " + what)
		}
	}
	return nil
}

// isolateHost ends clients, which are on one host for the others from now on. The others cannot
// connect to them, and their checks of hosts run as if the host timeout had passed.
func isolateHost(cs []*client, ranks []int) error {
	const host = 1<<63 - 1
	var live []*client
	for rank, c := range cs {
		if slices.Contains(ranks, rank) {
			continue
		}
		live = append(live, c)
		c.mu.Lock()
		for _, lost := range ranks {
			e := c.entries[uint32(lost)]
			e.hostID = host
			c.entries[uint32(lost)], c.peerOf(uint32(lost)).isDialing = e, true
		}
		c.mu.Unlock()
	}
	for _, lost := range ranks {
		if err := cs[lost].Crash(); err != nil {
			return err
		}
	}
	for _, c := range live {
		if err := awaitCondition("the connections have ended", func() bool {
			return !slices.ContainsFunc(ranks, c.connectedTo)
		}); err != nil {
			return err
		}
	}
	for _, c := range live {
		c.mu.Lock()
		var last time.Time
		for _, lost := range ranks {
			if at := c.peerOf(uint32(lost)).lastSignAt; at.After(last) {
				last = at
			}
		}
		if !last.IsZero() {
			c.checkHostsAt(last, c.timeouts.host/2, 2*c.timeouts.host)
		}
		c.mu.Unlock()
	}
	return nil
}

// linksTo returns the connections with rank.
func (c *client) linksTo(rank uint32) []*link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.peers[rank]; p != nil {
		return slices.Clone(p.links)
	}
	return nil
}

// breakConnections breaks the connections of a client, and returns when both ends have noticed.
func breakConnections(cs []*client, rank int) error {
	victim := cs[rank]
	var broken []*link
	for _, c := range cs {
		broken = append(append(broken, c.linksTo(victim.id.Proc.Rank)...), victim.linksTo(c.id.Proc.Rank)...)
	}
	for _, l := range broken {
		l.drop()
	}
	return awaitCondition("both ends have noticed", func() bool {
		for _, c := range cs {
			both := [2][]*link{c.linksTo(victim.id.Proc.Rank), victim.linksTo(c.id.Proc.Rank)}
			if len(both[0]) != len(both[1]) || slices.ContainsFunc(broken, func(l *link) bool { return slices.Contains(both[0], l) || slices.Contains(both[1], l) }) {
				return false
			}
		}
		return true
	})
}

// Messages of two connections arrive in any order.
func TestEnd_SecondConnectionIsLate_NextIncarnationContinues(t *testing.T) {
	j := newTestJob(t, unix, 3)
	cs := j.openAll()
	j.fence("start", cs...)
	receiver, events := cs[0], collectEvents(cs[0])
	from := receiver.linksTo(1)[0]
	end := wire.EventBody{Kind: uint8(bootstrap.PeerLeft), Rank: 1, Nonce: 7}
	for range 2 { // Both connections have the same messages.
		receiver.setIncarnation(1, 7)
		if err := receiver.receiveEvent(end, from); err != nil {
			t.Fatal(err)
		}
		receiver.setIncarnation(1, 8)
	}
	if e := nextEvent(t, events); e.Kind != bootstrap.PeerLeft || e.Nonce != 7 {
		t.Errorf("event %+v, want the end of 7", e)
	}
	receiver.setIncarnation(1, 7)
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	if p := receiver.peerOf(1); p.incarnation != 8 || p.hasLeft {
		t.Errorf("incarnation %d, left %v, want 8", p.incarnation, p.hasLeft)
	}
	noEvent(t, events)
}
