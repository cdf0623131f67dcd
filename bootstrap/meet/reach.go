package meet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"
)

const (
	// Pauses between attempts to reach a process that a call waits for, or that nothing
	// but curiosity asks after.
	firstPause = time.Millisecond
	mostPause  = 50 * time.Millisecond
	idlePause  = time.Second

	// breakGrace is how long one connection of several to a process has been broken when the
	// others count as whole.
	breakGrace = time.Second

	// refusals are how many in a row, and refusedFor for how long, end the calls that wait for
	// a process which was never met and is on another host.
	refusals   = 5
	refusedFor = time.Second
)

// peer is what a client knows of another process. Guarded by place.mu.
type peer struct {
	rank    uint32
	links   []*link // the first is used
	life    uint64  // that the process has begun; 0: none, or not known
	left    bool    // that is over in good order
	met     bool    // there was a connection
	absent  bool    // it has said goodbye: it may come again
	gone    bool    // it has ended
	waiting []*call // for a connection
	parcel  [][]byte

	// Why it is to be reached, besides waiting and parcel.
	suspect    bool      // its connection broke
	hasBroken  bool      // Its last connection broke, and events with it.
	suspicions int       // so far
	lives      bool      // its socket was there since the last one
	doubtful   []*call   // that were sent before it broke
	scouted    bool      // others wait for it in a join that this process leads
	until      time.Time // it is of use to be connected with it

	overTCP  bool      // There was a TCP connection.
	signAt   time.Time // Last known sign of the host (host_signs.go).
	isSilent bool      // There was no sign for so long that a second connection is tried.
	ticks    int       // Of watchHosts, while silent.

	dialing bool
	wake    chan struct{}
	cancel  context.CancelFunc // of the attempt that is under way
	refused int                // in a row, since
	since   time.Time
	why     error // of the last attempt
}

// peerOf returns what is known of rank. The caller holds place.mu.
func (c *client) peerOf(rank uint32) *peer {
	p := c.peers[rank]
	if p == nil {
		_, dead := c.dead[rank]
		p = &peer{rank: rank, gone: dead || c.isolated() != nil, wake: make(chan struct{}, 1)}
		c.peers[rank] = p
	}
	return p
}

// wanted reports whether there is a reason to connect.
func (p *peer) wanted() bool {
	if p.gone || len(p.links) > 0 {
		return !p.gone && p.isSilent && len(p.links) == 1
	}
	return len(p.waiting) > 0 || len(p.parcel) > 0 || p.suspect || p.scouted || time.Now().Before(p.until)
}

// review begins or ends attempts, as there are reasons for them. The caller holds place.mu.
func (c *client) review(p *peer) {
	wanted := p.wanted() && !c.closed
	switch {
	case wanted && !p.dialing:
		p.dialing = true
		c.wg.Go(func() { c.dial(p) })
	case wanted:
		select {
		case p.wake <- struct{}{}:
		default:
		}
	case p.cancel != nil && len(p.links) == 0: // a second connection does no harm
		p.cancel()
	}
}

// dial tries to reach p until it is reached, or nobody wants that any more.
func (c *client) dial(p *peer) {
	for wait := firstPause; ; wait = min(2*wait, mostPause) {
		c.mu.Lock()
		if !p.wanted() || c.closed {
			p.dialing = false
			c.mu.Unlock()
			return
		}
		ctx, cancel := context.WithCancel(c.ctx)
		p.cancel = cancel
		e, found := c.entries[p.rank]
		c.mu.Unlock()
		err := c.attempt(ctx, p.rank, e, found)
		c.mu.Lock()
		p.cancel = nil
		if err != nil && ctx.Err() == nil {
			c.missed(p, err)
		}
		pause := wait
		if len(p.waiting) == 0 && !p.suspect && !p.isSilent {
			pause = idlePause
		}
		again := p.wanted()
		c.mu.Unlock()
		cancel()
		if !again {
			continue // to the end above
		}
		select {
		case <-time.After(pause):
		case <-c.done:
		case <-p.wake: // a call has begun to wait
			wait = firstPause
		}
	}
}

// Why an attempt has failed.
var (
	errNoEntry = errors.New("it has published no entry: it has not opened a session yet")
	errFinal   = errors.New("it is not tried again")
)

// missed draws conclusions from an attempt that has failed. The caller holds place.mu.
func (c *client) missed(p *peer, err error) {
	p.why = err
	refused := errors.Is(err, syscall.ECONNREFUSED)
	if !refused {
		p.refused = 0
	} else if p.refused++; p.refused == 1 {
		p.since = time.Now()
	}
	e, found := c.entries[p.rank]
	_, reached := c.reached[p.rank] // so that its entry leads to it, and to nobody else
	switch {
	case errors.Is(err, errFinal) && p.suspect && found: // else nothing was tried; it may come by itself
		c.over(p, fmt.Sprintf("connection lost, and then: %v", err))
	case errors.Is(err, errFinal):
		c.failCalls(&p.waiting, c.peerError(p.rank, "connect", err))
	case refused && (reached || found && (c.near(e) || c.hasReachedHost(e))):
		c.over(p, fmt.Sprintf("connection lost: %v", err))
	case refused && p.refused >= refusals && time.Since(p.since) > refusedFor:
		c.failCalls(&p.waiting, c.peerError(p.rank, "connect", fmt.Errorf("nobody answers for its entry, at %s: %w", e.where(), err)))
	}
}

// near reports whether the process of e can be reached by its Unix socket, which is there
// as long as the process is.
func (c *client) near(e entry) bool { return e.host != 0 && e.host == c.self.host }

// attempt finds the process's entry, unless it was found before, and connects.
func (c *client) attempt(ctx context.Context, rank uint32, e entry, found bool) error {
	if !found {
		b, ok, err := c.launcher.Find(ctx, c.id.Procs([]uint32{rank})[0])
		if errors.Is(err, ErrLauncherLeft) {
			return c.connectOnNode(ctx, rank, err)
		}
		if err != nil {
			return fmt.Errorf("look up its entry: %w: %w", err, errFinal)
		}
		if !ok {
			return errNoEntry
		}
		if e, err = decodeEntry(b); err != nil {
			return fmt.Errorf("%w: %w", err, errFinal)
		}
		c.mu.Lock()
		c.entries[rank] = e
		c.mu.Unlock()
	}
	if c.near(e) {
		return c.connect(ctx, rank, e, "unix", e.socket())
	}
	if len(e.addrs) == 0 {
		return fmt.Errorf("it has only a Unix socket, and is on another host or in another network namespace: %w", errFinal)
	}
	return c.connectAny(ctx, rank, e)
}

// begin makes l a way to p. What waits for one goes. The caller holds place.mu.
func (c *client) begin(p *peer, l *link) {
	p.links = append(p.links, l)
	p.met, p.absent, p.left, p.refused, p.why = true, false, false, 0, nil
	c.links[l], c.reached[p.rank] = struct{}{}, struct{}{}
	if _, isTCP := l.nc.(*net.TCPConn); isTCP {
		p.overTCP, p.signAt = true, time.Now()
		c.recheckHosts()
	}
	if p.hasBroken {
		p.hasBroken = false
		c.introduceAgain(l)
	} else {
		c.introduce(l)
	}
	for _, frame := range p.parcel {
		l.send(frame)
	}
	p.parcel = nil
	if p.suspect { // it lives, but what was said before is lost
		p.suspect = false
		c.log.Info("bootstrap meet: a lost connection was restored", "peer", c.procName(p.rank))
		c.failCalls(&p.doubtful, c.brokenError(p.rank))
	}
	waiting := p.waiting
	p.waiting = nil
	for _, call := range waiting {
		c.sendOn(l, call)
	}
}

// lose ends l, whose reader has ended. The caller holds place.mu.
func (c *client) lose(l *link) {
	p := c.peerOf(l.rank)
	l.lost = true
	p.noteSigns(l, time.Now())
	delete(c.links, l)
	p.links = slices.DeleteFunc(p.links, func(x *link) bool { return x == l })
	for _, leave := range l.pending {
		leave(false)
	}
	l.pending = nil
	if c.closed {
		return
	}
	for _, one := range c.relays.by(l) {
		c.cancelCall(one, false)
	}
	var mine []*call
	c.answers.each(func(call *call) {
		if call.link == l {
			call.link = nil
			mine = append(mine, call)
		}
	})
	slices.SortFunc(mine, func(a, b *call) int { return cmp.Compare(a.id, b.id) })
	switch {
	case p.gone:
	case l.goodbye: // what was not answered will not be, and may be asked again
		for _, call := range mine {
			c.sendAgain(p, call)
		}
		if len(p.links) == 0 {
			p.absent = true
			c.failCalls(&p.doubtful, c.brokenError(p.rank))
			c.left(p, p.life)
		}
	case len(p.links) > 0: // of which the other ones may be about to end too
		c.introduceAgain(p.links[0]) // Events that the lost connection held.
		p.doubtful = append(p.doubtful, mine...)
		c.after(breakGrace, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !p.suspect && !p.gone {
				c.failCalls(&p.doubtful, c.brokenError(p.rank))
			}
		})
	default:
		c.suspect(p, mine)
	}
	c.tidy()
	c.review(p)
}

// brokenError is the error of a call of which it is not known what became of it.
func (c *client) brokenError(rank uint32) error {
	return c.peerError(rank, "receive", fmt.Errorf("the connection broke during the call: %w", io.ErrUnexpectedEOF))
}

// suspect connects to p again after its connection broke. A refused connection, or the loss of its host
// (host_signs.go), is a death. A process that does not answer, although its socket is there, is alive. It
// has closed its client, or is stopped. The caller holds place.mu.
func (c *client) suspect(p *peer, doubtful []*call) {
	p.suspect, p.hasBroken, p.lives = true, true, false
	p.suspicions++
	p.doubtful = append(p.doubtful, doubtful...)
	if p.signAt.IsZero() {
		p.signAt = time.Now()
	}
	c.recheckHosts()
	this := p.suspicions
	c.after(handshakeTimeout, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case !p.suspect || p.suspicions != this || p.gone:
		case p.lives:
			p.suspect, p.absent = false, true
			c.failCalls(&p.doubtful, c.brokenError(p.rank))
			c.tidy()
			c.review(p)
		case !c.isRemote(p):
			c.over(p, "connection lost, and the process can't be reached")
		}
	})
}
