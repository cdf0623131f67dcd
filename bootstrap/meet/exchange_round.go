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
type exchangeRound struct {
	op, tag string
	kind    wire.Kind
	group   []framework.Proc
	runs    wire.Runs
	payload []byte

	callDigest      []byte           // what part.Call is
	participants    []framework.Proc // whom the barrier takes
	contributionKey string           // of the parts
	cancel          context.CancelCauseFunc
	memberEnded     chan error // gets who has ended, once; has room for it
}

// through makes a fence or construct by way of the Exchange. The group is checked.
func (c *client) runExchange(ctx context.Context, r exchangeRound) (made bootstrap.Constructed, err error) {
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
	mine := c.prepareRound(&r)
	if len(r.group) == 1 {
		return bootstrap.Constructed{ContextID: mine.ContextID, Payloads: [][]byte{bytes.Clone(r.payload)}}, nil
	}
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	r.memberEnded = make(chan error, 1)
	defer context.AfterFunc(c.ctx, func() { r.cancel(closedError("Close during the call")) })()
	s, err := c.addRound(&r)
	if err != nil {
		return made, err
	}
	err = c.awaitBarrier(ctx, &r, s, mine)
	c.removeRound(&r) // who ends from now on has left its part
	member := r.runs.Index(c.id.Proc.Rank) >= 0
	if err == nil && member {
		made, err = c.collectContributions(ctx, &r, mine)
	}
	if err != nil {
		return made, c.roundError(&r, err)
	}
	if member {
		c.recordMembership(string(wire.EncodeBody(r.runs)), r.runs, false)
	}
	return made, nil
}

// prepareRound returns this process's part in a round, and completes the round.
func (c *client) prepareRound(r *exchangeRound) contribution {
	digest := sha256.Sum256(append(append([]byte{byte(r.kind)}, wire.EncodeBody(r.runs)...), r.tag...))
	r.callDigest, r.participants = digest[:16], r.group
	if c.exchange.RequiresAllProcesses() {
		r.participants = allProcs(c.id)
	}
	mine := contribution{CallDigest: r.callDigest, Payload: r.payload}
	c.mu.Lock()
	defer c.mu.Unlock()
	mine.Incarnation = c.incarnation
	if r.kind == wire.Construct && r.group[0] == c.id.Proc {
		mine.ContextID = c.nextContext()
	}
	return mine
}

// barrier stores the part and goes through the barrier, when it is this call's turn. It
// returns when that is over, or ctx has ended; the barrier has an end of its own.
func (c *client) awaitBarrier(ctx context.Context, r *exchangeRound, s *barrierStream, mine contribution) error {
	began, timeout := time.Now(), bootstrap.Timeout(ctx, c.timeout)
	late := time.AfterFunc(timeout, func() { r.cancel(deadlineError(timeout)) })
	defer late.Stop()
	select {
	case s.busy <- struct{}{}:
	case err := <-r.memberEnded:
		return err
	case <-ctx.Done():
		c.setContributionKey(r, s)
		return fmt.Errorf("%w; another one is in progress in this process", context.Cause(ctx))
	}
	c.setContributionKey(r, s)
	if err := c.storeContribution(ctx, r, mine); err != nil {
		<-s.busy
		return err
	}
	// From here on the deadline is the launcher's to keep; if it does not, this call ends.
	limit := max(time.Until(began.Add(timeout)), time.Millisecond)
	late.Reset(limit + c.answerGrace)
	at, theirs := ctx.Deadline()
	if theirs = theirs && time.Until(at) < limit; theirs {
		limit = max(time.Until(at), time.Millisecond)
	}
	through := make(chan error, 1)
	go func() { // which Close does not wait for: the launcher's does
		err := c.exchange.Barrier(r.participants, limit)
		if err == nil {
			c.mu.Lock()
			s.completed++
			c.mu.Unlock()
		}
		<-s.busy
		through <- err
	}()
	select {
	case err := <-through:
		switch {
		case theirs && errors.Is(err, framework.ErrTimeout): // the caller's deadline passes about now
			<-ctx.Done()
		case errors.Is(err, framework.ErrProcFailed): // who has is news that may be on its way
			select {
			case err = <-r.memberEnded:
			case <-ctx.Done():
				err = context.Cause(ctx)
			case <-time.After(failureGrace):
			}
			return err
		default:
			return err
		}
	case err := <-r.memberEnded: // maybe after it was through, and the launcher's answer is on its way
		select {
		case late := <-through:
			if late == nil {
				err = nil
			}
			return err
		case <-ctx.Done():
		case <-time.After(failureGrace):
			return err
		}
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// failureGrace is how long a call whose barrier has lost a process waits for what the other
// one says of it, the launcher or the members.
const failureGrace = 2 * time.Second

// deadlineError is the end of a call at its deadline.
func deadlineError(after time.Duration) error {
	return fmt.Errorf("%w (after %v)", framework.ErrTimeout, after)
}

// everyone is all processes of a job, by rank.
func allProcs(id bootstrap.Identity) []framework.Proc {
	all := make([]framework.Proc, id.Size)
	for i := range all {
		all[i] = framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(i)}
	}
	return all
}

// addRound has the round end when a process does that it needs, and fails if one has. It
// returns the round's stream.
func (c *client) addRound(r *exchangeRound) (*barrierStream, error) {
	if failed := c.endedMembers(wire.MakeRuns(r.participants)); len(failed) > 0 {
		return nil, &framework.MissingError{Op: r.op, Tag: r.tag, Failed: c.id.Procs(failed)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exchangeRounds[r] = struct{}{}
	return c.barrierStreamOf(string(wire.EncodeBody(wire.MakeRuns(r.participants)))), nil
}

func (c *client) removeRound(r *exchangeRound) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.exchangeRounds, r)
}

// failRounds tells the calls that need a process that will never come. The caller holds
// place.mu.
func (c *client) failRounds(rank uint32) {
	gone := c.id.Procs([]uint32{rank})
	for r := range c.exchangeRounds {
		if slices.Contains(r.participants, gone[0]) {
			select {
			case r.memberEnded <- &framework.MissingError{Op: r.op, Tag: r.tag, Failed: gone}:
			default:
			}
		}
	}
}

// setContributionKey names the parts of the round: by its barrier's stream, and place in that.
func (c *client) setContributionKey(r *exchangeRound, s *barrierStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.contributionKey = s.name + "." + strconv.FormatUint(s.completed, 36)
}

// storeContribution does what comes before the barrier: its part goes into the store, and what
// this process has put to its keeper, so that it can be had without this process.
func (c *client) storeContribution(ctx context.Context, r *exchangeRound, mine contribution) error {
	keeper, ok := firstMember(r.runs, func(rank uint32) bool { return rank != c.id.Proc.Rank })
	c.mu.Lock()
	puts := c.lastVersion > 0
	c.mu.Unlock()
	if puts && ok && r.runs.Index(c.id.Proc.Rank) >= 0 {
		limited, cancel := context.WithTimeout(ctx, replicaGrace)
		defer cancel()
		if err := c.replicateNow(limited, keeper); err != nil {
			c.log.Warn("bootstrap meet: no other process keeps the values of this one", "error", err)
		}
	}
	return c.exchange.Store(ctx, r.contributionKey, wire.EncodeBody(mine))
}

// replicateNow is entrust for a process that may not be connected yet. It returns when that
// has all.
func (c *client) replicateNow(ctx context.Context, keeper uint32) error {
	ask := func() error {
		_, err := c.roundTrip(ctx, "have another process keep values", "", keeper, wire.Kept, wire.GetBody{Rank: c.id.Proc.Rank})
		return err
	}
	if err := ask(); err != nil {
		return err
	}
	c.mu.Lock()
	if p := c.peerOf(keeper); len(p.links) > 0 {
		c.replicateValues(p.links[0])
	}
	c.mu.Unlock()
	return ask() // what was sent before is there when this is answered
}

// fetch returns a member's part; ok is false if there is none.
func (c *client) fetchContribution(ctx context.Context, r *exchangeRound, p framework.Proc) (one contribution, ok bool, err error) {
	b, ok, err := c.exchange.Fetch(ctx, p, r.contributionKey)
	if err == nil && ok {
		if one, err = wire.Decode[contribution](b); err != nil {
			err = c.peerError(p.Rank, r.op, err)
		}
	}
	return one, ok, err
}

// collect does what comes after the barrier.
func (c *client) collectContributions(ctx context.Context, r *exchangeRound, mine contribution) (made bootstrap.Constructed, err error) {
	var missing []uint32
	for i, p := range r.group {
		one, ok := mine, true
		if p == c.id.Proc {
			one.Payload = bytes.Clone(mine.Payload)
		} else if one, ok, err = c.fetchContribution(ctx, r, p); err != nil {
			return made, err
		}
		if !ok { // it has died, say, and the launcher does not mind
			missing = append(missing, p.Rank)
			continue
		}
		if !bytes.Equal(one.CallDigest, r.callDigest) {
			return made, fmt.Errorf("%w: %s called another one at the same time, and the launcher can't tell them apart: with this exchange all processes must make them in the same order",
				framework.ErrUnsupported, p)
		}
		if i == 0 {
			made.ContextID = one.ContextID
		}
		made.Payloads = append(made.Payloads, one.Payload)
		c.mu.Lock()
		if peer := c.peerOf(p.Rank); peer.incarnation == 0 && p != c.id.Proc { // a connection may have said more by now
			peer.incarnation = one.Incarnation
		}
		c.mu.Unlock()
	}
	if len(missing) > 0 {
		return made, c.missingError(r, missing)
	}
	if r.kind == wire.Construct && made.ContextID == 0 {
		return made, c.peerError(r.group[0].Rank, r.op, errors.New("it gave no context id"))
	}
	return made, nil
}

// missingError is the error for those that have not come.
func (c *client) missingError(r *exchangeRound, ranks []uint32) error {
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
func (c *client) roundError(r *exchangeRound, err error) error {
	var known *framework.MissingError
	switch {
	case errors.As(err, &known):
		return err
	case !errors.Is(err, framework.ErrTimeout) && !errors.Is(err, framework.ErrProcFailed):
		return join.OpError(r.op, r.tag, err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.answerGrace)
	defer cancel()
	var missing []uint32
	for _, p := range r.participants {
		if p == c.id.Proc {
			continue
		}
		_, ok, fetchErr := c.fetchContribution(ctx, r, p)
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
	return c.missingError(r, missing)
}
