package mesh

import (
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// expelPeer ends the connections of a peer that has left or was reported dead. A dead one may be
// alive. It receives the event of its death last, and its messages are discarded. The caller holds
// endpoint.mu.
func (c *client) expelPeer(p *peer) {
	ev, isDead := c.failures[p.rank]
	for _, l := range p.links {
		if !isDead {
			l.drop()
			continue
		}
		l.isExpelled.Store(true)
		l.sendLast(encodeFrame(wire.Event, 0, ev))
		time.AfterFunc(closeGrace, l.dropWhenWritten)
		l.withdrawRequests()
	}
}

// isolate ends all activity of this process after a report of its own death. Connected processes
// receive the report. The caller holds endpoint.mu.
func (c *client) isolate(ev wire.EventBody) {
	if _, isKnown := c.failures[ev.Rank]; isKnown {
		return
	}
	ev.Nonce = c.eventLog.incarnation // The report may name an earlier incarnation.
	c.failures[ev.Rank] = ev
	c.log.Warn("bootstrap mesh: this process was reported dead", "reason", ev.Reason)
	c.events.Add(c.publicEvent(ev))
	c.pendingCalls.Fail(c.reportedDeadError(ev))
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

// isolationError returns an error if this process was reported dead. The caller holds endpoint.mu.
func (p *endpoint) isolationError() error {
	if ev, isDead := p.failures[p.id.Proc.Rank]; isDead {
		return p.reportedDeadError(ev)
	}
	return nil
}

func (p *endpoint) reportedDeadError(ev wire.EventBody) error {
	return fmt.Errorf("%s: %w", component, join.ReportedDeadError(p.id.Proc, ev.Reason))
}

// sendDeathNotice sends the event of a death, of the peer or of this process, in place of a
// Welcome. The caller holds endpoint.mu.
func (c *client) sendDeathNotice(l *link) {
	for _, rank := range []uint32{c.id.Proc.Rank, l.rank} {
		if ev, isDead := c.failures[rank]; isDead {
			l.conn.SetWriteDeadline(time.Now().Add(closeGrace))
			l.conn.Write(encodeFrame(wire.Event, 0, ev)) // The peer may have closed.
			return
		}
	}
}

// receiveRefusal handles the event in place of a Welcome.
func (c *client) receiveRefusal(l *link, m wire.Message) error {
	ev, err := wire.Decode[wire.EventBody](m.Body)
	if err != nil || ev.Kind != uint8(bootstrap.PeerFailed) || ev.Rank != l.rank && ev.Rank != c.id.Proc.Rank {
		return fmt.Errorf("an event in place of a welcome: kind %d of %s: %w", ev.Kind, c.procName(ev.Rank), errPermanent)
	}
	if err := c.receiveEvent(ev, l); err != nil {
		return err
	}
	return fmt.Errorf("%s was reported dead: %w", c.procName(ev.Rank), errPermanent)
}
