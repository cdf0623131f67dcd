package local

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// outbox has the frames that are not written yet. Guarded by client.mu.
type outbox struct {
	frames []*outgoing
	// Bytes in frames.
	unsentBytes int
	isWriting   bool
}

// outgoing is one frame.
type outgoing struct {
	frame []byte
	// Closed when the kernel has the frame.
	written chan struct{}
}

// maxLossyBytes limits the unsent bytes for messages that may be lost. Beyond it,
// EventSource.Disconnect, EventSource.ReportBroken and Noter.Note drop their messages. All other frames have a
// caller that waits, or are sent once in a session or for a communicator.
const maxLossyBytes = 1 << 20

// errUnread is the error of a call whose frame was not written.
var errUnread = errors.New("the launcher does not read its connection")

// send queues a frame, and returns at once. Frames keep the order of the calls. After the end of the
// connection the error is its cause.
func (c *client) send(k wire.Kind, id uint64, body any) (*outgoing, error) {
	frame, err := wire.Encode(k, id, body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.pendingCalls.Err(); err != nil {
		return nil, err
	}
	return c.queueLocked(frame), nil
}

func (c *client) queueLocked(frame []byte) *outgoing {
	o := &outgoing{frame, make(chan struct{})}
	c.outbox.frames = append(c.outbox.frames, o)
	c.outbox.unsentBytes += len(frame)
	if !c.outbox.isWriting {
		c.outbox.isWriting = true
		c.writer.Go(c.write)
	}
	return o
}

// withdrawFrame removes a frame that is not being written.
func (c *client) withdrawFrame(o *outgoing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.outbox.frames, o)
	if at < 0 {
		return false
	}
	c.outbox.frames = slices.Delete(c.outbox.frames, at, at+1)
	c.outbox.unsentBytes -= len(o.frame)
	return true
}

// write empties the outbox and returns, so that an idle client has no writer.
func (c *client) write() {
	for o := c.nextFrame(); o != nil; o = c.nextFrame() {
		if _, err := c.conn.Write(o.frame); err != nil {
			if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				c.fail(launcherError("send", err)) // Half a frame may have been written.
			}
			return // After the launcher's end, the reader finds the end of the connection, and an event before it.
		}
		close(o.written)
	}
}

// nextFrame removes the next frame, or returns nil. It sets the deadline of the write, unless Close
// has set one.
func (c *client) nextFrame() *outgoing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.outbox.frames) == 0 {
		c.outbox.isWriting = false
		return nil
	}
	o := c.outbox.frames[0]
	c.outbox.frames = slices.Delete(c.outbox.frames, 0, 1)
	c.outbox.unsentBytes -= len(o.frame)
	if !c.isClosed {
		c.conn.SetWriteDeadline(time.Now().Add(c.timeout)) // The write reports an error.
	}
	return o
}
