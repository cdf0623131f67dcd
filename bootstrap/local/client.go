package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

const (
	// answerGrace is how long a call whose wait has ended waits for the server
	// to say so, and who was missing. A server that is silent for so long is gone.
	answerGrace = 5 * time.Second

	// closeGrace limits the writing of the goodbye.
	closeGrace = time.Second
)

// client is a connection to the launcher: a bootstrap.Client with all optional
// abilities. One goroutine reads; callers write.
type client struct {
	id      bootstrap.Identity
	conn    net.Conn
	timeout time.Duration
	log     *slog.Logger
	wg      sync.WaitGroup // the reader, and the deliverer of events

	wmu sync.Mutex // one frame at a time

	mu     sync.Mutex
	calls  map[uint64]chan answer
	lastID uint64
	err    error // why there will be no answers any more
	closed bool
	life   uint64 // that has begun; 0: none

	events events
}

// answer is what a call gets: a Reply or Failure, or the reason for neither.
type answer struct {
	msg wire.Message
	err error
}

func newClient(conn net.Conn, id bootstrap.Identity, env bootstrap.Env) *client {
	c := &client{id: id, conn: conn, timeout: cmp.Or(env.Timeout, bootstrap.DefaultTimeout), log: env.Logger, calls: map[uint64]chan answer{}}
	c.events.spawn = c.wg.Go
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *client) Identity() bootstrap.Identity { return c.id }

func (c *client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return closedError("Close")
	}
	c.closed = true
	c.mu.Unlock()
	c.end(closedError("Close during the call"))
	c.conn.SetWriteDeadline(time.Now().Add(closeGrace)) // frees a writer that is stuck
	if frame, err := wire.Encode(wire.Goodbye, 0, wire.Empty{}); err == nil {
		c.wmu.Lock()
		c.conn.SetWriteDeadline(time.Now().Add(closeGrace))
		c.conn.Write(frame) // when it fails there is no server to be told
		c.wmu.Unlock()
	}
	c.conn.Close()
	c.events.stop()
	c.wg.Wait()
	return nil
}

func closedError(what string) error {
	return fmt.Errorf("bootstrap local: %s: %w", what, framework.ErrClosed)
}

// end makes every call, now and later, return err. The first err stays.
func (c *client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	for id, ch := range c.calls {
		ch <- answer{err: err}
		delete(c.calls, id)
	}
}

// read hands answers to their calls until the connection ends.
func (c *client) read(r *wire.Reader) {
	err := c.readAll(r)
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return
	}
	c.conn.Close()
	err = launcherError("receive", err)
	c.log.Warn("bootstrap local: connection to the launcher lost", "error", err)
	c.end(err)
	c.events.add(bootstrap.Event{Kind: bootstrap.ServerLost, Reason: err.Error()})
}

func (c *client) readAll(r *wire.Reader) error {
	for {
		m, err := r.Next()
		if err != nil {
			return err
		}
		switch m.Kind {
		case wire.Reply, wire.Failure:
			c.mu.Lock()
			ch, ok := c.calls[m.ID]
			delete(c.calls, m.ID)
			c.mu.Unlock()
			if !ok {
				return fmt.Errorf("answer to a call that is not there (id %d)", m.ID)
			}
			ch <- answer{msg: m} // has room: one answer per call
		case wire.Event:
			ev, err := wire.Decode[wire.EventBody](m.Body)
			if err != nil {
				return fmt.Errorf("malformed event: %w", err)
			}
			c.addEvent(ev)
		default:
			return fmt.Errorf("message kind %d from the launcher", m.Kind)
		}
	}
}

// addEvent passes on what the server said.
func (c *client) addEvent(ev wire.EventBody) {
	e := bootstrap.Event{Kind: bootstrap.EventKind(ev.Kind), Proc: framework.Proc{Namespace: c.id.Proc.Namespace, Rank: ev.Rank}, Nonce: ev.Nonce, Reason: ev.Reason}
	switch e.Kind {
	case bootstrap.ProcDied, bootstrap.ProcLeft:
		c.events.add(e)
	case bootstrap.GivenUp:
		c.mu.Lock()
		present := c.life
		c.mu.Unlock()
		if ev.Life == present {
			c.events.add(e)
		}
	case bootstrap.Dump:
		c.events.add(bootstrap.Event{Kind: e.Kind, Proc: c.id.Proc})
	default:
		c.log.Warn("bootstrap local: unknown event", "kind", ev.Kind)
	}
}

// send sends one frame. Nothing waits for it to be handled.
func (c *client) send(k wire.Kind, id uint64, body any) error {
	frame, err := wire.Encode(k, id, body)
	if err != nil {
		return err
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.failure(); err != nil {
		return err
	}
	err = c.conn.SetWriteDeadline(time.Now().Add(c.timeout))
	if err == nil {
		_, err = c.conn.Write(frame)
	}
	if err == nil {
		return nil
	}
	if err := c.failure(); err != nil {
		return err // Close, or the reader, was first and knows better
	}
	err = launcherError("send", err)
	c.end(err)
	c.conn.Close() // half a frame may be out: there is no going on
	return err
}

// launcherError is the error of a connection that is of no more use.
func launcherError(op string, err error) error {
	return &framework.TransportError{Component: "bootstrap local", Peer: "the launcher", Op: op, Err: err}
}

func (c *client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// call sends a request and waits for its answer. When ctx ends or the deadline
// passes, the server is told, and its answer still counts: it may say who was
// missing, or that the call was done after all. waitErr then says why the wait
// ended; with an error from the connection it is nil.
func (c *client) call(ctx context.Context, k wire.Kind, body any) (m wire.Message, waitErr, err error) {
	if ctx.Err() != nil {
		return m, nil, context.Cause(ctx)
	}
	ch := make(chan answer, 1)
	c.mu.Lock()
	c.lastID++
	id := c.lastID
	c.calls[id] = ch
	c.mu.Unlock()
	defer c.forget(id)
	if err := c.send(k, id, body); err != nil {
		return m, nil, err
	}
	expired := false
	select {
	case a := <-ch:
		return a.msg, nil, a.err
	case <-ctx.Done():
		waitErr = context.Cause(ctx)
	case <-time.After(c.timeout):
		expired, waitErr = true, fmt.Errorf("%w (after %v)", framework.ErrTimeout, c.timeout)
	}
	a := c.cancel(id, ch, expired)
	return a.msg, waitErr, a.err
}

// cancel tells the server that a wait has ended, and returns its last word.
func (c *client) cancel(id uint64, ch chan answer, expired bool) answer {
	err := c.send(wire.Cancel, id, wire.CancelBody{Expired: expired})
	if err != nil {
		return answer{err: err}
	}
	select {
	case a := <-ch:
		return a
	case <-time.After(answerGrace):
	}
	err = launcherError("wait for an answer", fmt.Errorf("%w: none within %v of the end of the call", framework.ErrTimeout, answerGrace))
	c.end(err)
	c.conn.Close()
	return answer{err: err}
}

func (c *client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// failed turns a Failure into an error. op and name are what was called.
func (c *client) failed(op, name string, m wire.Message, waitErr error) error {
	f, err := wire.Decode[wire.FailureBody](m.Body)
	if err != nil {
		return launcherError(op, err)
	}
	switch f.Code {
	case wire.CodeMissing:
		return &framework.MissingError{Op: op, Tag: name, Missing: c.id.Procs(f.Missing), Failed: c.id.Procs(f.Failed)}
	case wire.CodeWithdrawn:
		waitErr = cmp.Or(waitErr, framework.ErrCanceled)
		if len(f.Missing) == 0 {
			return opError(op, name, waitErr)
		}
		missing := &framework.MissingError{Op: op, Tag: name, Missing: c.id.Procs(f.Missing)}
		if errors.Is(waitErr, context.DeadlineExceeded) {
			return fmt.Errorf("%w: %w", waitErr, missing)
		}
		// Not wrapped: a caller that cancels did not run into a deadline.
		return fmt.Errorf("bootstrap: %s %q: %w; not there yet: %v", op, name, waitErr, c.id.Procs(f.Missing))
	}
	sentinel, ok := map[wire.Code]error{
		wire.CodeGroup:        framework.ErrGroup,
		wire.CodeRank:         framework.ErrRank,
		wire.CodePublished:    bootstrap.ErrPublished,
		wire.CodeNotPublished: bootstrap.ErrNotPublished,
		wire.CodePset:         framework.ErrPset,
		wire.CodeLimit:        framework.ErrUnsupported,
	}[f.Code]
	if !ok {
		return launcherError(op, fmt.Errorf("unknown failure %d: %s", f.Code, f.Text))
	}
	if f.Text != "" {
		sentinel = fmt.Errorf("%w: %s", sentinel, f.Text)
	}
	return opError(op, name, sentinel)
}
