package local

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/calls"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/sets"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// singleton serves a process that is alone in its job, without a goroutine or a socket. Of the
// optional interfaces it has process sets and their changes, except that it starts no processes.
type singleton struct {
	changes
	id bootstrap.Identity

	// Its error is set by Close.
	pendingCalls *calls.Table[*localCall]

	mu    sync.Mutex
	table *sets.Table[*localCall]
	// Closed by each Put and replaced, and closed by Close.
	putDone       chan struct{}
	values        map[string][]byte
	lastContextID uint64
}

func newSingleton(env bootstrap.Env) *singleton {
	s := &singleton{
		id: bootstrap.Identity{
			Proc:        framework.Proc{Namespace: "singleton-" + rand.Text()},
			Size:        1,
			MaxSize:     1,
			LocalSize:   1,
			LocalRanks:  []uint32{0},
			Nodes:       bootstrap.NodeMap{{Count: 1}},
			IsSingleton: true,
		},
		pendingCalls: calls.New[*localCall](),
		table:        sets.New[*localCall](sets.Options{Size: 1, Launcher: "a process without a launcher"}),
		putDone:      make(chan struct{}),
		values:       map[string][]byte{},
	}
	s.changes.init(s, &s.id, cmp.Or(env.Timeout, bootstrap.DefaultTimeout))
	return s
}

func (s *singleton) Identity() bootstrap.Identity { return s.id }

func (s *singleton) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.pendingCalls.Fail(closedError("Close during the call")) {
		return closedError("Close")
	}
	close(s.putDone)
	return nil
}

// beginCall checks the arguments that all calls have, and locks s.mu unless it returns an error.
// most is the limit of value in bytes.
func (s *singleton) beginCall(ctx context.Context, op, name string, value []byte, most int) error {
	if err := cmp.Or(wire.CheckSizes(name, value, most), context.Cause(ctx)); err != nil {
		return join.OpError(op, name, err)
	}
	s.mu.Lock()
	if s.pendingCalls.Err() != nil {
		s.mu.Unlock()
		return closedError(op)
	}
	return nil
}

func (s *singleton) Put(ctx context.Context, key string, value []byte) error {
	if err := s.beginCall(ctx, "put", key, value, bootstrap.MaxValue); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.values[key] = bytes.Clone(value)
	close(s.putDone)
	s.putDone = make(chan struct{})
	return nil
}

// Get returns a value of this process, which is the only one.
func (s *singleton) Get(ctx context.Context, p framework.Proc, key string) ([]byte, error) {
	if p != s.id.Proc {
		return nil, fmt.Errorf("bootstrap: get %q: %w: %s is not in this job (%s)", key, framework.ErrRank, p, s.id.Proc.Namespace)
	}
	deadline := time.After(s.timeout)
	for {
		if err := s.beginCall(ctx, "get", key, nil, 0); err != nil {
			return nil, err
		}
		v, ok := s.values[key]
		changed := s.putDone
		s.mu.Unlock()
		if ok {
			return bytes.Clone(v), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-deadline:
			return nil, &framework.MissingError{Op: "get", Tag: key, Missing: []framework.Proc{p}}
		}
	}
}

func (s *singleton) checkGroup(op, tag string, group []framework.Proc) error {
	switch {
	case len(group) == 0:
		return fmt.Errorf("bootstrap: %s %q: %w: the group is empty", op, tag, framework.ErrGroup)
	case len(group) > 1 || group[0] != s.id.Proc:
		return fmt.Errorf("bootstrap: %s %q: %w: a singleton's only group is %s by itself", op, tag, framework.ErrGroup, s.id.Proc)
	}
	return nil
}

// Fence returns at once, because all members are present.
func (s *singleton) Fence(ctx context.Context, group []framework.Proc, tag string) error {
	if err := s.beginCall(ctx, "fence", tag, nil, 0); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return s.checkGroup("fence", tag, group)
}

func (s *singleton) Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (bootstrap.Constructed, error) {
	const op = "group construct"
	if err := s.beginCall(ctx, op, tag, payload, bootstrap.MaxPayload); err != nil {
		return bootstrap.Constructed{}, err
	}
	defer s.mu.Unlock()
	if err := s.checkGroup(op, tag, group); err != nil {
		return bootstrap.Constructed{}, err
	}
	s.lastContextID++
	return bootstrap.Constructed{ContextID: s.lastContextID, Payloads: [][]byte{bytes.Clone(payload)}}, nil
}
