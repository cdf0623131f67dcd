package local

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/sets"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// localCall is a call of the singleton that implements join.Waiter. withdraw is guarded by
// singleton.mu.
type localCall struct {
	withdraw join.Withdraw
	// Has room for the answer.
	answer chan wire.Message
}

func (l *localCall) SetWithdraw(w join.Withdraw) { l.withdraw = w }
func (l *localCall) ClearWithdraw()              { l.withdraw = nil }
func (l *localCall) Answer(k wire.Kind, body []byte) {
	l.answer <- wire.Message{Kind: k, Body: body}
}

// roundTrip implements endpoint.
func (s *singleton) roundTrip(ctx context.Context, k wire.Kind, body any, timeout time.Duration) (m wire.Message, waitErr, err error) {
	l := &localCall{answer: make(chan wire.Message, 1)}
	if err := s.startCall(ctx, l, k, body); err != nil {
		return m, nil, err
	}
	var deadline <-chan time.Time
	if timeout > 0 {
		deadline = time.After(timeout)
	}
	expired := false
	select {
	case m = <-l.answer:
		return m, nil, nil
	case <-s.done:
		return m, nil, closedError("Close during the call")
	case <-ctx.Done():
		waitErr = context.Cause(ctx)
	case <-deadline:
		expired, waitErr = true, fmt.Errorf("%w (after %v)", framework.ErrTimeout, timeout)
	}
	s.mu.Lock()
	if leave := l.withdraw; leave != nil {
		l.withdraw = nil
		join.Fail(l, leave(expired))
	}
	s.mu.Unlock()
	return <-l.answer, waitErr, nil
}

// startCall makes a call of the table.
func (s *singleton) startCall(ctx context.Context, l *localCall, k wire.Kind, body any) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	call, err := localRequest(k, body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return closedError("call")
	}
	call(s.table, l, s.id.Proc.Rank)
	return nil
}

// localRequest returns the call of the table for a message.
func localRequest(k wire.Kind, body any) (sets.Request[*localCall], error) {
	switch b := body.(type) {
	case wire.ChangeBody:
		return sets.Parse[*localCall](b)
	case wire.NameBody:
		if err := wire.CheckSizes(b.Name, nil, 0); err != nil {
			return nil, err
		}
		return func(t *sets.Table[*localCall], l *localCall, rank uint32) { t.Pset(l, rank, b.Name) }, nil
	case wire.Empty:
		return (*sets.Table[*localCall]).Psets, nil
	}
	return nil, fmt.Errorf("message kind %d is not for a singleton", k)
}

// failureError implements endpoint.
func (s *singleton) failureError(op, name string, m wire.Message, waitErr error) error {
	f, err := wire.Decode[wire.FailureBody](m.Body)
	if err != nil {
		return join.OpError(op, name, err)
	}
	err, _ = join.FailureError(s.id, op, name, f, waitErr)
	return err
}
