package mesh

import (
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Note implements bootstrap.Noter. Like Disconnect, it dials a process without a connection.
func (c *client) Note(to framework.Proc, nonce uint64, body []byte) error {
	if err := wire.CheckSizes("", body, bootstrap.MaxPayload); err != nil {
		return err
	}
	if to.Namespace != c.id.Proc.Namespace || !c.isRank(to.Rank) || to == c.id.Proc {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isClosed {
		c.sendLossyTo(to.Rank, encodeFrame(wire.Note, 0, wire.NoteBody{Rank: c.id.Proc.Rank, From: c.eventLog.incarnation, To: nonce, Body: body}))
	}
	return nil
}

// receiveNote queues the event of a note, unless it is for another incarnation or from a dead
// process. The sender is the process at the other end of the connection, whatever the note states.
func (c *client) receiveNote(from uint32, b wire.NoteBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, isDead := c.failures[from]; isDead || c.isClosed || b.To != c.eventLog.incarnation {
		c.droppedFrames.Add(1)
		return
	}
	c.events.Add(bootstrap.Event{Kind: bootstrap.NoteReceived, Proc: c.id.Procs([]uint32{from})[0], Nonce: b.From, Body: string(b.Body)})
}
