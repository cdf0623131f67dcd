package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/events"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

const (
	// defaultAnswerGrace is the time for which a withdrawn call waits for the server to confirm and
	// to name the missing members.
	defaultAnswerGrace = 5 * time.Second

	// closeGrace limits the writing of queued frames and of the goodbye in Close.
	closeGrace = time.Second
)

// client is a connection to the launcher that implements bootstrap.Client and all optional
// interfaces. It has one goroutine that reads, and another one while frames are queued, so that a
// launcher that does not read blocks only calls that wait.
type client struct {
	changes
	id   bootstrap.Identity
	conn net.Conn
	// Tests shorten it.
	answerGrace time.Duration
	log         *slog.Logger
	// The reader, and the delivery of events.
	wg     sync.WaitGroup
	writer sync.WaitGroup

	lastID atomic.Uint64
	// Closed when closeErr is set.
	done chan struct{}

	mu    sync.Mutex
	calls map[uint64]*call
	// First cause of the end of the connection.
	closeErr error
	isClosed bool
	// Nonce of the present incarnation, 0 if there is none.
	incarnation uint64
	outbox      outbox

	events events.Queue
	// Notes and events that were lost here.
	droppedFrames atomic.Uint64
}

// call is a request that waits for its answer.
type call struct {
	// Has room for the answer.
	result chan answer
	// Ends the connection unless the server answers in time. It is set once the caller has returned
	// without an answer.
	silenceTimer *time.Timer
}

// answer is a Reply or Failure, or the error that replaces them.
type answer struct {
	msg wire.Message
	err error
}

func newClient(conn net.Conn, id bootstrap.Identity, env bootstrap.Env) *client {
	c := &client{
		id: id, conn: conn, answerGrace: defaultAnswerGrace,
		log: env.Logger, done: make(chan struct{}), calls: map[uint64]*call{},
	}
	c.changes.init(c, &c.id, cmp.Or(env.Timeout, bootstrap.DefaultTimeout))
	c.events.Spawn = c.wg.Go
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *client) Identity() bootstrap.Identity { return c.id }

func (c *client) Close() error {
	c.mu.Lock()
	if c.isClosed {
		c.mu.Unlock()
		return closedError("Close")
	}
	lost := c.closeErr != nil
	c.isClosed = true
	c.failAllLocked(closedError("Close during the call"))
	if !lost {
		c.conn.SetWriteDeadline(time.Now().Add(closeGrace)) // Applies to a write in progress too.
		if frame, err := wire.Encode(wire.Goodbye, 0, wire.Empty{}); err == nil {
			c.queueLocked(frame)
		}
	}
	c.mu.Unlock()
	c.writer.Wait()
	c.conn.Close()
	c.events.Stop()
	c.wg.Wait()
	if n := c.droppedFrames.Load(); n > 0 {
		c.log.Debug("bootstrap local: notes dropped", "count", n)
	}
	return nil
}

func closedError(what string) error {
	return fmt.Errorf("bootstrap local: %s: %w", what, framework.ErrClosed)
}

// fail closes the connection with err as the cause, unless there is an earlier one.
func (c *client) fail(err error) {
	c.mu.Lock()
	c.failAllLocked(err)
	c.mu.Unlock()
	c.conn.Close()
}

// failAllLocked fails all present and future calls with err. The first err stays.
func (c *client) failAllLocked(err error) {
	if c.closeErr != nil {
		return
	}
	c.closeErr = err
	close(c.done)
	for id, call := range c.calls {
		if call.silenceTimer != nil {
			call.silenceTimer.Stop()
		}
		call.result <- answer{err: err}
		delete(c.calls, id)
	}
}

// read delivers answers and events until the connection ends.
func (c *client) read(r *wire.Reader) {
	err := c.readAll(r)
	if !errors.Is(err, framework.ErrProcFailed) {
		err = launcherError("receive", err)
	}
	c.fail(err)
	c.mu.Lock()
	closed, err := c.isClosed, c.closeErr
	c.mu.Unlock()
	if closed || errors.Is(err, framework.ErrProcFailed) {
		return
	}
	c.log.Info("bootstrap local: connection to the launcher lost", "error", err)
	c.events.Add(bootstrap.Event{Kind: bootstrap.ServerLost, Reason: err.Error()})
}

func (c *client) readAll(r *wire.Reader) error {
	for {
		m, err := r.Next()
		if err != nil {
			return err
		}
		switch m.Kind {
		case wire.Reply, wire.Failure:
			if !c.receiveAnswer(m) {
				return fmt.Errorf("answer to an unknown call (id %d)", m.ID)
			}
		case wire.Event:
			ev, err := wire.Decode[wire.EventBody](m.Body)
			if err != nil {
				return fmt.Errorf("malformed event: %w", err)
			}
			c.receiveEvent(ev)
			if ev.Kind == uint8(bootstrap.PeerFailed) && ev.Rank == c.id.Proc.Rank {
				return fmt.Errorf("bootstrap local: %w", join.ReportedDeadError(c.id.Proc, ev.Reason))
			}
		case wire.Note:
			b, err := wire.Decode[wire.NoteBody](m.Body)
			if err != nil {
				return fmt.Errorf("malformed note: %w", err)
			}
			c.receiveNote(b)
		case wire.AliveQuery:
			c.sendLossy(wire.AliveAnswer, wire.Empty{})
		default:
			return fmt.Errorf("message kind %d from the launcher", m.Kind)
		}
	}
}

// receiveEvent queues an event of the server.
func (c *client) receiveEvent(ev wire.EventBody) {
	e := bootstrap.Event{Kind: bootstrap.EventKind(ev.Kind), Proc: framework.Proc{Namespace: c.id.Proc.Namespace, Rank: ev.Rank}, Nonce: ev.Nonce, Comm: cid.FromBytes(ev.Comm), Reason: ev.Reason}
	if e.Kind == bootstrap.PeerFailed && e.Proc == c.id.Proc {
		e.Nonce = c.currentIncarnation() // The server may not have received the last incarnation.
	}
	switch e.Kind {
	case bootstrap.PeerFailed, bootstrap.PeerLeft, bootstrap.CommBroken, bootstrap.CommRevoked:
		c.events.Add(e)
	case bootstrap.PeerUnreachable:
		if ev.TargetNonce == c.currentIncarnation() {
			c.events.Add(e)
		}
	case bootstrap.Dump:
		c.events.Add(bootstrap.Event{Kind: e.Kind, Proc: c.id.Proc, Reason: ev.Reason})
	default:
		c.log.Warn("bootstrap local: unknown event", "kind", ev.Kind)
	}
}

// receiveAnswer delivers an answer. It returns false if there is no such call.
func (c *client) receiveAnswer(m wire.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	call, ok := c.calls[m.ID]
	if !ok {
		return c.isClosed // Close has answered all calls.
	}
	delete(c.calls, m.ID)
	if call.silenceTimer != nil {
		call.silenceTimer.Stop()
		if m.Kind == wire.Reply {
			c.log.Warn("bootstrap local: a withdrawn call has completed: other processes may rely on it", "id", m.ID)
		}
	}
	call.result <- answer{msg: m}
	return true
}

// launcherError is the error of an unusable connection.
func launcherError(op string, err error) error {
	return &framework.TransportError{Component: "bootstrap local", Peer: "the launcher", Op: op, Err: err}
}

// roundTrip implements endpoint.
func (c *client) roundTrip(ctx context.Context, k wire.Kind, body any, timeout time.Duration) (m wire.Message, waitErr, err error) {
	if ctx.Err() != nil {
		return m, nil, context.Cause(ctx)
	}
	mine := &call{result: make(chan answer, 1)}
	id := c.lastID.Add(1)
	sent, err := c.sendCall(k, id, body, mine)
	if err != nil {
		return m, nil, err
	}
	expired := false
	var deadline <-chan time.Time
	if timeout > 0 {
		deadline = time.After(timeout)
	}
	select {
	case a := <-mine.result:
		return a.msg, nil, a.err
	case <-ctx.Done():
		waitErr = context.Cause(ctx)
	case <-deadline:
		expired, waitErr = true, fmt.Errorf("%w (after %v)", framework.ErrTimeout, timeout)
	}
	if c.withdrawFrame(sent, id) {
		return m, nil, fmt.Errorf("%w: %w", waitErr, errUnread)
	}
	a := c.withdrawCall(id, mine, expired)
	return a.msg, waitErr, a.err
}

// withdrawCall withdraws a call, and returns its last answer. Without one for answerGrace the
// server may be stopped, and the call fails. Without one for the timeout the server is lost.
func (c *client) withdrawCall(id uint64, mine *call, expired bool) answer {
	if _, err := c.send(wire.Cancel, id, wire.CancelBody{Expired: expired}); err != nil {
		return answer{err: err}
	}
	select {
	case a := <-mine.result:
		return a
	case <-time.After(c.answerGrace):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[id] != mine {
		return <-mine.result // It has just arrived.
	}
	silence := max(c.timeout, c.answerGrace)
	mine.silenceTimer = time.AfterFunc(silence-c.answerGrace, func() { c.fail(silenceError(silence)) })
	return answer{err: silenceError(c.answerGrace)}
}

// silenceError is the error of a call whose withdrawal the server does not confirm.
func silenceError(silence time.Duration) error {
	return launcherError("wait for an answer", fmt.Errorf("%w: none within %v of the end of the call", framework.ErrTimeout, silence))
}

// failureError implements endpoint.
func (c *client) failureError(op, name string, m wire.Message, waitErr error) error {
	f, err := wire.Decode[wire.FailureBody](m.Body)
	if err != nil {
		return launcherError(op, err)
	}
	err, ok := join.FailureError(c.id, op, name, f, waitErr)
	if !ok {
		return launcherError(op, err)
	}
	return err
}
