package btltest

import (
	"context"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Null returns a component that has each frame come back to the process that sent it, and
// does nothing else: what is measured over it is what is around a transport.
func Null() btl.Component {
	return null{framework.Basic{Kind: framework.BTL, Name: "null", Version: "1.0.0", Summary: "test: frames come back"}}
}

type null struct{ framework.Basic }

const (
	nullFrame  = 64 << 10
	nullFrames = 16 // on their way back, at most
)

func (null) Open(_ context.Context, env btl.Env) (btl.Module, error) {
	return &nullModule{env: env}, nil
}

type nullModule struct {
	env   btl.Env
	paths []*nullPath
}

func (m *nullModule) Caps() btl.Caps {
	return btl.Caps{EagerLimit: 8 << 10, FrameLimit: nullFrame, LatencyNS: 100, Device: "nothing"}
}

func (m *nullModule) Blob() []byte { return []byte{} }

func (m *nullModule) Reach(peer framework.Peer) error {
	if peer.Proc != m.env.Identity.Proc {
		return btl.NotMeant("serves only the process itself")
	}
	return nil
}

func (m *nullModule) Connect(peer framework.Peer) (btl.Endpoint, error) {
	if err := m.Reach(peer); err != nil {
		return nil, err
	}
	p := &nullPath{m: m, peer: peer.Life}
	m.paths = append(m.paths, p)
	return p, nil
}

func (m *nullModule) Poll() (n int) {
	for i := 0; i < len(m.paths); i++ {
		p := m.paths[i]
		if p.up == nil {
			p.up = m.env.Upcall.Accept(p.peer)
		}
		for ; p.first != p.next && !p.ended; n++ {
			frame := p.frames[p.first%nullFrames]
			if err := p.up.Frame(frame); err != nil {
				m.paths[i].ended = true
				m.env.Ended("btl null", p.peer, "receive", err)
				break
			}
			p.first++
		}
		if p.ended || p.closed {
			m.paths = append(m.paths[:i], m.paths[i+1:]...)
			i--
		}
	}
	return n
}

func (m *nullModule) Close() error { return nil }

// nullPath is a path to the process itself, and back.
type nullPath struct {
	m             *nullModule
	peer          framework.Life
	up            btl.Inbound
	frames        [nullFrames][]byte
	first, next   uint // of those on their way
	ended, closed bool
}

func (p *nullPath) Reserve(n int) []byte {
	if p.next-p.first == nullFrames || p.ended || p.closed {
		return nil
	}
	b := &p.frames[p.next%nullFrames]
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	return *b
}

func (p *nullPath) Commit(n int) {
	b := &p.frames[p.next%nullFrames]
	*b = (*b)[:n]
	p.next++
	p.m.env.Engine.Nudge() // nobody rings for what a process sends to itself
}

func (p *nullPath) Idle() bool { return p.first == p.next || p.ended }
func (p *nullPath) Close()     { p.closed = true }
