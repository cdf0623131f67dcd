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
func (c *client) expel(p *peer) {
	ev, isDead := c.dead[p.rank]
	for _, l := range p.links {
		if !isDead { // It has left.
			l.drop()
			continue
		}
		l.expelled.Store(true)
		l.end(frameOf(wire.Event, 0, ev))
		time.AfterFunc(closeGrace, l.dropFlushed)
		for _, leave := range l.pending {
			leave(false)
		}
		clear(l.pending)
	}
}

// isolate ends this process's part in the job after a report of its death. All connected processes receive
// the report, and all calls end. The caller holds place.mu.
func (c *client) isolate(ev wire.EventBody) {
	if _, isKnown := c.dead[ev.Rank]; isKnown {
		return
	}
	ev.Nonce = c.life // The reporter may know an earlier one.
	c.dead[ev.Rank] = ev
	c.log.Warn("bootstrap meet: this process was reported dead", "reason", ev.Reason)
	c.events.Add(c.event(ev))
	c.answers.end(c.deadError(ev))
	c.joins.ProcEnded(ev.Rank)
	c.endRounds(ev.Rank)
	for _, p := range c.peers {
		p.gone, p.suspect, p.scouted, p.doubtful, p.waiting, p.parcel = true, false, false, nil, nil, nil
		c.review(p)
	}
	for l := range c.links {
		l.expelled.Store(true)
		l.end(frameOf(wire.Event, 0, ev))
		time.AfterFunc(closeGrace, l.dropFlushed)
	}
}

// isolated returns the error of a process that was reported dead. The caller holds place.mu.
func (p *place) isolated() error {
	if ev, isDead := p.dead[p.id.Proc.Rank]; isDead {
		return p.deadError(ev)
	}
	return nil
}

func (p *place) deadError(ev wire.EventBody) error {
	return fmt.Errorf("%s: %w", component, join.ReportedDead(p.id.Proc, ev.Reason))
}

// refuseDead sends a process that has just connected the event of the death that ends the connection, its
// own or that of this process. The caller holds place.mu.
func (c *client) refuseDead(l *link) {
	for _, rank := range []uint32{c.id.Proc.Rank, l.rank} {
		if ev, isDead := c.dead[rank]; isDead {
			l.nc.SetWriteDeadline(time.Now().Add(closeGrace))
			l.nc.Write(frameOf(wire.Event, 0, ev)) // The other end may have closed.
			return
		}
	}
}

// refusedBy handles the event that a process sends in place of its Welcome.
func (c *client) refusedBy(l *link, m wire.Message) error {
	ev, err := wire.Decode[wire.EventBody](m.Body)
	if err != nil || ev.Kind != uint8(bootstrap.ProcDied) || ev.Rank != l.rank && ev.Rank != c.id.Proc.Rank {
		return fmt.Errorf("an event in place of a welcome: kind %d of %s: %w", ev.Kind, c.procName(ev.Rank), errFinal)
	}
	if err := c.heard(ev, l); err != nil {
		return err
	}
	return fmt.Errorf("%s was reported dead: %w", c.procName(ev.Rank), errFinal)
}
