package mesh

import (
	"context"
	"errors"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/changer"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// setCalls implements bootstrap.Changer and bootstrap.PsetSource by requests to rank 0.
type setCalls struct {
	wrapped
	changer.Calls
	c *client
	// Sets of the launcher. nil if it has none, and in an added process.
	launcherSets bootstrap.PsetSource
}

func newSetCalls(w wrapped, c *client) *setCalls {
	s := &setCalls{wrapped: w, Calls: changer.Calls{Holder: rank0{c}, ID: &c.id}, c: c}
	if !c.growth.isAdded() {
		s.launcherSets, _ = framework.As[bootstrap.PsetSource](c.launcher)
	}
	return s
}

// Psets implements bootstrap.PsetSource. The sets of the launcher precede those of operations. After
// the end of rank 0, which may have finished before the others, only the sets of the launcher exist.
func (s *setCalls) Psets(ctx context.Context) ([]string, error) {
	b, err := changer.Request[wire.NamesBody](ctx, s.Holder, "psets", "", wire.ListSets, wire.Empty{}, false)
	switch {
	case !s.c.hasLostRank0(err):
		return b.Names, err
	case s.launcherSets == nil:
		return nil, nil
	}
	var names []string
	err = s.c.within(ctx, "psets", "", nil, func(ctx context.Context) (err error) {
		names, err = s.launcherSets.Psets(ctx)
		return err
	})
	return names, err
}

// Pset implements bootstrap.PsetSource. A launcher has no sets with reserved names.
func (s *setCalls) Pset(ctx context.Context, name string) (info bootstrap.PsetInfo, err error) {
	const op = "pset"
	if s.launcherSets != nil && !bootstrap.IsReserved(name) {
		err := s.c.within(ctx, op, name, nil, func(ctx context.Context) (err error) {
			info, err = s.launcherSets.Pset(ctx, name)
			return err
		})
		if !errors.Is(err, framework.ErrPset) {
			return info, err
		}
	}
	b, err := changer.Request[wire.PsetBody](ctx, s.Holder, op, name, wire.DescribeSet, wire.NameBody{Name: name}, false)
	return bootstrap.PsetInfo{Name: b.Name, Members: framework.ProcsOfRanks(s.c.id.Proc.Namespace, b.Ranks), Dynamic: b.Dynamic}, err
}

// hasLostRank0 reports whether err is that of a call which failed because rank 0 has ended.
func (c *client) hasLostRank0(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(err, framework.ErrProcFailed) && !c.isClosed && c.isolationError() == nil
}

// rank0 implements changer.Holder.
type rank0 struct{ c *client }

// Change makes a request without a deadline as a sequence of requests with one, so that it ends if
// rank 0 does not answer.
func (r rank0) Change(ctx context.Context, op, name string, body wire.ChangeBody, hasNoDeadline bool) (wire.Message, error) {
	for {
		m, err := r.c.roundTrip(ctx, op, name, 0, wire.Change, body)
		var missing *framework.MissingError
		if !hasNoDeadline || ctx.Err() != nil || !errors.Is(err, framework.ErrTimeout) || errors.As(err, &missing) {
			return m, err
		}
	}
}

func (r rank0) ProtocolError(op string, err error) error { return r.c.peerError(0, op, err) }
