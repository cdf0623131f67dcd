package local

import (
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// Begin tells the server of a life. If that is gone nobody hears of a death.
func (c *client) Begin(nonce uint64) { c.begin(nonce) }

// End implements bootstrap.EventSource.
func (c *client) End() { c.begin(0) }

func (c *client) begin(nonce uint64) {
	c.mu.Lock()
	c.life = nonce
	c.mu.Unlock()
	_, _ = c.send(wire.Life, 0, wire.LifeBody{Nonce: nonce})
}

// GiveUp implements bootstrap.EventSource. Whoever is not of this job hears nothing; nor
// does anybody while the launcher does not read.
func (c *client) GiveUp(p framework.Proc, nonce uint64, reason string) {
	if p.Namespace == c.id.Proc.Namespace {
		c.tell(wire.GiveUp, wire.GiveUpBody{Rank: p.Rank, Nonce: nonce, Reason: wire.CutReason(reason)})
	}
}

// Broke implements bootstrap.EventSource. Who is not of this job hears nothing.
func (c *client) Broke(comm cid.Extended, members []framework.Proc, reason string) {
	news := wire.BrokeBody{Comm: comm.Bytes(), Reason: wire.CutReason(reason)}
	for _, p := range members {
		if p.Namespace == c.id.Proc.Namespace {
			news.Ranks = append(news.Ranks, p.Rank)
		}
	}
	c.tell(wire.Broke, news)
}

// Note implements bootstrap.Noter. A note to a process of another job is dropped.
func (c *client) Note(p framework.Proc, nonce uint64, body []byte) error {
	if err := wire.CheckSizes("", body, bootstrap.MaxPayload); err != nil {
		return err
	}
	if p.Namespace == c.id.Proc.Namespace {
		c.tell(wire.Note, wire.NoteBody{Rank: p.Rank, To: nonce, Body: body})
	}
	return nil
}

// addNote queues the event of a note, unless it is for another incarnation.
func (c *client) addNote(b wire.NoteBody) {
	c.mu.Lock()
	isPresent := b.To == c.life
	c.mu.Unlock()
	if isPresent {
		sender := framework.Proc{Namespace: c.id.Proc.Namespace, Rank: b.Rank}
		c.events.Add(bootstrap.Event{Kind: bootstrap.Noted, Proc: sender, Nonce: b.From, Body: string(b.Body)})
	}
}

// tell sends news, unless the launcher does not read.
func (c *client) tell(k wire.Kind, news any) {
	c.mu.Lock()
	unread := c.out.bytes
	c.mu.Unlock()
	if unread < mostNews {
		_, _ = c.send(k, 0, news)
	}
}

func (c *client) OnEvent(f func(bootstrap.Event)) { c.events.Set(f) }
