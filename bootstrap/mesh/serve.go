package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

type (
	joinTable   = join.Table[request]
	withdrawals = map[uint64]join.Withdraw
)

// maxPendingRequests limits the unanswered requests of one peer.
const maxPendingRequests = 1 << 16

// handleMessage handles one message. After an error, which is a violation of the protocol, the
// connection is closed.
func (c *client) handleMessage(l *link, m wire.Message) error {
	switch m.Kind { // Messages without a reply.
	case wire.Reply:
		l.lastReplyBody = m.Body
		c.receiveAnswer(l.rank, m)
		return nil
	case wire.RepeatReply:
		if m.Kind, m.Body = wire.Reply, l.lastReplyBody; l.lastReplyBody == nil {
			return errors.New("it repeats a reply that was never sent")
		}
		c.receiveAnswer(l.rank, m)
		return nil
	case wire.Failure:
		c.receiveAnswer(l.rank, m)
		return nil
	case wire.Incarnation:
		return handleBody(m, func(b wire.IncarnationBody) { c.setIncarnation(l.rank, b.Nonce) })
	case wire.Disconnect:
		return handleBody(m, func(b wire.DisconnectBody) { c.receiveDisconnect(l.rank, b) })
	case wire.Note:
		return handleBody(m, func(b wire.NoteBody) { c.receiveNote(l.rank, b) })
	case wire.Event:
		b, err := wire.Decode[wire.EventBody](m.Body)
		if err != nil {
			return err
		}
		return c.receiveEvent(b, l)
	case wire.CommEvent:
		b, err := wire.Decode[wire.CommEventBody](m.Body)
		if err != nil {
			return err
		}
		return c.receiveCommEvent(b, l)
	case wire.AliveQuery:
		return handleBody(m, func(wire.Empty) { l.sendLossy(encodeFrame(wire.AliveAnswer, 0, wire.Empty{})) })
	case wire.AliveAnswer:
		return handleBody(m, func(wire.Empty) {})
	case wire.OwnEntry:
		b, err := wire.Decode[wire.EntryBody](m.Body)
		if err != nil {
			return err
		}
		return c.receiveOwnEntry(l.rank, b)
	case wire.Replicate:
		return handleBody(m, func(b wire.ReplicateBody) { c.storeReplica(l.rank, b) })
	case wire.Cancel:
		return handleBody(m, func(b wire.CancelBody) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.cancelRequest(request{link: l, id: m.ID}, b.Expired)
		})
	}
	if err := c.checkRequest(l, m.ID); err != nil {
		return err
	}
	r := request{link: l, id: m.ID}
	switch m.Kind {
	case wire.Get:
		return handleBody(m, func(b wire.GetBody) { c.serveGet(r, b) })
	case wire.GetReplica:
		return handleBody(m, func(b wire.GetBody) { c.serveReplica(r, b) })
	case wire.Fence, wire.Construct:
		b, err := wire.Decode[wire.JoinBody](m.Body)
		if err != nil {
			return err
		}
		return c.handleJoin(r, l.rank, m.Kind, b)
	case wire.Change:
		return c.serveChange(r, m)
	case wire.Relay:
		b, err := wire.Decode[wire.RelayBody](m.Body)
		if err != nil || b.Kind != wire.Fence && b.Kind != wire.Construct {
			return fmt.Errorf("only a fence or a construct is relayed: %w", err)
		}
		r.isRelayed = true
		return c.handleJoin(r, b.Rank, b.Kind, wire.JoinBody{Tag: b.Tag, Group: b.Group, Payload: b.Payload})
	}
	return errors.New("not a request")
}

// handleBody decodes the body of m and passes it to f.
func handleBody[B any](m wire.Message, f func(B)) error {
	b, err := wire.Decode[B](m.Body)
	if err == nil {
		f(b)
	}
	return err
}

// checkRequest refuses an id that is 0 or in use, and requests beyond maxPendingRequests.
func (c *client) checkRequest(l *link, id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := l.pendingRequests[id]; used || id == 0 {
		return fmt.Errorf("request id %d is in use, or 0", id)
	}
	if l != c.selfLink && (len(l.pendingRequests) >= maxPendingRequests || len(c.relays) >= maxPendingRequests || c.relays[request{link: l, id: id}] != nil) {
		return fmt.Errorf("over %d calls at once, or id %d is in use", maxPendingRequests, id)
	}
	return nil
}

// cancelRequest withdraws r if it still waits. Otherwise its answer is already queued. The caller
// holds endpoint.mu.
func (c *client) cancelRequest(r request, expired bool) {
	if relayed := c.relays[r]; relayed != nil {
		c.cancelCall(relayed, expired)
		return
	}
	if leave, ok := r.link.pendingRequests[r.id]; ok {
		delete(r.link.pendingRequests, r.id)
		join.Fail(r, leave(expired))
	}
}

// handleJoin enters the call r of rank into a fence or construct, and completes that with its last
// member. If another process coordinates the group, r is relayed.
func (c *client) handleJoin(r request, rank uint32, kind wire.Kind, b wire.JoinBody) error {
	group, err := wire.Decode[wire.Runs](b.Group)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.isClosed || r.link.isLost {
		c.mu.Unlock()
		return nil
	}
	if len(group) > 0 && group[0].First != c.id.Proc.Rank {
		defer c.mu.Unlock()
		return c.relayJoin(r, rank, kind, b, group)
	}
	j, err := c.joins.Enter(r, rank, kind, b)
	var context uint64
	switch {
	case j != nil:
		if kind == wire.Construct {
			context = c.nextContext()
		}
		c.replicateToSecond(j.Group)
	case err == nil:
		c.scheduleConnectAbsent()
	}
	c.mu.Unlock()
	if j != nil {
		j.Complete(context)
	}
	return err
}

const (
	// The coordinator of a join dials absent members after absentGrace, and in a new round every
	// absentInterval. A member of another node that has left its launcher may wait for that
	// connection.
	absentGrace    = 500 * time.Millisecond
	absentInterval = 200 * time.Millisecond

	// maxAbsentRanks limits the members that one round dials.
	maxAbsentRanks = 64
)

// absentees is the state of the connections to absent members. endpoint.mu guards it.
type absentees struct {
	isScheduled bool
	// First rank of the next round.
	nextRank uint32
}

// nextRound returns the members of the next round. Each round starts after the last one, so that
// all absent members are dialed.
func (a *absentees) nextRound(absent []uint32) []uint32 {
	if len(absent) <= maxAbsentRanks {
		return absent
	}
	at, _ := slices.BinarySearch(absent, a.nextRank)
	round := slices.Concat(absent[at:], absent[:at])[:maxAbsentRanks]
	a.nextRank = round[maxAbsentRanks-1] + 1
	return round
}

// scheduleConnectAbsent schedules connections to the members that joins wait for. They detect
// members that ended before they came, and reach members that cannot look up this process any more.
// The caller holds endpoint.mu.
func (c *client) scheduleConnectAbsent() {
	if !c.absentees.isScheduled {
		c.absentees.isScheduled = true
		c.runAfter(absentGrace, c.connectAbsent)
	}
}

func (c *client) connectAbsent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.peers {
		p.isAwaited = false
	}
	absent := slices.DeleteFunc(c.absentRanks(), func(r uint32) bool { return r == c.id.Proc.Rank })
	for _, rank := range c.absentees.nextRound(absent) {
		c.peerOf(rank).isAwaited = true
	}
	for _, p := range c.peers {
		c.updateDialing(p)
	}
	if c.absentees.isScheduled = len(absent) > 0 && !c.isClosed; c.absentees.isScheduled {
		c.runAfter(absentInterval, c.connectAbsent)
	}
}

// hasEnded reports whether a process never returns. The caller holds endpoint.mu.
func (c *client) hasEnded(rank uint32) bool {
	p := c.peers[rank]
	_, dead := c.failures[rank]
	return dead || p != nil && p.state == peerEnded
}

func (c *client) Fence(ctx context.Context, group []framework.Proc, tag string) error {
	const op = "fence"
	runs, err := c.checkGroup(op, group, tag)
	switch {
	case err != nil:
	case c.exchange != nil:
		_, err = c.runExchange(ctx, exchangeRound{op: op, kind: wire.Fence, group: group, runs: runs, tag: tag})
	default:
		_, err = enterJoin[wire.Empty](ctx, c, op, wire.Fence, runs, tag, nil)
	}
	return err
}

func (c *client) Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (bootstrap.Constructed, error) {
	const op = "group construct"
	runs, err := c.checkGroup(op, group, tag)
	if err != nil {
		return bootstrap.Constructed{}, err
	}
	if c.exchange != nil {
		return c.runExchange(ctx, exchangeRound{op: op, kind: wire.Construct, group: group, runs: runs, tag: tag, payload: payload})
	}
	if err := wire.CheckSizes(tag, payload, bootstrap.MaxPayload); err != nil {
		return bootstrap.Constructed{}, join.OpError(op, tag, err)
	}
	a, err := enterJoin[wire.ConstructedBody](ctx, c, op, wire.Construct, runs, tag, c.prependEntry(payload))
	if err == nil && (a.ContextID == 0 || len(a.Payloads) != len(group)) {
		err = c.peerError(group[0].Rank, op, fmt.Errorf("context id %d with %d payloads for %d members", a.ContextID, len(a.Payloads), len(group)))
	}
	if err == nil {
		err = c.extractEntries(op, group, a.Payloads)
	}
	return bootstrap.Constructed{ContextID: a.ContextID, Payloads: a.Payloads}, err
}

// checkGroup returns ErrGroup for a group with processes of other jobs or without this process.
func (c *client) checkGroup(op string, group []framework.Proc, tag string) (wire.Runs, error) {
	runs := wire.MakeRuns(group)
	err := runs.Check(c.id.Proc.Namespace, int(c.rankLimit.Load()))
	if err == nil && runs.Index(c.id.Proc.Rank) < 0 {
		err = errors.New("the caller is not a member")
	}
	if err != nil {
		return nil, join.OpError(op, tag, fmt.Errorf("%w: %w", framework.ErrGroup, err))
	}
	return runs, nil
}

// enterJoin enters a fence or construct, which the first member of the group coordinates.
func enterJoin[A any](ctx context.Context, c *client, op string, k wire.Kind, runs wire.Runs, tag string, payload []byte) (a A, err error) {
	if failed := c.endedMembers(runs); len(failed) > 0 && ctx.Err() == nil {
		return a, &framework.MissingError{Op: op, Tag: tag, Failed: c.id.Procs(failed)}
	}
	key := wire.EncodeBody(runs)
	body, leader := wire.JoinBody{Tag: tag, Group: key, Payload: payload}, runs[0].First
	m, err := c.roundTripVia(ctx, op, tag, c.relayFor(runs), leader, k, body)
	if errors.Is(err, errNotRelayed) {
		m, err = c.roundTrip(ctx, op, tag, leader, k, body)
	}
	if err != nil {
		return a, err
	}
	if a, err = wire.Decode[A](m.Body); err != nil {
		return a, c.peerError(leader, op, err)
	}
	c.recordJoined(string(key), runs)
	return a, nil
}

// endedMembers returns the members of a group that never return. It returns none if the client is
// closed, because ErrClosed takes precedence.
func (c *client) endedMembers(runs wire.Runs) (failed []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.failures) == 0 && len(c.peers) == 0 || c.isClosed {
		return nil
	}
	for _, rank := range runs.All() {
		if c.hasEnded(rank) {
			failed = append(failed, rank)
		}
	}
	return failed
}
