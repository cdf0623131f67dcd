package mesh

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

const (
	// Pauses between dial attempts. idlePause applies while no call waits for the connection.
	firstPause = time.Millisecond
	maxPause   = 50 * time.Millisecond
	idlePause  = time.Second

	// maxRefusals in a row over at least refusalPeriod fail the calls to a process on another host
	// that was never connected.
	maxRefusals   = 5
	refusalPeriod = time.Second
)

// dialer is the state of the dial attempts to a peer.
type dialer struct {
	isDialing bool
	// Ends a pause. It has room for one value.
	wake chan struct{}
	// Ends the current attempt. It is nil between attempts.
	cancelDial context.CancelFunc

	consecutiveRefusals int
	firstRefusalAt      time.Time
	lastDialErr         error
}

// isWanted reports whether there is a reason to connect.
func (p *peer) isWanted() bool {
	if p.state == peerEnded || len(p.links) > 0 {
		return p.state != peerEnded && p.isSilent && len(p.links) == 1
	}
	return len(p.waitingCalls) > 0 || len(p.lossyFrames) > 0 || p.state.isSuspect() || p.isAwaited || time.Now().Before(p.wantedUntil)
}

// updateDialing starts or cancels dial attempts according to isWanted. The caller holds
// endpoint.mu.
func (c *client) updateDialing(p *peer) {
	wanted := p.isWanted() && !c.isClosed
	switch {
	case wanted && !p.isDialing:
		p.isDialing = true
		c.wg.Go(func() { c.dialLoop(p) })
	case wanted:
		select {
		case p.wake <- struct{}{}:
		default:
		}
	case p.cancelDial != nil && len(p.links) == 0: // A second connection is harmless.
		p.cancelDial()
	}
}

// dialLoop dials p until it is connected or no longer wanted.
func (c *client) dialLoop(p *peer) {
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		c.mu.Lock()
		if !p.isWanted() || c.isClosed {
			p.isDialing = false
			c.mu.Unlock()
			return
		}
		ctx, cancel := context.WithCancel(c.ctx)
		p.cancelDial = cancel
		e, found := c.entries[p.rank]
		c.mu.Unlock()
		err := c.dialOnce(ctx, p.rank, e, found)
		c.mu.Lock()
		p.cancelDial = nil
		if err != nil && ctx.Err() == nil {
			c.handleDialFailure(p, err)
		}
		pause := wait
		if len(p.waitingCalls) == 0 && !p.state.isSuspect() && !p.isSilent {
			pause = idlePause
		}
		isWanted := p.isWanted()
		c.mu.Unlock()
		cancel()
		if !isWanted {
			continue // Returns above.
		}
		select {
		case <-time.After(pause):
		case <-c.done:
		case <-p.wake: // A call waits now.
			wait = firstPause
		}
	}
}

// Errors of a dial attempt.
var (
	errNoEntry   = errors.New("it has published no entry: it has not opened a session yet")
	errPermanent = errors.New("not retried")
)

// lookupError is the error of the lookup of an entry. It may contain a refusal by rank 0, which does
// not concern the process that is looked up.
type lookupError struct{ err error }

func (e *lookupError) Error() string { return "look up its entry: " + e.err.Error() }
func (e *lookupError) Unwrap() error { return e.err }

// handleDialFailure ends the peer or its calls if err is conclusive. The caller holds endpoint.mu.
func (c *client) handleDialFailure(p *peer, err error) {
	p.lastDialErr = err
	var lookup *lookupError
	isRefused := errors.Is(err, syscall.ECONNREFUSED) && !errors.As(err, &lookup)
	if !isRefused {
		p.consecutiveRefusals = 0
	} else if p.consecutiveRefusals++; p.consecutiveRefusals == 1 {
		p.firstRefusalAt = time.Now()
	}
	e, found := c.entries[p.rank]
	_, isKnownAddress := c.connectedRanks[p.rank] // The entry is known to lead to that process.
	switch {
	case errors.Is(err, errPermanent) && p.state.isSuspect() && found: // Without an entry nothing was dialed, and the process may connect by itself.
		c.concludeEnded(p, fmt.Sprintf("connection lost, reconnect failed: %v", err))
	case errors.Is(err, errPermanent):
		c.failCalls(&p.waitingCalls, c.peerError(p.rank, "connect", err))
	case isRefused && (isKnownAddress || found && (c.isOnThisHost(e) || c.hasReachedHost(e))):
		c.concludeEnded(p, fmt.Sprintf("connection lost: %v", err))
	case isRefused && p.consecutiveRefusals >= maxRefusals && time.Since(p.firstRefusalAt) > refusalPeriod:
		c.failCalls(&p.waitingCalls, c.peerError(p.rank, "connect", fmt.Errorf("no process answers at its addresses (%s): %w", e.tcpAddrs(), err)))
	}
}

// isOnThisHost reports whether the process of e is reached by its Unix socket, which exists as long
// as the process.
func (c *client) isOnThisHost(e entry) bool { return e.hostID != 0 && e.hostID == c.ownEntry.hostID }

// dialOnce looks up the entry of rank unless it is known, and connects.
func (c *client) dialOnce(ctx context.Context, rank uint32, e entry, found bool) error {
	if !found {
		b, ok, err := c.findEntry(ctx, rank)
		if errors.Is(err, ErrLauncherLeft) {
			return c.connectOnNode(ctx, rank, err)
		}
		if err != nil {
			return &lookupError{err}
		}
		if !ok {
			return errNoEntry
		}
		if e, err = decodeEntry(b); err != nil {
			return fmt.Errorf("%w: %w", err, errPermanent)
		}
		c.mu.Lock()
		c.entries[rank] = e
		c.mu.Unlock()
	}
	if c.isOnThisHost(e) {
		return c.connectAddr(ctx, rank, e, "unix", e.socketName())
	}
	if len(e.addrs) == 0 {
		return fmt.Errorf("it has only a Unix socket, and is on another host or in another network namespace: %w", errPermanent)
	}
	return c.connectTCP(ctx, rank, e)
}
