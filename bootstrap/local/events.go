package local

import (
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// BeginIncarnation implements bootstrap.EventSource. Without a server it has no effect.
func (c *client) BeginIncarnation(nonce uint64) { c.announceIncarnation(nonce) }

// EndIncarnation implements bootstrap.EventSource.
func (c *client) EndIncarnation() { c.announceIncarnation(0) }

func (c *client) announceIncarnation(nonce uint64) {
	c.mu.Lock()
	c.incarnation = nonce
	c.mu.Unlock()
	_, _ = c.send(wire.Incarnation, 0, wire.IncarnationBody{Nonce: nonce})
}

// currentIncarnation returns the nonce of the present incarnation, 0 if there is none.
func (c *client) currentIncarnation() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.incarnation
}

// Disconnect implements bootstrap.EventSource. It ignores processes of other jobs. The event is lost
// while the launcher does not read.
func (c *client) Disconnect(p framework.Proc, nonce uint64, reason string) {
	if p.Namespace == c.id.Proc.Namespace {
		c.sendLossy(wire.Disconnect, wire.DisconnectBody{Rank: p.Rank, Nonce: nonce, Reason: wire.TruncateReason(reason)})
	}
}

// ReportBroken implements bootstrap.EventSource. Members of other jobs receive no event.
func (c *client) ReportBroken(comm cid.Extended, members []framework.Proc, reason string) {
	c.sendLossy(wire.ReportCommEvent, wire.ReportCommEventBody{Kind: uint8(bootstrap.CommBroken), Comm: comm.Bytes(), Ranks: c.ranksOf(members), Reason: wire.TruncateReason(reason)})
}

// Revoke implements bootstrap.Revoker. Unlike other events, it is sent although the launcher does
// not read. Members of other jobs receive no event.
func (c *client) Revoke(comm cid.Extended, members []framework.Proc) error {
	o, err := c.send(wire.ReportCommEvent, 0, wire.ReportCommEventBody{Kind: uint8(bootstrap.CommRevoked), Comm: comm.Bytes(), Ranks: c.ranksOf(members)})
	if errors.Is(err, framework.ErrUnsupported) {
		return fmt.Errorf("bootstrap local: revocation of %s: %w", comm, err)
	}
	if err != nil {
		return err
	}
	select {
	case <-o.written:
		return nil
	case <-c.pendingCalls.Done():
		return c.pendingCalls.Err()
	case <-time.After(bootstrap.RevokePatience):
		return nil
	}
}

// ranksOf returns the ranks of the processes of this job.
func (c *client) ranksOf(members []framework.Proc) (ranks []uint32) {
	for _, p := range members {
		if p.Namespace == c.id.Proc.Namespace {
			ranks = append(ranks, p.Rank)
		}
	}
	return ranks
}

// Note implements bootstrap.Noter. A note to a process of another job is dropped.
func (c *client) Note(p framework.Proc, nonce uint64, body []byte) error {
	if err := wire.CheckSizes("", body, bootstrap.MaxPayload); err != nil {
		return err
	}
	if p.Namespace == c.id.Proc.Namespace {
		c.sendLossy(wire.Note, wire.NoteBody{Rank: p.Rank, To: nonce, Body: body})
	}
	return nil
}

// receiveNote queues the event of a note, unless it is for another incarnation.
func (c *client) receiveNote(b wire.NoteBody) {
	if b.To != c.currentIncarnation() {
		c.droppedFrames.Add(1)
		return
	}
	sender := framework.Proc{Namespace: c.id.Proc.Namespace, Rank: b.Rank}
	c.events.Add(bootstrap.Event{Kind: bootstrap.NoteReceived, Proc: sender, Nonce: b.From, Body: string(b.Body)})
}

// sendLossy sends a message unless more than maxLossyBytes is unsent.
func (c *client) sendLossy(k wire.Kind, body any) {
	c.mu.Lock()
	unread := c.outbox.unsentBytes
	c.mu.Unlock()
	if unread >= maxLossyBytes {
		c.droppedFrames.Add(1)
		return
	}
	_, _ = c.send(k, 0, body)
}

func (c *client) OnEvent(f func(bootstrap.Event)) { c.events.Set(f) }
