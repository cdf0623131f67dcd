package mpi_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// bus delivers revocations.
type bus struct {
	mu      sync.Mutex
	clients map[framework.Proc]*client
}

// client is a member of a bus.
type client struct {
	bootstrap.Client
	bootstrap.EventSource
	bus *bus
	mu  sync.Mutex
	f   func(bootstrap.Event)
}

func (b *bus) client(inner bootstrap.Client) *client {
	events, _ := framework.As[bootstrap.EventSource](inner)
	c := &client{Client: inner, EventSource: events, bus: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.clients == nil {
		b.clients = map[framework.Proc]*client{}
	}
	b.clients[inner.Identity().Proc] = c
	return c
}

func (c *client) Unwrap() any { return c.Client }

func (c *client) OnEvent(f func(bootstrap.Event)) {
	c.mu.Lock()
	c.f = f
	c.mu.Unlock()
	c.EventSource.OnEvent(f)
}

func (c *client) deliver(ev bootstrap.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.f != nil {
		c.f(ev)
	}
}

func (c *client) Revoke(id cid.Extended, members []framework.Proc) error {
	self := c.Client.Identity().Proc
	for _, p := range members {
		c.bus.mu.Lock()
		to := c.bus.clients[p]
		c.bus.mu.Unlock()
		if p != self && to != nil {
			to.deliver(bootstrap.Event{Kind: bootstrap.Revoked, Proc: self, Comm: id})
		}
	}
	return nil
}

// revocable runs a job over a bus.
func revocable(t *testing.T, j mpitest.Job, f func(ctx context.Context, world *mpi.Comm) error) {
	t.Helper()
	b := new(bus)
	program := worldProgram(func(ctx context.Context, _ *mpi.Session, world *mpi.Comm) error { return f(ctx, world) })
	j.RunSessions(t, program.over(func(ctx context.Context, opts ...mpi.SessionOption) (*mpi.Session, error) {
		return mpitest.Open(ctx, append(opts, mpi.WithBootstrap(b.client(mpitest.Client(ctx))))...)
	}))
}
