package server

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/queries"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

const (
	// maxUnwritten limits the bytes that a client leaves unread, besides those in the kernel, to
	// two frames of the largest size. Beyond it the client is dropped.
	maxUnwritten = 2 * (wire.MaxFrame + wire.HeaderSize)

	// rejoinTimeout is the time for which a hello waits for the end of the same rank's previous
	// connection. The hello of a process that reopens at once may arrive before that end.
	rejoinTimeout = time.Second
)

// conn is one connection. Server.mu guards pendingRequests and receivedGoodbye.
type conn struct {
	server *Server
	conn   net.Conn
	// nil before bind, and constant afterwards. Guarded by Server.mu.
	proc *proc
	// Process at the other end, 0 if unknown.
	pid int
	// Closed after removeConnLocked.
	done            chan struct{}
	receivedGoodbye bool
	// By request id.
	pendingRequests map[uint64]join.Withdraw
	queryRecord     queries.Record

	queueMu sync.Mutex
	queue   net.Buffers
	// Bytes in queue and in the current write.
	bytesUnwritten int
	isWriting      bool
	state          connState

	// The process was reported dead, and its messages are discarded.
	isExpelled atomic.Bool
}

// connState is the condition of a connection.
type connState uint8

const (
	connOpen connState = iota
	// Writing has failed, and frames are still read.
	connUnwritable
	// Nothing is written or read.
	connDropped
)

var connStateNames = [...]string{"connOpen", "connUnwritable", "connDropped"}

func (s connState) String() string { return connStateNames[s] }

// request is a call of a client or of a user that is answered once. It implements join.Waiter.
type request struct {
	// nil for a user.
	conn *conn
	id   uint64
	user *userCall
}

// ServeConn serves the process at the other end of nc on a goroutine of its own. The server owns
// nc.
func (s *Server) ServeConn(nc net.Conn) {
	c := &conn{server: s, conn: nc, done: make(chan struct{}), pendingRequests: map[uint64]join.Withdraw{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.wg.Go(c.run)
}

func (c *conn) run() {
	s := c.server
	r := wire.NewReader(c.conn, wire.MaxHello)
	err := c.handshake(r)
	admitted := err == nil
	if admitted {
		r.SetLimit(wire.MaxFrame)
		err = c.read(r)
	}
	s.mu.Lock()
	if admitted {
		s.removeConnLocked(c)
	}
	quiet := s.isClosed || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed)
	s.mu.Unlock()
	close(c.done)
	if !quiet {
		// The log precedes the notification of the client, which may then close the server.
		if admitted {
			s.opt.Logger.Warn("bootstrap server: connection closed", "rank", c.proc.rank, "error", err)
		} else {
			s.opt.Logger.Warn("bootstrap server: a connection was refused", "error", err)
		}
	}
	if reason, ok := errors.AsType[refusal](err); ok {
		if frame, e := wire.Encode(wire.Refused, 0, wire.RefusedBody{Reason: reason.Error()}); e == nil {
			c.conn.Write(frame) // The log has the reason in any case.
		}
	}
	c.drop()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// isAbruptClose reports whether err only shows that the other process ended, in the middle of a
// frame or with unread data. Errors of malformed messages may wrap io.ErrUnexpectedEOF too.
func isAbruptClose(err error) bool {
	return err == io.ErrUnexpectedEOF || errors.Is(err, syscall.ECONNRESET)
}

// refusal is an error that the client receives.
type refusal struct{ error }

// handshake reads the Hello and sends the Welcome.
func (c *conn) handshake(r *wire.Reader) error {
	var err error
	if c.pid, err = wire.CheckPeer(c.conn); err != nil {
		return err
	}
	deadline := time.Now().Add(c.server.opt.HandshakeTimeout)
	if err := c.conn.SetDeadline(deadline); err != nil {
		return err
	}
	m, err := r.Next()
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	h, err := wire.Decode[wire.HelloBody](m.Body)
	if err != nil || m.Kind != wire.Hello {
		return fmt.Errorf("handshake: not a hello")
	}
	if err := c.admit(h); err != nil {
		return fmt.Errorf("refused: %w", refusal{err})
	}
	return c.conn.SetDeadline(time.Time{})
}

// admit makes c the connection of the rank in h.
func (c *conn) admit(h wire.HelloBody) error {
	s := c.server
	if h.Version != wire.Version {
		return fmt.Errorf("protocol version %d, the launcher speaks %d: build both with the same version of ferry", h.Version, wire.Version)
	}
	if subtle.ConstantTimeCompare([]byte(h.Token), []byte(s.token)) != 1 {
		return errors.New("wrong token")
	}
	if h.Namespace != s.opt.Namespace {
		return fmt.Errorf("namespace %q, this job is %q", h.Namespace, s.opt.Namespace)
	}
	patience := time.After(rejoinTimeout)
	for {
		before, err := c.bind(h.Rank)
		if err != nil || before == nil {
			return err
		}
		select {
		case <-before.done:
		case <-s.done:
			return errors.New("the launcher is ending")
		case <-patience:
			return fmt.Errorf("rank %d is already connected", h.Rank)
		}
	}
}

// bind makes c the connection of rank, or returns the connection that rank has.
func (c *conn) bind(rank uint32) (before *conn, err error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.procs[rank]
	first, size, ok := s.sets.World(rank)
	switch {
	case int64(rank) >= int64(s.sets.Next()):
		return nil, fmt.Errorf("rank %d of %d", rank, s.sets.Next())
	case p == nil || !ok || p.hasEnded || p.hasExited || p.isConnBroken:
		return nil, fmt.Errorf("rank %d has ended", rank)
	}
	if p.conn != nil {
		return p.conn, nil
	}
	welcome, err := wire.Encode(wire.Welcome, 0, wire.WelcomeBody{
		First: uint32(first), Size: uint32(size), Most: uint32(s.sets.Most()), Dead: s.failures,
		Nodes: wire.NodeRuns(s.nodeMapLocked(first, size)), Divided: s.isDivided(),
	})
	if err != nil {
		return nil, err
	}
	c.proc, p.conn, p.pid = p, c, c.pid
	c.send(welcome) // Under s.mu, so that it precedes all later events.
	s.sendMissedLocked(p)
	return nil, nil
}

// read handles requests until the connection ends.
func (c *conn) read(r *wire.Reader) error {
	for {
		m, err := r.Next()
		if isAbruptClose(err) {
			return io.EOF
		}
		if err != nil {
			return err
		}
		c.queryRecord.Received()
		if c.isExpelled.Load() {
			continue // Read up to the end of the connection, so that the process can read its event.
		}
		if m.Kind == wire.Goodbye {
			c.server.mu.Lock()
			c.receivedGoodbye = true
			c.server.mu.Unlock()
			return io.EOF
		}
		if c.isDropped() { // Earlier messages of a dropped client have no effect.
			return net.ErrClosed
		}
		if err := c.handle(m); err != nil {
			return fmt.Errorf("request: %w", err)
		}
	}
}

// drop closes the connection. The reader removes it.
func (c *conn) drop() {
	c.queueMu.Lock()
	c.state, c.queue = connDropped, nil
	c.queueMu.Unlock()
	c.conn.Close()
}

// handleWriteError ends writing. A client that has closed its end may have sent a goodbye, which
// the reader still finds.
func (c *conn) handleWriteError(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.drop()
		return
	}
	c.queueMu.Lock()
	if c.queue = nil; c.state == connOpen {
		c.state = connUnwritable
	}
	c.queueMu.Unlock()
}

func (c *conn) isDropped() bool {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	return c.state == connDropped
}

// dropInherited drops the connection of an exited process that a child still has open.
func (c *conn) dropInherited() {
	select {
	case <-c.done:
	default:
		c.server.opt.Logger.Warn("bootstrap server: connection of an exited process dropped: a child has it open", "rank", c.proc.rank)
		c.drop()
	}
}

// send queues parts, which must not change afterwards. It never blocks. It drops the client beyond
// maxUnwritten.
func (c *conn) send(parts ...[]byte) {
	c.queueMu.Lock()
	defer c.queueMu.Unlock()
	if c.state != connOpen {
		return
	}
	for _, p := range parts {
		c.queue = append(c.queue, p)
		c.bytesUnwritten += len(p)
	}
	if c.bytesUnwritten > maxUnwritten {
		c.server.opt.Logger.Warn("bootstrap server: client dropped: it does not read", "rank", c.proc.rank, "unread", c.bytesUnwritten)
		c.state, c.queue = connDropped, nil
		c.conn.Close()
		return
	}
	if !c.isWriting {
		c.isWriting = true
		c.server.wg.Go(c.write)
	}
}

// write empties the queue and returns, so that an idle connection has no writer. A write has no
// time limit, because a stopped process is alive. maxUnwritten limits the memory.
func (c *conn) write() {
	for {
		c.queueMu.Lock()
		batch := c.queue
		c.queue = nil
		if len(batch) == 0 {
			c.isWriting = false
			c.queueMu.Unlock()
			return
		}
		c.queueMu.Unlock()
		n, err := batch.WriteTo(c.conn)
		if err != nil {
			c.handleWriteError(err)
			return
		}
		c.queueMu.Lock()
		c.bytesUnwritten -= int(n)
		c.queueMu.Unlock()
	}
}

// answerWith answers a request that has not waited.
func (r request) answerWith(body any) { r.Answer(wire.Reply, wire.EncodeBody(body)) }

// SetWithdraw implements join.Waiter. The caller holds Server.mu, as for ClearWithdraw.
func (r request) SetWithdraw(w join.Withdraw) {
	if r.user != nil {
		r.user.withdraw = w
		return
	}
	r.conn.pendingRequests[r.id] = w
}

// ClearWithdraw implements join.Waiter.
func (r request) ClearWithdraw() {
	if r.user != nil {
		r.user.withdraw = nil
		return
	}
	delete(r.conn.pendingRequests, r.id)
}

// Answer implements join.Waiter.
func (r request) Answer(k wire.Kind, body []byte) {
	if r.user != nil {
		r.user.answer <- wire.Message{Kind: k, Body: body}
		return
	}
	h, err := wire.Header(k, r.id, len(body))
	if err != nil { // The limits of requests keep answers far below the size of a frame.
		r.conn.drop()
		return
	}
	r.conn.send(h, body)
}
