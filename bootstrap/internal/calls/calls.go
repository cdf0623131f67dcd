// Package calls has the outstanding calls of a bootstrap client, from the request to the answer. The
// clients of bootstrap/local and bootstrap/mesh share it.
//
// The component begins a call, sends a request with its id, and waits. The goroutine that receives
// the answer completes the call by its id. The component decides which process a request goes to,
// sends requests and withdrawals, and repeats requests.
//
// Every call that has begun is answered exactly once, by the first Complete or Fail. All methods of a
// Table may be called concurrently, and under any lock of the component. Only Wait blocks. Under its
// own lock the table calls the component only in Select.
package calls

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// An Answer is a Reply or Failure, or the error in its place.
type Answer struct {
	Msg wire.Message
	Err error
}

// Reply returns the Reply of the call op with name, or the error of the call. waitErr is that of
// Wait. protocolError returns the error for a malformed or unknown Failure.
func (a Answer) Reply(id bootstrap.Identity, op, name string, waitErr error, protocolError func(op string, err error) error) (wire.Message, error) {
	if a.Err != nil {
		if waitErr != nil {
			a.Err = fmt.Errorf("%w: %w", waitErr, a.Err)
		}
		return a.Msg, join.OpError(op, name, a.Err)
	}
	if a.Msg.Kind == wire.Reply {
		return a.Msg, nil
	}
	f, err := wire.Decode[wire.FailureBody](a.Msg.Body)
	if err == nil {
		var isKnown bool
		if err, isKnown = join.FailureError(id, op, name, f, waitErr); isKnown {
			return a.Msg, err
		}
	}
	return a.Msg, protocolError(op, err)
}

// A Call is one call. Components embed it in their own state of a call.
type Call struct {
	// ID of the request and of its answer. Begin sets it. It is not 0, and the table uses it once.
	ID uint64
	// OnAnswer receives the answer of a call for which no goroutine waits. The goroutine that
	// completes the call runs it, after the call has left the table.
	OnAnswer func(Answer)

	// Has room for the answer.
	answer      chan Answer
	isAbandoned bool
}

// IsAbandoned reports whether Wait has returned without an answer. It is valid after Wait, and after
// the call has been completed.
func (c *Call) IsAbandoned() bool { return c.isAbandoned }

func (c *Call) base() *Call { return c }

func (c *Call) deliver(a Answer) {
	if c.OnAnswer != nil {
		c.OnAnswer(a)
		return
	}
	c.answer <- a
}

// A Member is a pointer to a type that embeds a Call, or a *Call.
type Member interface {
	comparable
	base() *Call
}

// A Table holds the unanswered calls of a client.
type Table[C Member] struct {
	// Closed by Fail.
	done chan struct{}

	mu      sync.Mutex
	pending map[uint64]C
	lastID  uint64
	// Error of Fail.
	failure error
}

// New returns an empty table.
func New[C Member]() *Table[C] {
	return &Table[C]{done: make(chan struct{}), pending: map[uint64]C{}}
}

// Begin adds a call. It returns the cause of ctx if that has ended, and after Fail its error.
func (t *Table[C]) Begin(ctx context.Context, one C) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure != nil {
		return t.failure
	}
	t.lastID++
	c := one.base()
	c.ID, c.answer = t.lastID, make(chan Answer, 1)
	t.pending[c.ID] = one
	return nil
}

// Complete removes a call and answers it. ok is false, without an effect, if the table has no such
// call.
func (t *Table[C]) Complete(id uint64, a Answer) (one C, ok bool) {
	t.mu.Lock()
	one, ok = t.pending[id]
	delete(t.pending, id)
	t.mu.Unlock()
	if ok {
		one.base().deliver(a)
	}
	return one, ok
}

// Find returns the call with an id.
func (t *Table[C]) Find(id uint64) (one C, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok = t.pending[id]
	return one, ok
}

// Select returns the calls for which f is true, in the order of Begin. f does not use the table.
func (t *Table[C]) Select(f func(C) bool) (selected []C) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.pending {
		if f(one) {
			selected = append(selected, one)
		}
	}
	slices.SortFunc(selected, func(a, b C) int { return cmp.Compare(a.base().ID, b.base().ID) })
	return selected
}

// Fail answers all calls with err, and later calls of Begin return it. A second error replaces the
// first one only if it is ErrClosed.
func (t *Table[C]) Fail(err error) (isFirst bool) {
	t.mu.Lock()
	if isFirst = t.failure == nil; isFirst {
		close(t.done)
	}
	if isFirst || errors.Is(err, framework.ErrClosed) {
		t.failure = err
	}
	pending := t.pending
	t.pending = map[uint64]C{}
	t.mu.Unlock()
	for _, one := range pending {
		one.base().deliver(Answer{Err: err})
	}
	return isFirst
}

// Done returns a channel that is closed by Fail.
func (t *Table[C]) Done() <-chan struct{} { return t.done }

// Err returns the error of Fail, or nil before.
func (t *Table[C]) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failure
}

// Wait returns the answer of a call without OnAnswer. At the end of ctx or of limit, if that is not 0,
// it calls withdraw, which sends a withdrawal or completes the call. expired means that limit has
// passed. The answer that follows still counts, because it may name missing members or report
// success. waitErr is then the reason for the end of the wait, and otherwise nil.
//
// Without an answer within grace of the withdrawal the call is abandoned. Its answer is then a
// SilenceError. It stays in the table until it is completed.
func (t *Table[C]) Wait(ctx context.Context, one C, limit, grace time.Duration, withdraw func(expired bool)) (a Answer, waitErr error) {
	c := one.base()
	var deadline <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		deadline = timer.C
	}
	select {
	case a = <-c.answer:
		return a, nil
	case <-ctx.Done():
		waitErr = context.Cause(ctx)
		withdraw(false)
	case <-deadline:
		waitErr = fmt.Errorf("%w (after %v)", framework.ErrTimeout, limit)
		withdraw(true)
	}
	select {
	case a = <-c.answer:
		return a, waitErr
	case <-time.After(grace):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, isPending := t.pending[c.ID]; !isPending {
		return <-c.answer, waitErr // It arrives at this moment.
	}
	c.isAbandoned = true
	return Answer{Err: SilenceError(grace)}, waitErr
}

// SilenceError is the error of a call that is abandoned after grace.
func SilenceError(grace time.Duration) error {
	return fmt.Errorf("%w: none within %v of the end of the call", framework.ErrTimeout, grace)
}
