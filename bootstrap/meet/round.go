package meet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// round is one fence or construct that goes through an Exchange.
type round struct {
	op, tag string
	kind    wire.Kind
	group   []framework.Proc
	runs    wire.Runs
	payload []byte

	call []byte           // what part.Call is
	all  []framework.Proc // whom the barrier takes
	key  string           // of the parts
	end  context.CancelCauseFunc
	gone chan error // gets who has ended, once; has room for it
}

// through makes a fence or construct by way of the Exchange. The group is checked.
func (c *client) through(ctx context.Context, r round) (made bootstrap.Constructed, err error) {
	err = wire.CheckSizes(r.tag, r.payload, bootstrap.MaxPayload)
	switch {
	case err != nil:
	case c.ctx.Err() != nil:
		return made, closedError(r.op)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		return made, join.OpError(r.op, r.tag, err)
	}
	mine := c.partOf(&r)
	if len(r.group) == 1 {
		return bootstrap.Constructed{ContextID: mine.Context, Payloads: [][]byte{bytes.Clone(r.payload)}}, nil
	}
	ctx, r.end = context.WithCancelCause(ctx)
	defer r.end(nil)
	r.gone = make(chan error, 1)
	defer context.AfterFunc(c.ctx, func() { r.end(closedError("Close during the call")) })()
	s, err := c.beginRound(&r)
	if err != nil {
		return made, err
	}
	err = c.barrier(ctx, &r, s, mine)
	c.leaveRound(&r) // who ends from now on has left its part
	member := r.runs.Index(c.id.Proc.Rank) >= 0
	if err == nil && member {
		made, err = c.collect(ctx, &r, mine)
	}
	if err != nil {
		return made, c.roundError(&r, err)
	}
	if member {
		c.wasIn(string(wire.EncodeBody(r.runs)), r.runs, false)
	}
	return made, nil
}

// partOf returns this process's part in a round, and completes the round.
func (c *client) partOf(r *round) part {
	digest := sha256.Sum256(append(append([]byte{byte(r.kind)}, wire.EncodeBody(r.runs)...), r.tag...))
	r.call, r.all = digest[:16], r.group
	if c.exchange.Everyone() {
		r.all = everyone(c.id)
	}
	mine := part{Call: r.call, Payload: r.payload}
	c.mu.Lock()
	defer c.mu.Unlock()
	mine.Life = c.life
	if r.kind == wire.Construct && r.group[0] == c.id.Proc {
		mine.Context = c.nextContext()
	}
	return mine
}

// barrier stores the part and goes through the barrier, when it is this call's turn. It
// returns when that is over, or ctx has ended; the barrier has an end of its own.
func (c *client) barrier(ctx context.Context, r *round, s *stream, mine part) error {
	began, timeout := time.Now(), bootstrap.Timeout(ctx, c.timeout)
	late := time.AfterFunc(timeout, func() { r.end(errLate(timeout)) })
	defer late.Stop()
	select {
	case s.turn <- struct{}{}:
	case err := <-r.gone:
		return err
	case <-ctx.Done():
		c.setKey(r, s)
		return fmt.Errorf("%w; another one is in progress in this process", context.Cause(ctx))
	}
	c.setKey(r, s)
	if err := c.enterRound(ctx, r, mine); err != nil {
		<-s.turn
		return err
	}
	// From here on the deadline is the launcher's to keep; if it does not, this call ends.
	limit := max(time.Until(began.Add(timeout)), time.Millisecond)
	late.Reset(limit + c.grace)
	at, theirs := ctx.Deadline()
	if theirs = theirs && time.Until(at) < limit; theirs {
		limit = max(time.Until(at), time.Millisecond)
	}
	through := make(chan error, 1)
	go func() { // which Close does not wait for: the launcher's does
		err := c.exchange.Barrier(r.all, limit)
		if err == nil {
			c.mu.Lock()
			s.round++
			c.mu.Unlock()
		}
		<-s.turn
		through <- err
	}()
	select {
	case err := <-through:
		switch {
		case theirs && errors.Is(err, framework.ErrTimeout): // the caller's deadline passes about now
			<-ctx.Done()
		case errors.Is(err, framework.ErrProcFailed): // who has is news that may be on its way
			select {
			case err = <-r.gone:
			case <-ctx.Done():
				err = context.Cause(ctx)
			case <-time.After(goneGrace):
			}
			return err
		default:
			return err
		}
	case err := <-r.gone: // maybe after it was through, and the launcher's answer is on its way
		select {
		case late := <-through:
			if late == nil {
				err = nil
			}
			return err
		case <-ctx.Done():
		case <-time.After(goneGrace):
			return err
		}
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// goneGrace is how long a call whose barrier has lost a process waits for what the other
// one says of it, the launcher or the members.
const goneGrace = 2 * time.Second

// errLate is the end of a call at its deadline.
func errLate(after time.Duration) error {
	return fmt.Errorf("%w (after %v)", framework.ErrTimeout, after)
}

// everyone is all processes of a job, by rank.
func everyone(id bootstrap.Identity) []framework.Proc {
	all := make([]framework.Proc, id.Size)
	for i := range all {
		all[i] = framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(i)}
	}
	return all
}

// beginRound has the round end when a process does that it needs, and fails if one has. It
// returns the round's stream.
func (c *client) beginRound(r *round) (*stream, error) {
	if failed := c.endedOf(wire.MakeRuns(r.all)); len(failed) > 0 {
		return nil, &framework.MissingError{Op: r.op, Tag: r.tag, Failed: c.id.Procs(failed)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rounds[r] = struct{}{}
	return c.streamOf(string(wire.EncodeBody(wire.MakeRuns(r.all)))), nil
}

func (c *client) leaveRound(r *round) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.rounds, r)
}

// endRounds tells the calls that need a process that will never come. The caller holds
// place.mu.
func (c *client) endRounds(rank uint32) {
	gone := c.id.Procs([]uint32{rank})
	for r := range c.rounds {
		if slices.Contains(r.all, gone[0]) {
			select {
			case r.gone <- &framework.MissingError{Op: r.op, Tag: r.tag, Failed: gone}:
			default:
			}
		}
	}
}

// setKey names the parts of the round: by its barrier's stream, and place in that.
func (c *client) setKey(r *round, s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.key = s.name + "." + strconv.FormatUint(s.round, 36)
}

// enterRound does what comes before the barrier: its part goes into the store, and what
// this process has put to its keeper, so that it can be had without this process.
func (c *client) enterRound(ctx context.Context, r *round, mine part) error {
	keeper, ok := first(r.runs, func(rank uint32) bool { return rank != c.id.Proc.Rank })
	c.mu.Lock()
	puts := c.version > 0
	c.mu.Unlock()
	if puts && ok && r.runs.Index(c.id.Proc.Rank) >= 0 {
		limited, cancel := context.WithTimeout(ctx, keeperGrace)
		defer cancel()
		if err := c.entrustNow(limited, keeper); err != nil {
			c.log.Warn("bootstrap meet: no other process keeps the values of this one", "error", err)
		}
	}
	return c.exchange.Store(ctx, r.key, wire.EncodeBody(mine))
}

// entrustNow is entrust for a process that may not be connected yet. It returns when that
// has all.
func (c *client) entrustNow(ctx context.Context, keeper uint32) error {
	ask := func() error {
		_, err := c.call(ctx, "have another process keep values", "", keeper, wire.Kept, wire.GetBody{Rank: c.id.Proc.Rank})
		return err
	}
	if err := ask(); err != nil {
		return err
	}
	c.mu.Lock()
	if p := c.peerOf(keeper); len(p.links) > 0 {
		c.entrust(p.links[0])
	}
	c.mu.Unlock()
	return ask() // what was sent before is there when this is answered
}

// fetch returns a member's part; ok is false if there is none.
func (c *client) fetch(ctx context.Context, r *round, p framework.Proc) (one part, ok bool, err error) {
	b, ok, err := c.exchange.Fetch(ctx, p, r.key)
	if err == nil && ok {
		if one, err = wire.Decode[part](b); err != nil {
			err = c.peerError(p.Rank, r.op, err)
		}
	}
	return one, ok, err
}

// collect does what comes after the barrier.
func (c *client) collect(ctx context.Context, r *round, mine part) (made bootstrap.Constructed, err error) {
	var missing []uint32
	for i, p := range r.group {
		one, ok := mine, true
		if p == c.id.Proc {
			one.Payload = bytes.Clone(mine.Payload)
		} else if one, ok, err = c.fetch(ctx, r, p); err != nil {
			return made, err
		}
		if !ok { // it has died, say, and the launcher does not mind
			missing = append(missing, p.Rank)
			continue
		}
		if !bytes.Equal(one.Call, r.call) {
			return made, fmt.Errorf("%w: %s called another one at the same time, and the launcher can't tell them apart: with this exchange all processes must make them in the same order",
				framework.ErrUnsupported, p)
		}
		if i == 0 {
			made.ContextID = one.Context
		}
		made.Payloads = append(made.Payloads, one.Payload)
		c.mu.Lock()
		if peer := c.peerOf(p.Rank); peer.life == 0 && p != c.id.Proc { // a connection may have said more by now
			peer.life = one.Life
		}
		c.mu.Unlock()
	}
	if len(missing) > 0 {
		return made, c.missingOf(r, missing)
	}
	if r.kind == wire.Construct && made.ContextID == 0 {
		return made, c.peerError(r.group[0].Rank, r.op, errors.New("it gave no context id"))
	}
	return made, nil
}

// missingOf is the error for those that have not come.
func (c *client) missingOf(r *round, ranks []uint32) error {
	e := &framework.MissingError{Op: r.op, Tag: r.tag}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rank := range ranks {
		if p := c.id.Procs([]uint32{rank})[0]; c.hasEnded(rank) {
			e.Failed = append(e.Failed, p)
		} else {
			e.Missing = append(e.Missing, p)
		}
	}
	return e
}

// roundError says how a round has ended, and, of one that had not all come in time, who was
// missing, if the launcher knows.
func (c *client) roundError(r *round, err error) error {
	var known *framework.MissingError
	switch {
	case errors.As(err, &known):
		return err
	case !errors.Is(err, framework.ErrTimeout) && !errors.Is(err, framework.ErrProcFailed):
		return join.OpError(r.op, r.tag, err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.grace)
	defer cancel()
	var missing []uint32
	for _, p := range r.all {
		if p == c.id.Proc {
			continue
		}
		_, ok, fetchErr := c.fetch(ctx, r, p)
		if fetchErr != nil {
			missing = nil
			break
		}
		if !ok {
			missing = append(missing, p.Rank)
		}
	}
	if len(missing) == 0 {
		return join.OpError(r.op, r.tag, fmt.Errorf("%w; it is not known who is missing", err))
	}
	return c.missingOf(r, missing)
}
