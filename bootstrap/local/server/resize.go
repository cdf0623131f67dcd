package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// userCall is a request of a user. withdraw is guarded by Server.mu.
type userCall struct {
	withdraw join.Withdraw
	// Has room for the answer.
	answer chan wire.Message
}

// Resize makes a change that a user requests, of a set or of the set that finished changes have made of
// it. op is PsetGrow, PsetShrink or PsetReplace. A change of the same processes that a process has requested is awaited; one of a
// user is ErrPending. Resize returns the names of the results when the members have
// integrated the change, which also finishes it. If ctx ends before, the change is undone, and the error
// names the processes that have not integrated it. Errors are those of bootstrap.Changer, and
// ErrNeverQueried if ctx ends before any query of the program has returned the change.
func (s *Server) Resize(ctx context.Context, op bootstrap.PsetOp, pset string, args bootstrap.PsetArgs) ([]string, error) {
	body := wire.OperateBody{Op: uint8(op), Operands: []string{pset}, Name: args.Name, Add: int64(args.Add), Sub: int64(args.Sub), Partial: args.Partial}
	if _, err := wire.EncodeChange(wire.Operate, body); err != nil {
		return nil, join.OpError(op.String(), pset, err)
	}
	u := &userCall{answer: make(chan wire.Message, 1)}
	if err := s.beginResize(ctx, u, body); err != nil {
		return nil, join.OpError(op.String(), pset, err)
	}
	isUnseen, waitErr := false, error(nil)
	select {
	case m := <-u.answer:
		return s.decodeResized(op, pset, m, nil)
	case <-s.done:
		return nil, join.OpError(op.String(), pset, errEnding)
	case <-ctx.Done():
		waitErr = context.Cause(ctx)
	}
	s.mu.Lock()
	if leave := u.withdraw; leave != nil {
		u.withdraw = nil
		isUnseen = s.sets.IsUnseen(request{user: u})
		join.Fail(request{user: u}, leave(errors.Is(ctx.Err(), context.DeadlineExceeded)))
	}
	s.mu.Unlock()
	names, err := s.decodeResized(op, pset, <-u.answer, waitErr)
	if isUnseen {
		err = fmt.Errorf("%w: %w", ErrNeverQueried, err)
	}
	return names, err
}

// busyPollInterval is the interval of polls for the end of a change that a process has requested.
const busyPollInterval = 20 * time.Millisecond

// beginResize begins a user's change once no process has one of the same processes in progress. At the end of
// ctx, the change is refused if it still cannot begin.
func (s *Server) beginResize(ctx context.Context, u *userCall, body wire.OperateBody) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.isClosed && ctx.Err() == nil && s.sets.IsBusy(body) {
		s.mu.Unlock()
		select {
		case <-time.After(busyPollInterval):
		case <-ctx.Done():
		case <-s.done:
		}
		s.mu.Lock()
	}
	if s.isClosed {
		return errEnding
	}
	if err := context.Cause(ctx); err != nil && !s.sets.IsBusy(body) {
		return err
	}
	s.sets.Resize(request{user: u}, body)
	return nil
}

// ErrNeverQueried is the error of a user's request during which no member of the set has queried for changes.
var ErrNeverQueried = errors.New("the program never queried for changes")

var errEnding = fmt.Errorf("the job is ending: %w", framework.ErrClosed)

// decodeResized decodes the answer to a user's request.
func (s *Server) decodeResized(op bootstrap.PsetOp, pset string, m wire.Message, waitErr error) ([]string, error) {
	if m.Kind == wire.Reply {
		b, err := wire.Decode[wire.NamesBody](m.Body)
		return b.Names, err
	}
	f, err := wire.Decode[wire.FailureBody](m.Body)
	if err != nil {
		return nil, err
	}
	err, _ = join.FailureError(bootstrap.Identity{Proc: framework.Proc{Namespace: s.opt.Namespace}}, op.String(), pset, f, waitErr)
	return nil, err
}
