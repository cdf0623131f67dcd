package meet

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// The members of a group that are on one node, but not the leader's, send their joins to
// the lowest of them, which passes each on as a call of its own. So a leader has one
// connection with each node, on which the result goes once. All else is as without: what
// becomes of a call, by a deadline, a death or its caller, becomes of what was passed on.
// Who leads can't see which processes share a node, so that nodes form no further tree.

// relayGrace returns how long a join waits for a connection to the process that would pass it
// on before it goes to the leader itself. That one is a member too, so that nothing is lost by
// waiting; but whoever has come by the deadline is not to be missed because another one is.
func (c *client) relayGrace() time.Duration { return min(c.timeout/8, 5*time.Second) }

// errNotRelayed says that a join was not passed on.
var errNotRelayed = errors.New("it was not forwarded")

// via returns to which process this one sends its joins of a group.
func (c *client) relayFor(group wire.Runs) uint32 {
	leader := group[0].First
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastVersion > 0 { // who leads keeps what this process has put
		return leader
	}
	if second, _ := firstMember(group, func(r uint32) bool { return r != leader }); second == c.id.Proc.Rank {
		return leader // and this one keeps what the leader puts
	}
	lowest, ok := c.nodeLeader(group, leader, func(uint32) bool { return true })
	if !ok || lowest == c.id.Proc.Rank {
		return leader
	}
	return lowest
}

// nodeLeader returns the lowest member of a group on this node that f likes; ok is false if
// that is not to be asked: the leader is on this node too, or nobody knows who is.
func (c *client) nodeLeader(group wire.Runs, leader uint32, f func(uint32) bool) (rank uint32, ok bool) {
	locals := c.id.Locals
	if _, here := slices.BinarySearch(locals, leader); here || len(locals) < 2 {
		return 0, false
	}
	for _, r := range locals {
		if group.Index(r) >= 0 && f(r) {
			return r, true
		}
	}
	return 0, false
}

// turn has a call go to its leader if it still waits for a connection.
func (c *client) bypassRelay(one *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peerOf(one.target)
	at := slices.Index(p.waitingCalls, one)
	if at < 0 || c.isClosed {
		return
	}
	p.waitingCalls = slices.Delete(p.waitingCalls, at, at+1)
	c.updateDialing(p)
	c.pendingCalls.redirect(one, one.coordinator)
	c.sendCall(c.peerOf(one.coordinator), one)
}

// relayJoin sends r, the join of a process of this node, to the group's leader. The caller
// holds place.mu.
func (c *client) relayJoin(r request, rank uint32, kind wire.Kind, b wire.JoinBody, group wire.Runs) error {
	if err := group.Check(c.id.Proc.Namespace, c.id.Size); err != nil {
		join.Fail(r, wire.FailureBody{Code: wire.CodeGroup, Text: err.Error()})
		return nil
	}
	if rank != r.link.rank || group.Index(rank) < 0 || group.Index(c.id.Proc.Rank) < 0 {
		join.Fail(r, wire.FailureBody{Code: wire.CodeGroup, Text: "a join goes to its leader, or through a member"})
		return nil
	}
	frame, err := wire.Encode(wire.Relay, 0, wire.RelayBody{Rank: rank, Kind: kind, Tag: b.Tag, Group: b.Group, Payload: b.Payload})
	if err != nil {
		return fmt.Errorf("forward: %w", err)
	}
	c.lastCallID++
	leader := group[0].First
	one := &call{id: c.lastCallID, target: leader, coordinator: leader, kind: wire.Relay, frame: setFrameID(frame, c.lastCallID), origin: r}
	if c.pendingCalls.insert(one) == nil {
		c.relays.insert(r, one)
		c.sendCall(c.peerOf(one.target), one)
	}
	return nil
}

// relays are the requests of others that this process has passed on, with the calls that
// they became. Its lock is below that of answers.
type relayTable struct {
	mu    sync.Mutex
	calls map[request]*call
}

func (s *relayTable) insert(r request, one *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[request]*call{}
	}
	s.calls[r] = one
}

// full reports whether r can't be passed on: its id is in use, or there are too many.
func (s *relayTable) isFull(r request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[r] != nil || len(s.calls) >= maxPendingRequests
}

func (s *relayTable) remove(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, r)
}

func (s *relayTable) callFor(r request) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[r]
}

// by returns the calls that requests of l became.
func (s *relayTable) callsOf(l *link) (calls []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, one := range s.calls {
		if r.link == l {
			calls = append(calls, one)
		}
	}
	return calls
}
