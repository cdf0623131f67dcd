package mesh

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/calls"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/queries"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

const (
	// maxUnwritten limits the bytes that a peer leaves unread, besides those in the kernel, to two
	// frames of the largest size. Beyond it the connection is dropped.
	maxUnwritten = 2 * (wire.MaxFrame + wire.HeaderSize)

	// maxLossyBytes is the limit for frames that may be lost.
	maxLossyBytes = 1 << 20

	// closeGrace is the time for the last writes of a client that closes, and for the peers to
	// close their ends.
	closeGrace = time.Second
)

// link is a connection to a peer after the handshake. Without a connection it carries the requests
// of this process to itself.
type link struct {
	client *client
	rank   uint32
	conn   net.Conn

	// A process at either end was reported dead, and messages are discarded.
	isExpelled atomic.Bool
	// Tick is called with endpoint.mu held.
	queries queries.Record

	// Guarded by endpoint.mu.
	pendingRequests map[uint64]join.Withdraw
	receivedGoodbye bool
	isLost          bool
	// Used by the reader only.
	lastReplyBody []byte
	// Version of the values of this process that the peer has.
	replicatedVersion uint64

	// Locked after endpoint.mu.
	mu    sync.Mutex
	queue net.Buffers
	// Bytes in queue and in the current write.
	bytesUnwritten int
	// Bytes of sendUnlimited so far.
	extraAllowance int
	// Body of the last reply.
	lastReply []byte
	// Closed when the queue is written or dropped. nil while there is no writer.
	writerDone chan struct{}
	// The connection accepts no further frames.
	isDropped bool
	// The writing end closes once the queue is empty.
	isEnding bool
}

// send queues parts, which must not change afterwards. It never blocks. It drops the connection
// beyond maxUnwritten.
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
		l.client.log.Warn("bootstrap mesh: connection dropped: the peer does not read", "peer", l.client.procName(l.rank), "unread", l.bytesUnwritten)
		l.dropLocked()
		return
	}
	if l.writerDone == nil {
		l.writerDone = make(chan struct{})
		l.client.wg.Go(l.write)
	}
}

// sendUnlimited is send for frames that do not count for maxUnwritten, because the process holds
// their content in memory anyway.
func (l *link) sendUnlimited(frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.extraAllowance += len(frame)
	l.sendLocked(frame)
}

// sendLossy sends a frame that may be lost. It returns false if it drops the frame, because the
// peer does not read.
func (l *link) sendLossy(frame []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytesUnwritten >= maxLossyBytes {
		return false
	}
	l.sendLocked(frame)
	return true
}

// writeDone returns a channel that is closed once the queue is written or dropped, or nil if it is
// empty.
func (l *link) writeDone() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writerDone
}

// sendLast sends a last frame, and then closes the writing end.
func (l *link) sendLast(last []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn.SetWriteDeadline(time.Now().Add(closeGrace)) // Applies to a write in progress too.
	l.sendLocked(last)
	l.isEnding = true
}

// drop closes the connection. The reader removes the link.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked()
}

func (l *link) dropLocked() {
	l.isDropped, l.queue = true, nil
	l.conn.Close()
}

// write empties the queue and returns, so that an idle link has no writer. Before the end of the
// link a write has no time limit, because a stopped process is alive. maxUnwritten limits the
// memory.
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

// nextBatchLocked removes up to 1 MiB from the queue.
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

// dropWhenWritten drops the connection once the writer has returned. A peer that has read
// everything had the time to close its end.
func (l *link) dropWhenWritten() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writerDone != nil {
		time.AfterFunc(closeGrace, l.dropWhenWritten)
		return
	}
	l.dropLocked()
}

// handleWriteErrorLocked ends writing after an error. A peer that has closed its end may have sent
// a goodbye, which the reader still finds.
func (l *link) handleWriteErrorLocked(err error) {
	if e, ok := err.(net.Error); ok && e.Timeout() {
		l.dropLocked()
		return
	}
	l.isDropped, l.queue = true, nil
}

// closeWrite closes the writing end. The peer's data is still read, because closing a connection
// with unread data may lose frames that were sent.
func closeWrite(nc net.Conn) {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		return
	}
	nc.Close()
}

// request is a call of a peer, or of this process itself, that is answered once. It implements
// join.Waiter.
type request struct {
	link *link
	id   uint64
	// The peer forwards the answer.
	isRelayed bool
}

// SetWithdraw implements join.Waiter. The caller holds endpoint.mu, as for ClearWithdraw.
func (r request) SetWithdraw(w join.Withdraw) { r.link.pendingRequests[r.id] = w }

// ClearWithdraw implements join.Waiter.
func (r request) ClearWithdraw() { delete(r.link.pendingRequests, r.id) }

// Answer implements join.Waiter.
func (r request) Answer(k wire.Kind, body []byte) {
	if r.link.conn == nil {
		r.link.client.pendingCalls.Complete(r.id, calls.Answer{Msg: wire.Message{Kind: k, ID: r.id, Body: body}})
		return
	}
	h, err := wire.Header(k, r.id, len(body))
	if err != nil { // The limits of requests keep answers below the size of a frame.
		r.link.drop()
		return
	}
	r.link.sendReply(k, r.id, h, body)
}

// sendReply sends an answer. The body of the last reply is not sent twice, so a relay gets the
// result of a join once for its node.
func (l *link) sendReply(k wire.Kind, id uint64, header, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case k != wire.Reply:
		l.sendLocked(header, body)
	case len(body) > minRepeatedReply && len(body) == len(l.lastReply) && &body[0] == &l.lastReply[0]:
		l.sendLocked(encodeFrame(wire.RepeatReply, id, wire.Empty{}))
	default:
		l.lastReply = body
		l.sendLocked(header, body)
	}
}

// minRepeatedReply is the size, in bytes, above which a repeated body is replaced by wire.RepeatReply.
const minRepeatedReply = 16

// answerWith answers a request that has not waited.
func (r request) answerWith(body any) { r.Answer(wire.Reply, wire.EncodeBody(body)) }

// withdrawRequests withdraws all requests of the peer on this connection. The caller holds
// endpoint.mu.
func (l *link) withdrawRequests() {
	for _, leave := range l.pendingRequests {
		leave(false)
	}
	clear(l.pendingRequests)
}
