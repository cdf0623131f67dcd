package local

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/calls"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/sets"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// localCall is a call of the singleton that implements join.Waiter. withdraw is guarded by
// singleton.mu.
type localCall struct {
	calls.Call
	singleton *singleton
	withdraw  join.Withdraw
}

func (l *localCall) SetWithdraw(w join.Withdraw) { l.withdraw = w }
func (l *localCall) ClearWithdraw()              { l.withdraw = nil }
func (l *localCall) Answer(k wire.Kind, body []byte) {
	l.singleton.pendingCalls.Complete(l.ID, calls.Answer{Msg: wire.Message{Kind: k, Body: body}})
}

// call implements endpoint.
func (s *singleton) call(ctx context.Context, op, name string, k wire.Kind, body any, timeout time.Duration) (wire.Message, error) {
	l := &localCall{singleton: s}
	if err := s.startCall(ctx, l, k, body); err != nil {
		return wire.Message{}, join.OpError(op, name, err)
	}
	a, waitErr := s.pendingCalls.Wait(ctx, l, timeout, 0, func(expired bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if leave := l.withdraw; leave != nil {
			join.Fail(l, leave(expired))
		}
	})
	return a.Reply(s.id, op, name, waitErr, launcherError)
}

// startCall makes a call of the table of sets.
func (s *singleton) startCall(ctx context.Context, l *localCall, k wire.Kind, body any) error {
	request, err := localRequest(k, body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.pendingCalls.Begin(ctx, l); err != nil {
		return err
	}
	request(s.table, l, s.id.Proc.Rank)
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
