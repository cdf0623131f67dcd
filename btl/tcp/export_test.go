package tcp

import (
	"context"
	"math/rand/v2"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Smallest sets the smallest limits that the parameters allow.
func Smallest(_ int, p any) {
	q := p.(*params)
	q.Window, q.EagerLimit, q.FrameLimit = 4<<10, 64, 256
}

// TLS sets the security.
func TLS(_ int, p any) { p.(*params).Security = "tls" }

// SmallestTLS is both.
func SmallestTLS(rank int, p any) {
	Smallest(rank, p)
	TLS(rank, p)
}

// Links sets how many links there are.
func Links(n int) func(int, any) { return func(_ int, p any) { p.(*params).LinkCount = n } }

// Breaking is the component with connections that break in about one of One polls with events.
type Breaking struct {
	btl.Component
	Seed uint64
	One  int
	Cuts atomic.Int64 // so far
}

// Unwrap returns the component behind.
func (b *Breaking) Unwrap() any { return b.Component }

// Open implements btl.Component.
func (b *Breaking) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	m, err := b.Component.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	return &breaking{m.(*module), b, rand.New(rand.NewPCG(b.Seed, env.Self.Nonce))}, nil
}

type breaking struct {
	*module
	b   *Breaking
	rnd *rand.Rand
}

// Unwrap returns the module.
func (m *breaking) Unwrap() any { return m.module }

// Poll implements progress.Source.
func (m *breaking) Poll() int {
	n := m.module.Poll()
	if n == 0 || m.rnd.IntN(m.b.One) != 0 {
		return n
	}
	for _, p := range m.peers.byIncarnation {
		for _, l := range p.linksBySlot {
			if l != nil && m.rnd.IntN(2) == 0 {
				how := unix.SHUT_RDWR
				if m.rnd.IntN(2) == 0 {
					how = unix.SHUT_WR
				}
				unix.Shutdown(l.fd, how)
				m.b.Cuts.Add(1)
			}
		}
	}
	return n
}

// Placed is the component with modules on separate hosts. On runs the calls there that make sockets or
// list addresses.
type Placed struct {
	btl.Component
	On func(rank uint32, f func())
}

// Unwrap returns the component behind.
func (c Placed) Unwrap() any { return c.Component }

// Open implements btl.Component.
func (c Placed) Open(ctx context.Context, env btl.Env) (m btl.Module, err error) {
	rank := env.Identity.Proc.Rank
	c.On(rank, func() { m, err = c.Component.Open(ctx, env) })
	if err != nil {
		return nil, err
	}
	return &placed{m.(*module), func(f func()) { c.On(rank, f) }}, nil
}

type placed struct {
	*module
	on func(f func())
}

// Unwrap returns the module.
func (m *placed) Unwrap() any { return m.module }

// Poll implements progress.Source.
func (m *placed) Poll() (n int) {
	if m.pacer.pollsUntilSockets > 1 && !m.env.Bell().Armed() { // it does not look at its sockets
		return m.module.Poll()
	}
	m.on(func() { n = m.module.Poll() })
	return n
}

// PollAll implements btl.FullPoller.
func (m *placed) PollAll() (n int) {
	m.on(func() { n = m.module.PollAll() })
	return n
}

// Reach implements btl.Module.
func (m *placed) Reach(peer framework.Peer) (err error) {
	m.on(func() { err = m.module.Reach(peer) })
	return err
}

// Connect implements btl.Module.
func (m *placed) Connect(peer framework.Peer) (e btl.Endpoint, err error) {
	m.on(func() { e, err = m.module.Connect(peer) })
	return e, err
}
