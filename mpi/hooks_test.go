package mpi_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/pml"
)

// recorder keeps the kinds of events on the user's plane.
type recorder struct {
	mu    sync.Mutex
	kinds []pml.EventKind
}

func (r *recorder) Event(e pml.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Plane == pml.PointToPoint && e.Tag == 42 {
		r.kinds = append(r.kinds, e.Kind)
	}
}

// function is hooks that can't be compared.
type function func(pml.Event)

func (f function) Event(e pml.Event) { f(e) }

func TestHooks_SeveralSessions_SeeAllMessages(t *testing.T) {
	r := &recorder{}
	s, c := singleton(t, mpi.WithHooks(r))
	if err := c.Send(t.Context(), []byte{1}, 0, 42); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Recv(t.Context(), make([]byte, 1), 0, 42); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	for _, want := range []pml.EventKind{pml.EventSend, pml.EventRecv, pml.EventMatch} {
		if n := len(slices.DeleteFunc(slices.Clone(r.kinds), func(k pml.EventKind) bool { return k != want })); n != 1 {
			t.Errorf("event %d was seen %d times", want, n)
		}
	}
	r.mu.Unlock()
	for name, opt := range map[string]mpi.SessionOption{
		"other":      mpi.WithHooks(&recorder{}),
		"a function": mpi.WithHooks(function(func(pml.Event) {})),
	} {
		if _, err := mpi.OpenSession(t.Context(), opt); !errors.Is(err, mpi.ErrConfig) {
			t.Errorf("a later session with %s hooks: %v", name, err)
		}
	}
	again, err := mpi.OpenSession(t.Context(), mpi.WithHooks(r))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(again.Close(), c.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// sticky is a PML with sends that cannot be withdrawn, as below an MTL. It calls begun at the start of each.
type sticky struct {
	pml.Component
	begun func()
}

func (c sticky) Open(ctx context.Context, env pml.Env) (pml.Module, error) {
	m, err := c.Component.Open(ctx, env)
	return stickyModule{m, c.begun}, err
}

type stickyModule struct {
	pml.Module
	begun func()
}

func (m stickyModule) Unwrap() any { return m.Module }

func (m stickyModule) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	c, err := m.Module.AddComm(spec)
	return stickyComm{c, m.begun}, err
}

type stickyComm struct {
	pml.Comm
	begun func()
}

func (c stickyComm) Send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	r, err := c.Isend(buf, dst, tag, plane, mode)
	if err != nil {
		return err
	}
	gen := r.Generation()
	c.begun()
	_, err = r.Wait(ctx, gen)
	if err != nil && r.Generation() == gen {
		return &pml.PendingError{Request: r, Cause: err}
	}
	return err
}

func TestSend_NotWithdrawable_ReturnsPendingError(t *testing.T) {
	standard, reg := components.Standard(), framework.NewRegistry()
	var begun func()
	for _, kind := range standard.Kinds() {
		for _, c := range standard.Components(kind) {
			if p, ok := c.(pml.Component); ok {
				c = sticky{p, func() { begun() }}
			}
			reg.Register(c)
		}
	}
	_, c := singleton(t, mpi.WithRegistry(reg), mpi.WithParam("pml", "ob1"))
	cause := errors.New("the user's cause")
	for what, send := range map[string]func(ctx context.Context) error{
		"Ssend": func(ctx context.Context) error { return c.Ssend(ctx, []byte("late"), 0, 1) },
		"Sendrecv": func(ctx context.Context) error {
			_, err := c.Sendrecv(ctx, make([]byte, 1<<20), 0, 1, nil, 0, 2)
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		begun = func() { cancel(cause) }
		err := send(ctx)
		var p *mpi.PendingError
		if !errors.As(err, &p) || !errors.Is(err, mpi.ErrPending) || !errors.Is(err, mpi.ErrCanceled) || !errors.Is(err, cause) {
			t.Fatalf("%s: %v", what, err)
		}
		if _, done, err := p.Request.Test(); done || err != nil {
			t.Errorf("%s: the request: %v, %v", what, done, err)
		}
		if _, err := c.Recv(t.Context(), make([]byte, 1<<20), 0, 1); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := p.Request.Wait(t.Context()); err != nil {
			t.Errorf("%s: the request: %v", what, err)
		}
	}
}
