package meet

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
	joinTable = join.Table[request]
	withdraws = map[uint64]join.Withdraw
)

// maxWaiting is how many calls one peer may have outstanding here.
const maxWaiting = 1 << 16

// serve handles one message. An error means that the peer does not keep to the protocol:
// the connection is closed.
func (c *client) serve(l *link, m wire.Message) error {
	switch m.Kind { // these have no answer
	case wire.Reply:
		l.heard = m.Body
		c.answered(l.rank, m)
		return nil
	case wire.Same:
		if m.Kind, m.Body = wire.Reply, l.heard; l.heard == nil {
			return errors.New("it refers to a reply that was never sent")
		}
		c.answered(l.rank, m)
		return nil
	case wire.Failure:
		c.answered(l.rank, m)
		return nil
	case wire.Life:
		return serve(m, func(b wire.LifeBody) { c.lifeOf(l.rank, b.Nonce) })
	case wire.GiveUp:
		return serve(m, func(b wire.GiveUpBody) { c.givenUp(l.rank, b) })
	case wire.Note:
		return serve(m, func(b wire.NoteBody) { c.noted(l.rank, b) })
	case wire.Event:
		b, err := wire.Decode[wire.EventBody](m.Body)
		if err != nil {
			return err
		}
		return c.heard(b, l)
	case wire.Told:
		b, err := wire.Decode[wire.BrokenBody](m.Body)
		if err != nil {
			return err
		}
		return c.commEvent(b, l)
	case wire.AliveQuery:
		return serve(m, func(wire.Empty) { l.news(frameOf(wire.AliveAnswer, 0, wire.Empty{})) })
	case wire.AliveAnswer:
		return serve(m, func(wire.Empty) {})
	case wire.Keep:
		return serve(m, func(b wire.KeepBody) { c.keep(l.rank, b) })
	case wire.Cancel:
		return serve(m, func(b wire.CancelBody) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.cancel(request{l: l, id: m.ID}, b.Expired)
		})
	}
	if err := c.room(l, m.ID); err != nil {
		return err
	}
	r := request{l: l, id: m.ID}
	switch m.Kind {
	case wire.Get:
		return serve(m, func(b wire.GetBody) { c.get(r, b) })
	case wire.Kept:
		return serve(m, func(b wire.GetBody) { c.kept(r, b) })
	case wire.Fence, wire.Construct:
		b, err := wire.Decode[wire.JoinBody](m.Body)
		if err != nil {
			return err
		}
		return c.join(r, l.rank, m.Kind, b)
	case wire.Relay:
		b, err := wire.Decode[wire.RelayBody](m.Body)
		if err != nil || b.Kind != wire.Fence && b.Kind != wire.Construct {
			return fmt.Errorf("only a fence or a construct is relayed: %w", err)
		}
		r.relayed = true
		return c.join(r, b.Rank, b.Kind, wire.JoinBody{Tag: b.Tag, Group: b.Group, Payload: b.Payload})
	}
	return errors.New("it is not a request")
}

// serve decodes m's body and hands it to f.
func serve[B any](m wire.Message, f func(B)) error {
	b, err := wire.Decode[B](m.Body)
	if err == nil {
		f(b)
	}
	return err
}

// room refuses an id that no request may have now, and more waiting calls than the limit.
func (c *client) room(l *link, id uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, used := l.pending[id]; used || id == 0 {
		return fmt.Errorf("request id %d is in use, or 0", id)
	}
	if l != c.own && (len(l.pending) >= maxWaiting || c.relays.full(request{l: l, id: id})) {
		return fmt.Errorf("over %d calls at once, or id %d is in use", maxWaiting, id)
	}
	return nil
}

// cancel ends the wait of r, if it still waits: its answer is on the way else. The caller
// holds place.mu.
func (c *client) cancel(r request, expired bool) {
	if relayed := c.relays.of(r); relayed != nil {
		c.cancelCall(relayed, expired)
		return
	}
	if leave, ok := r.l.pending[r.id]; ok {
		delete(r.l.pending, r.id)
		join.Fail(r, leave(expired))
	}
}

// join enters r, the call of rank, into a fence or construct, and completes that when r is
// its last. Another process may lead it: then r is one of this node's, and is passed on.
func (c *client) join(r request, rank uint32, kind wire.Kind, b wire.JoinBody) error {
	group, err := wire.Decode[wire.Runs](b.Group)
	if err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed || r.l.lost {
		c.mu.Unlock()
		return nil
	}
	if len(group) > 0 && group[0].First != c.id.Proc.Rank {
		defer c.mu.Unlock()
		return c.passOn(r, rank, kind, b, group)
	}
	j, err := c.joins.Enter(r, rank, kind, b)
	var context uint64
	switch {
	case j != nil:
		if kind == wire.Construct {
			context = c.nextContext()
		}
		c.entrustSecond(j.Group)
	case err == nil:
		c.scoutSoon()
	}
	c.mu.Unlock()
	if j != nil {
		j.Complete(context)
	}
	return err
}

const (
	// The leader of a join begins to connect to absent members after scoutGrace, and starts a
	// round every scoutEvery. A member of another node that has left its launcher may wait for
	// that connection.
	scoutGrace = 500 * time.Millisecond
	scoutEvery = 200 * time.Millisecond

	// mostScouted is the number of absent members in one round.
	mostScouted = 64
)

// scoutSoon schedules connections to the members that joins wait for. They detect members that
// ended before they came, and reach members that can't look up this process any more. The
// caller holds place.mu.
func (c *client) scoutSoon() {
	if !c.scouting {
		c.scouting = true
		c.after(scoutGrace, c.scout)
	}
}

func (c *client) scout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.peers {
		p.scouted = false
	}
	absent := slices.DeleteFunc(c.joins.Absent(), func(r uint32) bool { return r == c.id.Proc.Rank })
	for _, rank := range c.scoutRound(absent) {
		c.peerOf(rank).scouted = true
	}
	for _, p := range c.peers {
		c.review(p)
	}
	if c.scouting = len(absent) > 0 && !c.closed; c.scouting {
		c.after(scoutEvery, c.scout)
	}
}

// scoutRound returns the members of the next round. Each round begins behind the last one, so
// that all absent members have their turn. The caller holds place.mu.
func (c *client) scoutRound(absent []uint32) []uint32 {
	if len(absent) <= mostScouted {
		return absent
	}
	at, _ := slices.BinarySearch(absent, c.scoutNext)
	round := slices.Concat(absent[at:], absent[:at])[:mostScouted]
	c.scoutNext = round[mostScouted-1] + 1
	return round
}

// hasEnded reports whether a process will never come again. The caller holds place.mu.
func (c *client) hasEnded(rank uint32) bool {
	p := c.peers[rank]
	_, dead := c.dead[rank]
	return dead || p != nil && p.gone
}

func (c *client) Fence(ctx context.Context, group []framework.Proc, tag string) error {
	const op = "fence"
	runs, err := c.checkGroup(op, group, tag)
	switch {
	case err != nil:
	case c.exchange != nil:
		_, err = c.through(ctx, round{op: op, kind: wire.Fence, group: group, runs: runs, tag: tag})
	default:
		_, err = enter[wire.Empty](ctx, c, op, wire.Fence, runs, tag, nil)
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
		return c.through(ctx, round{op: op, kind: wire.Construct, group: group, runs: runs, tag: tag, payload: payload})
	}
	if err := wire.CheckSizes(tag, payload, bootstrap.MaxPayload); err != nil {
		return bootstrap.Constructed{}, join.OpError(op, tag, err)
	}
	a, err := enter[wire.ConstructedBody](ctx, c, op, wire.Construct, runs, tag, c.withEntry(payload))
	if err == nil && (a.ContextID == 0 || len(a.Payloads) != len(group)) {
		err = c.peerError(group[0].Rank, op, fmt.Errorf("context id %d with %d payloads for %d members", a.ContextID, len(a.Payloads), len(group)))
	}
	if err == nil {
		err = c.takeEntries(op, group, a.Payloads)
	}
	return bootstrap.Constructed{ContextID: a.ContextID, Payloads: a.Payloads}, err
}

// checkGroup refuses a group that is none of this job's, or has not this process in it.
func (c *client) checkGroup(op string, group []framework.Proc, tag string) (wire.Runs, error) {
	runs := wire.MakeRuns(group)
	err := runs.Check(c.id.Proc.Namespace, c.id.Size)
	if err == nil && runs.Index(c.id.Proc.Rank) < 0 {
		err = errors.New("the caller is not a member")
	}
	if err != nil {
		return nil, join.OpError(op, tag, fmt.Errorf("%w: %w", framework.ErrGroup, err))
	}
	return runs, nil
}

// enter enters a fence or construct, which the first member of the group leads.
func enter[A any](ctx context.Context, c *client, op string, k wire.Kind, runs wire.Runs, tag string, payload []byte) (a A, err error) {
	if failed := c.endedOf(runs); len(failed) > 0 && ctx.Err() == nil {
		return a, &framework.MissingError{Op: op, Tag: tag, Failed: c.id.Procs(failed)}
	}
	key := wire.EncodeBody(runs)
	body, leader := wire.JoinBody{Tag: tag, Group: key, Payload: payload}, runs[0].First
	m, err := c.callVia(ctx, op, tag, c.via(runs), leader, k, body)
	if errors.Is(err, errDirect) {
		m, err = c.call(ctx, op, tag, leader, k, body)
	}
	if err != nil {
		return a, err
	}
	if a, err = wire.Decode[A](m.Body); err != nil {
		return a, c.peerError(leader, op, err)
	}
	c.joined(string(key), runs)
	return a, nil
}

// endedOf returns the members of a group that will never come, unless the client is
// closed: that comes first.
func (c *client) endedOf(runs wire.Runs) (failed []uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.dead) == 0 && len(c.peers) == 0 || c.closed {
		return nil
	}
	for _, rank := range runs.All() {
		if c.hasEnded(rank) {
			failed = append(failed, rank)
		}
	}
	return failed
}
