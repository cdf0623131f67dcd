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
	"github.com/ferrympi/ferry/bootstrap/internal/calls"
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

	// Its error is the first cause of the end of the connection.
	pendingCalls *calls.Table[*calls.Call]

	mu       sync.Mutex
	isClosed bool
	// Nonce of the present incarnation, 0 if there is none.
	incarnation uint64
	outbox      outbox

	events events.Queue
	// Notes and events that were lost here.
	droppedFrames atomic.Uint64
}

func newClient(conn net.Conn, id bootstrap.Identity, env bootstrap.Env) *client {
	c := &client{
		id: id, conn: conn, answerGrace: defaultAnswerGrace,
		log: env.Logger, pendingCalls: calls.New[*calls.Call](),
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
	c.isClosed = true
	if c.pendingCalls.Fail(closedError("Close during the call")) {
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
	c.pendingCalls.Fail(err)
	c.conn.Close()
}

// read delivers answers and events until the connection ends.
func (c *client) read(r *wire.Reader) {
	err := c.readAll(r)
	if !errors.Is(err, framework.ErrProcFailed) {
		err = launcherError("receive", err)
	}
	c.fail(err)
	if err = c.pendingCalls.Err(); errors.Is(err, framework.ErrClosed) || errors.Is(err, framework.ErrProcFailed) {
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
	one, ok := c.pendingCalls.Complete(m.ID, calls.Answer{Msg: m})
	if ok && one.IsAbandoned() && m.Kind == wire.Reply {
		c.log.Warn("bootstrap local: a withdrawn call has completed: other processes may rely on it", "id", m.ID)
	}
	return ok || c.pendingCalls.Err() != nil // Fail has answered all calls.
}

// launcherError is the error of an unusable connection.
func launcherError(op string, err error) error {
	return &framework.TransportError{Component: "bootstrap local", Peer: "the launcher", Op: op, Err: err}
}

// call implements endpoint.
func (c *client) call(ctx context.Context, op, name string, k wire.Kind, body any, timeout time.Duration) (wire.Message, error) {
	a, waitErr := c.roundTrip(ctx, k, body, timeout)
	return a.Reply(c.id, op, name, waitErr, launcherError)
}

// roundTrip makes a request and waits for its answer. An unsent request is withdrawn here. A launcher
// that does not confirm a withdrawal within answerGrace may be stopped, and the call fails. Without
// an answer for the timeout it is lost.
func (c *client) roundTrip(ctx context.Context, k wire.Kind, body any, timeout time.Duration) (a calls.Answer, waitErr error) {
	one := new(calls.Call)
	if err := c.pendingCalls.Begin(ctx, one); err != nil {
		return calls.Answer{Err: err}, nil
	}
	sent, err := c.send(k, one.ID, body)
	if err != nil {
		c.pendingCalls.Complete(one.ID, calls.Answer{})
		return calls.Answer{Err: err}, nil
	}
	a, waitErr = c.pendingCalls.Wait(ctx, one, timeout, c.answerGrace, func(expired bool) {
		if c.withdrawFrame(sent) {
			c.pendingCalls.Complete(one.ID, calls.Answer{Err: errUnread})
			return
		}
		_, _ = c.send(wire.Cancel, one.ID, wire.CancelBody{Expired: expired}) // After an error the call has been answered.
	})
	if one.IsAbandoned() {
		a.Err = launcherError("wait for an answer", a.Err)
		silence := max(c.timeout, c.answerGrace)
		time.AfterFunc(silence-c.answerGrace, func() {
			if _, isSilent := c.pendingCalls.Complete(one.ID, a); isSilent {
				c.fail(launcherError("wait for an answer", calls.SilenceError(silence)))
			}
		})
	}
	return a, waitErr
}
