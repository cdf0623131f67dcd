package local

import (
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// outbox is what the launcher has not been sent yet. Guarded by client.mu.
type outbox struct {
	frames  []*outgoing
	bytes   int // in frames
	writing bool
}

// outgoing is one frame.
type outgoing struct {
	frame []byte
	sent  chan struct{} // closed when the kernel has the frame
}

// mostNews limits the unsent bytes. Beyond it, EventSource.GiveUp, EventSource.Broke and Noter.Note
// drop their messages. All other frames have a caller that waits, or are sent once in a session or for a communicator.
const mostNews = 1 << 20

// errUnread ends a call of which the launcher has heard nothing.
var errUnread = errors.New("the launcher does not read what it is sent")

// send queues a frame, and returns at once. Frames go in the order of the calls.
func (c *client) send(k wire.Kind, id uint64, body any) (*outgoing, error) {
	return c.sendCall(k, id, body, nil)
}

// sendCall is send for a request, of which mine gets the answer.
func (c *client) sendCall(k wire.Kind, id uint64, body any, mine *call) (*outgoing, error) {
	frame, err := wire.Encode(k, id, body)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	if mine != nil {
		c.calls[id] = mine
	}
	return c.queueLocked(frame), nil
}

func (c *client) queueLocked(frame []byte) *outgoing {
	o := &outgoing{frame, make(chan struct{})}
	c.out.frames = append(c.out.frames, o)
	c.out.bytes += len(frame)
	if !c.out.writing {
		c.out.writing = true
		c.writer.Go(c.write)
	}
	return o
}

// failure is why the connection has ended, or nil.
func (c *client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// takeBack withdraws a frame of which nothing has been written, and the call id with it.
func (c *client) takeBack(o *outgoing, id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.out.frames, o)
	if at < 0 || c.err != nil { // the connection's error comes first
		return false
	}
	c.out.frames = slices.Delete(c.out.frames, at, at+1)
	c.out.bytes -= len(o.frame)
	delete(c.calls, id)
	return true
}

// write empties the outbox and ends: an idle client has no writer.
func (c *client) write() {
	for o := c.nextOut(); o != nil; o = c.nextOut() {
		if _, err := c.conn.Write(o.frame); err != nil {
			if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
				c.fail(launcherError("send", err)) // Half a frame may have been written.
			}
			return // After the launcher's end, the reader finds the end of the connection, and an event before it.
		}
		close(o.sent)
	}
}

// nextOut takes the next frame out, and sets the time that it may take, which is Close's
// once the client closes. nil: there is none.
func (c *client) nextOut() *outgoing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out.frames) == 0 {
		c.out.writing = false
		return nil
	}
	o := c.out.frames[0]
	c.out.frames = slices.Delete(c.out.frames, 0, 1)
	c.out.bytes -= len(o.frame)
	if !c.closed {
		c.conn.SetWriteDeadline(time.Now().Add(c.timeout)) // an error here shows in Write
	}
	return o
}
