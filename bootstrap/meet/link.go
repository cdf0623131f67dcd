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
	// maxUnwritten is how much a peer may leave unread before its connection is dropped: two
	// frames of the largest size, besides what the kernel holds.
	maxUnwritten = 2 * (wire.MaxFrame + wire.HeaderSize)

	// maxLossyBytes is how much may wait for a peer before news that nobody waits for is
	// dropped.
	maxLossyBytes = 1 << 20

	// closeGrace is how long it may take when the client closes, and the peer then to close
	// its end.
	closeGrace = time.Second
)

// link is a connection to a peer after the handshake. With no connection it is the way
// of this process to itself.
type link struct {
	client *client
	rank   uint32
	conn   net.Conn

	isExpelled atomic.Bool    // One of the two processes was reported dead; messages are discarded.
	queries    queries.Record // Tick with place.mu held.

	// Guarded by place.mu.
	pendingRequests   map[uint64]join.Withdraw // requests of the peer that wait here
	receivedGoodbye   bool                     // the peer has said so
	isLost            bool
	lastReplyBody     []byte // by the reader only: the body of the last reply
	replicatedVersion uint64 // the version of what this process has put that the peer keeps

	mu             sync.Mutex // below place.mu
	queue          net.Buffers
	bytesUnwritten int           // bytes in queue, and in the writer's hands
	extraAllowance int           // bytes of allow, so far
	lastReply      []byte        // the body of the last reply
	writerDone     chan struct{} // Closed when the queue is written or dropped; nil while there is no writer.
	isDropped      bool          // The connection takes no further frames.
	isEnding       bool          // The writing end closes when the queue is empty.
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
	if l.isDropped || l.isEnding {
		return
	}
	for _, p := range parts {
		l.queue = append(l.queue, p)
		l.bytesUnwritten += len(p)
	}
	if l.bytesUnwritten > maxUnwritten+l.extraAllowance {
		l.client.log.Warn("bootstrap meet: a peer does not read; its connection is dropped", "peer", l.client.procName(l.rank), "unread", l.bytesUnwritten)
		l.dropLocked()
		return
	}
	if l.writerDone == nil {
		l.writerDone = make(chan struct{})
		l.client.wg.Go(l.write)
	}
}

// allow is send for what may take any room: its sender has it in memory anyway.
func (l *link) sendUnlimited(frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.extraAllowance += len(frame)
	l.sendLocked(frame)
}

// news sends a frame that may be lost. It returns false if it drops the frame, because the peer does not read.
func (l *link) sendLossy(frame []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytesUnwritten >= maxLossyBytes {
		return false
	}
	l.sendLocked(frame)
	return true
}

// written returns a channel that is closed once the queue is written or dropped, or nil if it is empty.
func (l *link) writeDone() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writerDone
}

// end sends a last frame, and then closes the writing end.
func (l *link) sendLast(last []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn.SetWriteDeadline(time.Now().Add(closeGrace)) // of a write that is under way too
	l.sendLocked(last)
	l.isEnding = true
}

// drop ends the connection; its reader does the rest.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked()
}

func (l *link) dropLocked() {
	l.isDropped, l.queue = true, nil
	l.conn.Close()
}

// write empties the queue and returns, so that an idle link has no writer. Before the end of the link a write
// has no time limit, because a stopped process is alive. maxUnwritten limits the memory.
func (l *link) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && !l.isDropped {
		batch, size := l.nextBatchLocked()
		if l.isEnding {
			l.conn.SetWriteDeadline(time.Now().Add(closeGrace)) // An error here shows in WriteTo.
		}
		l.mu.Unlock()
		_, err := batch.WriteTo(l.conn)
		l.mu.Lock()
		if l.bytesUnwritten -= size; err != nil {
			l.handleWriteErrorLocked(err)
		}
	}
	close(l.writerDone)
	l.writerDone = nil
	if l.isEnding && !l.isDropped {
		closeWrite(l.conn)
	}
}

// nextBatchLocked takes a batch out of the queue, small enough to be read soon by who reads at
// all.
func (l *link) nextBatchLocked() (batch net.Buffers, size int) {
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

// dropWhenWritten ends a connection on which nothing is written any more, however long that
// takes. Whoever has read all had the time to close its end.
func (l *link) dropWhenWritten() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writerDone != nil {
		time.AfterFunc(closeGrace, l.dropWhenWritten)
		return
	}
	l.dropLocked()
}

// handleWriteErrorLocked ends writing after an error. A peer that has closed its end may have said
// goodbye, which the reader still finds.
func (l *link) handleWriteErrorLocked(err error) {
	if e, ok := err.(net.Error); ok && e.Timeout() {
		l.dropLocked()
		return
	}
	l.isDropped, l.queue = true, nil
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
	link      *link
	id        uint64
	isRelayed bool // the other end passes the answer on
}

// Waits implements join.Waiter. The caller holds place.mu, as for Done.
func (r request) Waits(w join.Withdraw) { r.link.pendingRequests[r.id] = w }

// Done implements join.Waiter.
func (r request) Done() { delete(r.link.pendingRequests, r.id) }

// Answer implements join.Waiter.
func (r request) Answer(k wire.Kind, body []byte) {
	if r.link.conn == nil {
		r.link.client.pendingCalls.complete(r.id, answer{msg: wire.Message{Kind: k, ID: r.id, Body: body}})
		return
	}
	h, err := wire.Header(k, r.id, len(body))
	if err != nil { // the limits of requests keep answers below a frame's
		r.link.drop()
		return
	}
	r.link.sendReply(k, r.id, h, body)
}

// reply is send for an answer. What is the last reply's very body does not go twice: one
// who speaks for a whole node gets the result of a join once.
func (l *link) sendReply(k wire.Kind, id uint64, header, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case k != wire.Reply:
		l.sendLocked(header, body)
	case len(body) > minRepeatedReply && len(body) == len(l.lastReply) && &body[0] == &l.lastReply[0]:
		l.sendLocked(encodeFrame(wire.Same, id, wire.Empty{}))
	default:
		l.lastReply = body
		l.sendLocked(header, body)
	}
}

// small is the size of bodies, in bytes, that may as well go again.
const minRepeatedReply = 16

// reply answers r, which has not waited, with body.
func (r request) answerWith(body any) { r.Answer(wire.Reply, wire.EncodeBody(body)) }
