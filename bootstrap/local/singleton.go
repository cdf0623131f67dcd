package local

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// singleton serves a process that is alone in its job: a bootstrap.Client with the
// abilities of a Directory and a PsetSource. It has no goroutine and no socket.
type singleton struct {
	id      bootstrap.Identity
	timeout time.Duration
	done    chan struct{} // closed by Close

	mu        sync.Mutex
	closed    bool
	changed   chan struct{} // closed, and replaced, by each Put and Publish
	values    map[string][]byte
	published map[string][]byte
	contexts  uint64
}

func newSingleton(env bootstrap.Env) *singleton {
	return &singleton{
		id: bootstrap.Identity{
			Proc:      framework.Proc{Namespace: "singleton-" + rand.Text()},
			Size:      1,
			LocalSize: 1,
			Locals:    []uint32{0},
			Singleton: true,
		},
		timeout:   cmp.Or(env.Timeout, bootstrap.DefaultTimeout),
		done:      make(chan struct{}),
		changed:   make(chan struct{}),
		values:    map[string][]byte{},
		published: map[string][]byte{},
	}
}

func (s *singleton) Identity() bootstrap.Identity { return s.id }

func (s *singleton) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return closedError("Close")
	}
	s.closed = true
	close(s.done)
	return nil
}

// begin checks what every call checks, and leaves s.mu locked when it is fine.
// value may have so many bytes at most.
func (s *singleton) begin(ctx context.Context, op, name string, value []byte, most int) error {
	if err := checkLimits(op, name, value, most); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("bootstrap: %s %q: %w", op, name, context.Cause(ctx))
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return closedError(op)
	}
	return nil
}

func (s *singleton) changedLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *singleton) Put(ctx context.Context, key string, value []byte) error {
	if err := s.begin(ctx, "put", key, value, bootstrap.MaxValue); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.values[key] = bytes.Clone(value)
	s.changedLocked()
	return nil
}

// await returns what from has under name. It waits for that if wait is set.
func (s *singleton) await(ctx context.Context, op, name string, wait bool, from map[string][]byte) ([]byte, bool, error) {
	deadline := time.After(s.timeout)
	for {
		if err := s.begin(ctx, op, name, nil, 0); err != nil {
			return nil, false, err
		}
		v, ok := from[name]
		changed := s.changed
		s.mu.Unlock()
		if ok || !wait {
			return bytes.Clone(v), ok, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-s.done:
		case <-deadline:
			return nil, false, fmt.Errorf("bootstrap: %s %q: %w (after %v)", op, name, framework.ErrTimeout, s.timeout)
		}
	}
}

// Get returns what was put under key, by this process: there is no other.
func (s *singleton) Get(ctx context.Context, p framework.Proc, key string) ([]byte, error) {
	if p != s.id.Proc {
		return nil, fmt.Errorf("bootstrap: get %q: %w: %s is not of this job (%s)", key, framework.ErrRank, p, s.id.Proc.Namespace)
	}
	v, _, err := s.await(ctx, "get", key, true, s.values)
	if errors.Is(err, framework.ErrTimeout) {
		return nil, &framework.MissingError{Op: "get", Tag: key, Missing: []framework.Proc{p}}
	}
	return v, err
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

// Fence returns at once: all members are here.
func (s *singleton) Fence(ctx context.Context, group []framework.Proc, tag string) error {
	if err := s.begin(ctx, "fence", tag, nil, 0); err != nil {
		return err
	}
	defer s.mu.Unlock()
	return s.checkGroup("fence", tag, group)
}

func (s *singleton) Construct(ctx context.Context, group []framework.Proc, tag string, payload []byte) (bootstrap.Constructed, error) {
	const op = "group construct"
	if err := s.begin(ctx, op, tag, payload, bootstrap.MaxPayload); err != nil {
		return bootstrap.Constructed{}, err
	}
	defer s.mu.Unlock()
	if err := s.checkGroup(op, tag, group); err != nil {
		return bootstrap.Constructed{}, err
	}
	s.contexts++
	return bootstrap.Constructed{ContextID: s.contexts, Payloads: [][]byte{bytes.Clone(payload)}}, nil
}

func (s *singleton) Publish(ctx context.Context, name string, value []byte) error {
	if err := s.begin(ctx, "publish", name, value, bootstrap.MaxValue); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, ok := s.published[name]; ok {
		return fmt.Errorf("bootstrap: publish %q: %w", name, bootstrap.ErrPublished)
	}
	s.published[name] = bytes.Clone(value)
	s.changedLocked()
	return nil
}

func (s *singleton) Unpublish(ctx context.Context, name string) error {
	if err := s.begin(ctx, "unpublish", name, nil, 0); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if _, ok := s.published[name]; !ok {
		return fmt.Errorf("bootstrap: unpublish %q: %w", name, bootstrap.ErrNotPublished)
	}
	delete(s.published, name)
	return nil
}

func (s *singleton) Lookup(ctx context.Context, name string, wait bool) ([]byte, bool, error) {
	return s.await(ctx, "lookup", name, wait, s.published)
}

func (s *singleton) Psets(ctx context.Context) ([]string, error) {
	if err := s.begin(ctx, "psets", "", nil, 0); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return bootstrap.BuiltinPsets(), nil
}

func (s *singleton) Pset(ctx context.Context, name string) (bootstrap.PsetInfo, error) {
	if err := s.begin(ctx, "pset", name, nil, 0); err != nil {
		return bootstrap.PsetInfo{}, err
	}
	defer s.mu.Unlock()
	p, ok := bootstrap.BuiltinPset(s.id, name)
	if !ok {
		return p, fmt.Errorf("bootstrap: pset %q: %w: there are %s", name, framework.ErrPset, strings.Join(bootstrap.BuiltinPsets(), ", "))
	}
	return p, nil
}
