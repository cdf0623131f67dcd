package meet

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/queries"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

const (
	// maxUnread is how much a peer may leave unread before its connection is dropped: two
	// frames of the largest size, besides what the kernel holds.
	maxUnread = 2 * (wire.MaxFrame + wire.HeaderSize)

	// mostNews is how much may wait for a peer before news that nobody waits for is
	// dropped.
	mostNews = 1 << 20

	// closeGrace is how long it may take when the client closes, and the peer then to close
	// its end.
	closeGrace = time.Second
)

// link is a connection to a peer after the handshake. With no connection it is the way
// of this process to itself.
type link struct {
	c    *client
	rank uint32
	nc   net.Conn

	expelled atomic.Bool    // One of the two processes was reported dead; messages are discarded.
	queries  queries.Record // Tick with place.mu held.

	// Guarded by place.mu.
	pending map[uint64]join.Withdraw // requests of the peer that wait here
	goodbye bool                     // the peer has said so
	lost    bool
	heard   []byte // by the reader only: the body of the last reply
	sent    uint64 // the version of what this process has put that the peer keeps

	mu      sync.Mutex // below place.mu
	queue   net.Buffers
	unread  int           // bytes in queue, and in the writer's hands
	allowed int           // bytes of allow, so far
	last    []byte        // the body of the last reply
	writing chan struct{} // Closed when the queue is written or dropped; nil while there is no writer.
	over    bool          // The connection takes no further frames.
	ending  bool          // The writing end closes when the queue is empty.
}

// send queues parts, which nobody changes any more. It never blocks. A peer that has left
// too much unread is dropped.
func (l *link) send(parts ...[]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sendLocked(parts...)
}

func (l *link) sendFrame(frame []byte) { l.send(frame) }

func (l *link) sendLocked(parts ...[]byte) {
	if l.over || l.ending {
		return
	}
	for _, p := range parts {
		l.queue = append(l.queue, p)
		l.unread += len(p)
	}
	if l.unread > maxUnread+l.allowed {
		l.c.log.Warn("bootstrap meet: a peer does not read; its connection is dropped", "peer", l.c.procName(l.rank), "unread", l.unread)
		l.dropLocked()
		return
	}
	if l.writing == nil {
		l.writing = make(chan struct{})
		l.c.wg.Go(l.write)
	}
}

// allow is send for what may take any room: its sender has it in memory anyway.
func (l *link) allow(frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed += len(frame)
	l.sendLocked(frame)
}

// news sends a frame that may be lost. It returns false if it drops the frame, because the peer does not read.
func (l *link) news(frame []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unread >= mostNews {
		return false
	}
	l.sendLocked(frame)
	return true
}

// written returns a channel that is closed once the queue is written or dropped, or nil if it is empty.
func (l *link) written() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writing
}

// end sends a last frame, and then closes the writing end.
func (l *link) end(last []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nc.SetWriteDeadline(time.Now().Add(closeGrace)) // of a write that is under way too
	l.sendLocked(last)
	l.ending = true
}

// drop ends the connection; its reader does the rest.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked()
}

func (l *link) dropLocked() {
	l.over, l.queue = true, nil
	l.nc.Close()
}

// write empties the queue and returns, so that an idle link has no writer. Before the end of the link a write
// has no time limit, because a stopped process is alive. maxUnread limits the memory.
func (l *link) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && !l.over {
		batch, size := l.takeLocked()
		if l.ending {
			l.nc.SetWriteDeadline(time.Now().Add(closeGrace)) // An error here shows in WriteTo.
		}
		l.mu.Unlock()
		_, err := batch.WriteTo(l.nc)
		l.mu.Lock()
		if l.unread -= size; err != nil {
			l.failedLocked(err)
		}
	}
	close(l.writing)
	l.writing = nil
	if l.ending && !l.over {
		closeWrite(l.nc)
	}
}

// takeLocked takes a batch out of the queue, small enough to be read soon by who reads at
// all.
func (l *link) takeLocked() (batch net.Buffers, size int) {
	const most = 1 << 20
	for len(l.queue) > 0 && size < most {
		p := l.queue[0]
		n := min(len(p), most-size)
		batch, size = append(batch, p[:n]), size+n
		if l.queue[0] = p[n:]; n == len(p) {
			l.queue = l.queue[1:]
		}
	}
	return batch, size
}

// dropFlushed ends a connection on which nothing is written any more, however long that
// takes. Whoever has read all had the time to close its end.
func (l *link) dropFlushed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writing != nil {
		time.AfterFunc(closeGrace, l.dropFlushed)
		return
	}
	l.dropLocked()
}

// failedLocked ends writing after an error. A peer that has closed its end may have said
// goodbye, which the reader still finds.
func (l *link) failedLocked(err error) {
	if e, ok := err.(net.Error); ok && e.Timeout() {
		l.dropLocked()
		return
	}
	l.over, l.queue = true, nil
}

// closeWrite tells the other end that nothing more comes. What it still sends is read: a
// connection that is closed with something unread may lose what it has sent last.
func closeWrite(nc net.Conn) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		return
	}
	nc.Close()
}

// request is a peer's call, or one of this process itself, to be answered once: a
// join.Waiter.
type request struct {
	l       *link
	id      uint64
	relayed bool // the other end passes the answer on
}

// Waits implements join.Waiter. The caller holds place.mu, as for Done.
func (r request) Waits(w join.Withdraw) { r.l.pending[r.id] = w }

// Done implements join.Waiter.
func (r request) Done() { delete(r.l.pending, r.id) }

// Answer implements join.Waiter.
func (r request) Answer(k wire.Kind, body []byte) {
	if r.l.nc == nil {
		r.l.c.answers.give(r.id, answer{msg: wire.Message{Kind: k, ID: r.id, Body: body}})
		return
	}
	h, err := wire.Header(k, r.id, len(body))
	if err != nil { // the limits of requests keep answers below a frame's
		r.l.drop()
		return
	}
	r.l.reply(k, r.id, h, body)
}

// reply is send for an answer. What is the last reply's very body does not go twice: one
// who speaks for a whole node gets the result of a join once.
func (l *link) reply(k wire.Kind, id uint64, header, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case k != wire.Reply:
		l.sendLocked(header, body)
	case len(body) > small && len(body) == len(l.last) && &body[0] == &l.last[0]:
		l.sendLocked(frameOf(wire.Same, id, wire.Empty{}))
	default:
		l.last = body
		l.sendLocked(header, body)
	}
}

// small is the size of bodies, in bytes, that may as well go again.
const small = 16

// reply answers r, which has not waited, with body.
func (r request) reply(body any) { r.Answer(wire.Reply, wire.EncodeBody(body)) }
