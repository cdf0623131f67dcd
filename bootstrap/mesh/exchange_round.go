package mesh

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

// exchangeRound is one fence or construct through an Exchange.
type exchangeRound struct {
	op, tag string
	kind    wire.Kind
	group   []framework.Proc
	runs    wire.Runs
	payload []byte

	callDigest []byte
	// Members of the barrier.
	participants    []framework.Proc
	contributionKey string
	cancel          context.CancelCauseFunc
	// Receives the end of a participant. It has room for one value.
	memberEnded chan error
}

// runExchange makes a fence or construct through the Exchange. The group is valid.
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
	c.removeRound(&r) // Members that end from now on have stored their contribution.
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

// prepareRound sets the digest and participants of a round, and returns the contribution of this
// process.
func (c *client) prepareRound(r *exchangeRound) contribution {
	digest := sha256.Sum256(append(append([]byte{byte(r.kind)}, wire.EncodeBody(r.runs)...), r.tag...))
	r.callDigest, r.participants = digest[:16], r.group
	if c.exchange.RequiresAllProcesses() {
		r.participants = allProcs(c.id)
	}
	mine := contribution{CallDigest: r.callDigest, Payload: r.payload}
	c.mu.Lock()
	defer c.mu.Unlock()
	mine.Incarnation = c.eventLog.incarnation
	if r.kind == wire.Construct && r.group[0] == c.id.Proc {
		mine.ContextID = c.nextContext()
	}
	return mine
}

// awaitBarrier stores the contribution and enters the barrier, after earlier ones of the stream. It
// returns when the barrier or ctx ends. The barrier continues until its own end.
func (c *client) awaitBarrier(ctx context.Context, r *exchangeRound, s *barrierStream, mine contribution) error {
	startedAt, timeout := time.Now(), bootstrap.Timeout(ctx, c.timeouts.call)
	deadlineTimer := time.AfterFunc(timeout, func() { r.cancel(deadlineError(timeout)) })
	defer deadlineTimer.Stop()
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
	// From here on the launcher enforces the deadline. If it does not, this call ends answerGrace
	// later.
	limit := max(time.Until(startedAt.Add(timeout)), time.Millisecond)
	deadlineTimer.Reset(limit + c.timeouts.answerGrace)
	deadline, isCallerDeadline := ctx.Deadline()
	if isCallerDeadline = isCallerDeadline && time.Until(deadline) < limit; isCallerDeadline {
		limit = max(time.Until(deadline), time.Millisecond)
	}
	barrierDone := make(chan error, 1)
	go func() { // Close does not wait for this goroutine, but for the launcher.
		err := c.exchange.Barrier(r.participants, limit)
		if err == nil {
			c.mu.Lock()
			s.completed++
			c.mu.Unlock()
		}
		<-s.busy
		barrierDone <- err
	}()
	return c.awaitBarrierEnd(ctx, r, barrierDone, isCallerDeadline)
}

// awaitBarrierEnd returns when the barrier or ctx ends. isCallerDeadline means that the limit of the
// barrier is the deadline of ctx.
func (c *client) awaitBarrierEnd(ctx context.Context, r *exchangeRound, barrierDone <-chan error, isCallerDeadline bool) error {
	select {
	case err := <-barrierDone:
		switch {
		case isCallerDeadline && errors.Is(err, framework.ErrTimeout): // The caller's deadline passes at about the same time.
			<-ctx.Done()
		case errors.Is(err, framework.ErrProcFailed): // The event with the failed process may not have arrived.
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
	case err := <-r.memberEnded: // The barrier may be complete, and the launcher's answer on its way.
		select {
		case barrierErr := <-barrierDone:
			if barrierErr == nil {
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

// failureGrace is the time for which the failure of a barrier waits for the event of the death, and
// the event for the result of the barrier.
const failureGrace = 2 * time.Second

// deadlineError is the error of a call at its deadline.
func deadlineError(after time.Duration) error {
	return fmt.Errorf("%w (after %v)", framework.ErrTimeout, after)
}

// allProcs returns all processes of a job by rank.
func allProcs(id bootstrap.Identity) []framework.Proc {
	all := make([]framework.Proc, id.Size)
	for i := range all {
		all[i] = framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(i)}
	}
	return all
}

// addRound registers a round, so that it ends with any participant, and returns its stream. It
// fails if a participant has ended.
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

// failRounds notifies the rounds with a participant that has ended. The caller holds endpoint.mu.
func (c *client) failRounds(rank uint32) {
	ended := c.id.Procs([]uint32{rank})
	for r := range c.exchangeRounds {
		if slices.Contains(r.participants, ended[0]) {
			select {
			case r.memberEnded <- &framework.MissingError{Op: r.op, Tag: r.tag, Failed: ended}:
			default:
			}
		}
	}
}

// setContributionKey sets the key of the contributions, which is the name of the stream with the
// count of its barriers.
func (c *client) setContributionKey(r *exchangeRound, s *barrierStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.contributionKey = s.name + "." + strconv.FormatUint(s.completed, 36)
}

// storeContribution stores the contribution, after it has replicated the values of this process.
func (c *client) storeContribution(ctx context.Context, r *exchangeRound, mine contribution) error {
	holder, ok := firstMember(r.runs, func(rank uint32) bool { return rank != c.id.Proc.Rank })
	c.mu.Lock()
	puts := c.ownValues.lastVersion > 0
	c.mu.Unlock()
	if puts && ok && r.runs.Index(c.id.Proc.Rank) >= 0 {
		limited, cancel := context.WithTimeout(ctx, replicaGrace)
		defer cancel()
		if err := c.replicateNow(limited, holder); err != nil {
			c.log.Warn("bootstrap mesh: values of this process are not replicated", "error", err)
		}
	}
	return c.exchange.Store(ctx, r.contributionKey, wire.EncodeBody(mine))
}

// replicateNow connects to holder if necessary, and returns when that has all values of this
// process.
func (c *client) replicateNow(ctx context.Context, holder uint32) error {
	ask := func() error {
		_, err := c.roundTrip(ctx, "replicate values", "", holder, wire.GetReplica, wire.GetBody{Rank: c.id.Proc.Rank})
		return err
	}
	if err := ask(); err != nil {
		return err
	}
	c.mu.Lock()
	if p := c.peerOf(holder); len(p.links) > 0 {
		c.replicateValues(p.links[0])
	}
	c.mu.Unlock()
	return ask() // The answer follows the values on the connection.
}

// fetchContribution returns the contribution of a member. ok is false if there is none.
func (c *client) fetchContribution(ctx context.Context, r *exchangeRound, p framework.Proc) (one contribution, ok bool, err error) {
	b, ok, err := c.exchange.Fetch(ctx, p, r.contributionKey)
	if err == nil && ok {
		if one, err = wire.Decode[contribution](b); err != nil {
			err = c.peerError(p.Rank, r.op, err)
		}
	}
	return one, ok, err
}

// collectContributions fetches the contributions after the barrier.
func (c *client) collectContributions(ctx context.Context, r *exchangeRound, mine contribution) (made bootstrap.Constructed, err error) {
	var missing []uint32
	for i, p := range r.group {
		one, ok := mine, true
		if p == c.id.Proc {
			one.Payload = bytes.Clone(mine.Payload)
		} else if one, ok, err = c.fetchContribution(ctx, r, p); err != nil {
			return made, err
		}
		if !ok { // The member may have died, and the launcher ignores that.
			missing = append(missing, p.Rank)
			continue
		}
		if !bytes.Equal(one.CallDigest, r.callDigest) {
			return made, fmt.Errorf("%w: %s is in another one at the same time: with this exchange, all processes must make fences and constructs in the same order",
				framework.ErrUnsupported, p)
		}
		if i == 0 {
			made.ContextID = one.ContextID
		}
		made.Payloads = append(made.Payloads, one.Payload)
		c.mu.Lock()
		if peer := c.peerOf(p.Rank); peer.incarnation == 0 && p != c.id.Proc { // A connection may have reported a later one.
			peer.incarnation = one.Incarnation
		}
		c.mu.Unlock()
	}
	if len(missing) > 0 {
		return made, c.missingError(r, missing)
	}
	if r.kind == wire.Construct && made.ContextID == 0 {
		return made, c.peerError(r.group[0].Rank, r.op, errors.New("no context id"))
	}
	return made, nil
}

// missingError classifies the ranks without a contribution as failed or missing.
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

// roundError adds to an error of a round the missing members, if the launcher has stored values of
// the others.
func (c *client) roundError(r *exchangeRound, err error) error {
	var known *framework.MissingError
	switch {
	case errors.As(err, &known):
		return err
	case !errors.Is(err, framework.ErrTimeout) && !errors.Is(err, framework.ErrProcFailed):
		return join.OpError(r.op, r.tag, err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.timeouts.answerGrace)
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
		return join.OpError(r.op, r.tag, fmt.Errorf("%w; the missing members are unknown", err))
	}
	return c.missingError(r, missing)
}
