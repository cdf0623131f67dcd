package meet

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// expel ends the connections of a dead process, which may be alive. The last message is the event of its
// death, and its own messages are discarded. The caller holds place.mu.
func (c *client) expelPeer(p *peer) {
	ev, isDead := c.failures[p.rank]
	for _, l := range p.links {
		if !isDead { // It has left.
			l.drop()
			continue
		}
		l.isExpelled.Store(true)
		l.sendLast(encodeFrame(wire.Event, 0, ev))
		time.AfterFunc(closeGrace, l.dropWhenWritten)
		for _, leave := range l.pendingRequests {
			leave(false)
		}
		clear(l.pendingRequests)
	}
}

// isolate ends this process's part in the job after a report of its death. All connected processes receive
// the report, and all calls end. The caller holds place.mu.
func (c *client) isolate(ev wire.EventBody) {
	if _, isKnown := c.failures[ev.Rank]; isKnown {
		return
	}
	ev.Nonce = c.incarnation // The reporter may know an earlier one.
	c.failures[ev.Rank] = ev
	c.log.Warn("bootstrap meet: this process was reported dead", "reason", ev.Reason)
	c.events.Add(c.publicEvent(ev))
	c.pendingCalls.failAll(c.reportedDeadError(ev))
	c.joins.ProcEnded(ev.Rank)
	c.failRounds(ev.Rank)
	for _, p := range c.peers {
		p.state, p.isAwaited, p.uncertainCalls, p.waitingCalls, p.lossyFrames = peerEnded, false, nil, nil, nil
		c.updateDialing(p)
	}
	for l := range c.links {
		l.isExpelled.Store(true)
		l.sendLast(encodeFrame(wire.Event, 0, ev))
		time.AfterFunc(closeGrace, l.dropWhenWritten)
	}
}

// isolated returns the error of a process that was reported dead. The caller holds place.mu.
func (p *endpoint) isolationError() error {
	if ev, isDead := p.failures[p.id.Proc.Rank]; isDead {
		return p.reportedDeadError(ev)
	}
	return nil
}

func (p *endpoint) reportedDeadError(ev wire.EventBody) error {
	return fmt.Errorf("%s: %w", component, join.ReportedDead(p.id.Proc, ev.Reason))
}

// sendDeathNotice sends a process that has just connected the event of the death that ends the connection, its
// own or that of this process. The caller holds place.mu.
func (c *client) sendDeathNotice(l *link) {
	for _, rank := range []uint32{c.id.Proc.Rank, l.rank} {
		if ev, isDead := c.failures[rank]; isDead {
			l.conn.SetWriteDeadline(time.Now().Add(closeGrace))
			l.conn.Write(encodeFrame(wire.Event, 0, ev)) // The other end may have closed.
			return
		}
	}
}

// receiveRefusal handles the event that a process sends in place of its Welcome.
func (c *client) receiveRefusal(l *link, m wire.Message) error {
	ev, err := wire.Decode[wire.EventBody](m.Body)
	if err != nil || ev.Kind != uint8(bootstrap.ProcDied) || ev.Rank != l.rank && ev.Rank != c.id.Proc.Rank {
		return fmt.Errorf("an event in place of a welcome: kind %d of %s: %w", ev.Kind, c.procName(ev.Rank), errPermanent)
	}
	if err := c.receiveEvent(ev, l); err != nil {
		return err
	}
	return fmt.Errorf("%s was reported dead: %w", c.procName(ev.Rank), errPermanent)
}
