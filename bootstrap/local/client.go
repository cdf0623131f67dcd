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
	// defaultAnswerGrace is how long a call whose wait has ended waits for the server
	// to say so, and who was missing.
	defaultAnswerGrace = 5 * time.Second

	// closeGrace limits the writing of what is queued when the client closes, and of the
	// goodbye.
	closeGrace = time.Second
)

// client is a connection to the launcher: a bootstrap.Client with all optional
// abilities. One goroutine reads; another one writes while there is something to
// write, so that no call waits for a launcher that does not read, unless it wants to.
type client struct {
	changes
	id          bootstrap.Identity
	conn        net.Conn
	answerGrace time.Duration // defaultAnswerGrace; tests have less
	log         *slog.Logger
	wg          sync.WaitGroup // the reader, and the deliverer of events
	writer      sync.WaitGroup

	lastID atomic.Uint64
	done   chan struct{} // closed with err

	mu          sync.Mutex
	calls       map[uint64]*call
	closeErr    error // why there will be no answers any more: the first cause
	isClosed    bool
	incarnation uint64 // that has begun; 0: none
	outbox      outbox

	events        events.Queue
	droppedFrames atomic.Uint64 // Notes and events that were lost here.
}

// call is one that waits for its answer.
type call struct {
	result chan answer // has room for it
	// silent is set when the caller has gone without one: it ends the connection if the
	// server has not answered by then.
	silenceTimer *time.Timer
}

// answer is what a call gets: a Reply or Failure, or the reason for neither.
type answer struct {
	msg wire.Message
	err error
}

func newClient(conn net.Conn, id bootstrap.Identity, env bootstrap.Env) *client {
	c := &client{
		id: id, conn: conn, answerGrace: defaultAnswerGrace,
		log: env.Logger, done: make(chan struct{}), calls: map[uint64]*call{},
	}
	c.changes = changes{endpoint: c, identity: &c.id, timeout: cmp.Or(env.Timeout, bootstrap.DefaultTimeout)}
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
		c.conn.SetWriteDeadline(time.Now().Add(closeGrace)) // of a write that is under way too
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

// fail ends the connection because of err, unless it has ended before.
func (c *client) fail(err error) {
	c.mu.Lock()
	c.failAllLocked(err)
	c.mu.Unlock()
	c.conn.Close()
}

// failAllLocked makes every call, now and later, return err. The first err stays.
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

// read hands answers to their calls until the connection ends.
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
			if ev.Kind == uint8(bootstrap.ProcDied) && ev.Rank == c.id.Proc.Rank {
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

// receiveEvent passes on what the server said.
func (c *client) receiveEvent(ev wire.EventBody) {
	e := bootstrap.Event{Kind: bootstrap.EventKind(ev.Kind), Proc: framework.Proc{Namespace: c.id.Proc.Namespace, Rank: ev.Rank}, Nonce: ev.Nonce, Comm: cid.FromBytes(ev.Comm), Reason: ev.Reason}
	if e.Kind == bootstrap.ProcDied && e.Proc == c.id.Proc {
		e.Nonce = c.currentIncarnation() // The server may not have received the last Life.
	}
	switch e.Kind {
	case bootstrap.ProcDied, bootstrap.ProcLeft, bootstrap.Broken, bootstrap.Revoked:
		c.events.Add(e)
	case bootstrap.GivenUp:
		if ev.TargetNonce == c.currentIncarnation() {
			c.events.Add(e)
		}
	case bootstrap.Dump:
		c.events.Add(bootstrap.Event{Kind: e.Kind, Proc: c.id.Proc, Reason: ev.Reason})
	default:
		c.log.Warn("bootstrap local: unknown event", "kind", ev.Kind)
	}
}

// answered hands an answer to its call. It reports false if there is none.
func (c *client) receiveAnswer(m wire.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	call, ok := c.calls[m.ID]
	if !ok {
		return c.isClosed // which has answered all calls itself
	}
	delete(c.calls, m.ID)
	if call.silenceTimer != nil {
		call.silenceTimer.Stop()
		if m.Kind == wire.Reply {
			c.log.Warn("bootstrap local: an abandoned call has completed after all; others may rely on it", "id", m.ID)
		}
	}
	call.result <- answer{msg: m}
	return true
}

// launcherError is the error of a connection that is of no more use.
func launcherError(op string, err error) error {
	return &framework.TransportError{Component: "bootstrap local", Peer: "the launcher", Op: op, Err: err}
}

// call implements endpoint.
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

// cancel tells the server that a wait has ended, and returns its last word. A server
// that has none for c.grace may be stopped: the call ends without. One that is silent for
// c.timeout is gone.
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
		return <-mine.result // it has just come
	}
	silence := max(c.timeout, c.answerGrace)
	mine.silenceTimer = time.AfterFunc(silence-c.answerGrace, func() { c.fail(silenceError(silence)) })
	return answer{err: silenceError(c.answerGrace)}
}

// silenceError is the error of a call of which the server does not even say that it has
// been withdrawn.
func silenceError(silence time.Duration) error {
	return launcherError("wait for an answer", fmt.Errorf("%w: none within %v of the end of the call", framework.ErrTimeout, silence))
}

// failed implements endpoint.
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
