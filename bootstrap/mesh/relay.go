package mesh

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/calls"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Members of a group on another node than the coordinator's send their joins to their node leader,
// which relays each as a call of its own. So a coordinator has one connection with each node, and
// the result is sent on it once. The deadline, death and withdrawal of the original call apply to
// the relayed one. The coordinator does not know which processes share a node, so there is no
// deeper tree.

// relayGrace returns the time for which a join waits for a connection to its relay before it is
// sent to the coordinator. The relay is a member too, so waiting loses nothing, but a member that
// comes in time must not be missing because its relay is.
func (c *client) relayGrace() time.Duration { return min(c.timeouts.call/8, 5*time.Second) }

// errNotRelayed is the error of a join that was not relayed.
var errNotRelayed = errors.New("the join was not relayed")

// relayFor returns the process that this one sends its joins of a group to.
func (c *client) relayFor(group wire.Runs) uint32 {
	leader := group[0].First
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ownValues.lastVersion > 0 { // The coordinator replicates the values of this process.
		return leader
	}
	if second, _ := firstMember(group, func(r uint32) bool { return r != leader }); second == c.id.Proc.Rank {
		return leader // This process replicates the values of the coordinator.
	}
	nodeLeader, ok := c.nodeLeader(group, leader, func(uint32) bool { return true })
	if !ok || nodeLeader == c.id.Proc.Rank {
		return leader
	}
	return nodeLeader
}

// nodeLeader returns the lowest eligible member of a group on this node. ok is false if the
// coordinator is on this node too, or the node is unknown.
func (c *client) nodeLeader(group wire.Runs, leader uint32, f func(uint32) bool) (rank uint32, ok bool) {
	locals := c.id.LocalRanks
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

// bypassRelay sends a call that still waits for its relay to the coordinator.
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
	one.target = one.coordinator
	c.sendCall(c.peerOf(one.coordinator), one)
}

// relayJoin sends the join r of a process of this node to the coordinator. The caller holds
// endpoint.mu.
func (c *client) relayJoin(r request, rank uint32, kind wire.Kind, b wire.JoinBody, group wire.Runs) error {
	if err := group.Check(c.id.Proc.Namespace, int(c.rankLimit.Load())); err != nil {
		join.Fail(r, wire.FailureBody{Code: wire.CodeGroup, Text: err.Error()})
		return nil
	}
	if rank != r.link.rank || group.Index(rank) < 0 || group.Index(c.id.Proc.Rank) < 0 {
		join.Fail(r, wire.FailureBody{Code: wire.CodeGroup, Text: "a join is sent to its coordinator, or through a member"})
		return nil
	}
	one := &call{target: group[0].First, coordinator: group[0].First, kind: wire.Relay}
	one.OnAnswer = func(a calls.Answer) { c.answerRelayed(r, a) }
	if c.pendingCalls.Begin(c.ctx, one) != nil {
		return nil
	}
	c.relays[r] = one
	var err error
	if one.frame, err = wire.Encode(wire.Relay, one.ID, wire.RelayBody{Rank: rank, Kind: kind, Tag: b.Tag, Group: b.Group, Payload: b.Payload}); err != nil {
		err = fmt.Errorf("forward: %w", err)
		c.pendingCalls.Complete(one.ID, calls.Answer{Err: err})
		return err
	}
	c.sendCall(c.peerOf(one.target), one)
	return nil
}

// answerRelayed answers a relayed request with the answer of its call. The caller holds endpoint.mu.
func (c *client) answerRelayed(r request, a calls.Answer) {
	delete(c.relays, r)
	switch {
	case a.Err == nil:
		r.Answer(a.Msg.Kind, a.Msg.Body)
	case !errors.Is(a.Err, framework.ErrClosed): // A closed client sends a goodbye instead.
		r.Answer(wire.Failure, wire.EncodeBody(wire.FailureBody{Code: wire.CodeNotRelayed}))
	}
}
