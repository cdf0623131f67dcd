package btltest

import (
	"context"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Null returns a component that delivers each frame to its sender without a copy. Measurements over
// it show the cost around a transport.
func Null() btl.Component {
	return nullComponent{framework.Basic{Kind: framework.BTL, Name: "null", Version: "1.0.0", Summary: "test: returns each frame to its sender"}}
}

type nullComponent struct{ framework.Basic }

const (
	nullFrame  = 64 << 10
	nullFrames = 16 // Limit of pending frames.
)

func (nullComponent) Open(_ context.Context, env btl.Env) (btl.Module, error) {
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
	p := &nullPath{module: m, peer: peer.Incarnation}
	m.paths = append(m.paths, p)
	return p, nil
}

func (m *nullModule) Poll() (n int) {
	for i := 0; i < len(m.paths); i++ {
		p := m.paths[i]
		if p.receiver == nil {
			p.receiver = m.env.Upcall.Accept(p.peer)
		}
		for ; p.oldestPending != p.nextSequence && !p.isEnded; n++ {
			frame := p.frameRing[p.oldestPending%nullFrames]
			if err := p.receiver.Frame(frame); err != nil {
				m.paths[i].isEnded = true
				m.env.Ended("btl null", p.peer, "receive", err)
				break
			}
			p.oldestPending++
		}
		if p.isEnded || p.isClosed {
			m.paths = append(m.paths[:i], m.paths[i+1:]...)
			i--
		}
	}
	return n
}

func (m *nullModule) Close() error { return nil }

// nullPath is a path of the process to itself.
type nullPath struct {
	module    *nullModule
	peer      framework.Incarnation
	receiver  btl.Inbound
	frameRing [nullFrames][]byte
	// Sequence numbers of frames.
	oldestPending, nextSequence uint
	isEnded, isClosed           bool
}

func (p *nullPath) Reserve(n int, _ btl.Placement) []byte {
	if p.nextSequence-p.oldestPending == nullFrames || p.isEnded || p.isClosed {
		return nil
	}
	b := &p.frameRing[p.nextSequence%nullFrames]
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	return *b
}

func (p *nullPath) Commit(n int) {
	b := &p.frameRing[p.nextSequence%nullFrames]
	*b = (*b)[:n]
	p.nextSequence++
	p.module.env.Engine.Nudge() // No bell rings for frames of the process itself.
}

func (p *nullPath) Idle() bool { return p.oldestPending == p.nextSequence || p.isEnded }
func (p *nullPath) Close()     { p.isClosed = true }
