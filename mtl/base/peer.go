package base

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// Peer is the part of a connected process that every MTL has. Peers are never removed from a module.
type Peer struct {
	framework.Incarnation
	// SendErr is the error of all further sends; nil while the peer takes messages.
	SendErr     error
	IsForgotten bool
	// isUnflushed is set while the peer is in Module.unflushedPeers.
	isUnflushed bool
	isUnknown   bool
}

// NoPeer returns the peer of mtl.NoEndpoint. Its SendErr is the error of operations with an endpoint that Connect did not return.
func (m *Module) NoPeer() Peer {
	return Peer{SendErr: m.errUnknown, IsForgotten: true, isUnknown: true}
}

// AddPeer returns the peer of a new endpoint.
func (m *Module) AddPeer(i framework.Incarnation, to mtl.Endpoint) Peer {
	m.Endpoints[i] = to
	return Peer{Incarnation: i}
}

// ForgetPeer sets the error of further sends to a peer. It returns false if the peer was forgotten before. The caller ends the sends in
// progress.
func (m *Module) ForgetPeer(p *Peer, why error) bool {
	if p.IsForgotten {
		return false
	}
	p.IsForgotten, p.SendErr = true, m.TransportError("send", p, why)
	delete(m.Endpoints, p.Incarnation)
	return true
}

// CheckSource validates the source of a receive or a probe of a module with n peers. It returns mtl.NoEndpoint for any source.
func (m *Module) CheckSource(from mtl.Endpoint, e mtl.Envelope, n int) (mtl.Endpoint, error) {
	switch {
	case m.Err != nil:
		return mtl.NoEndpoint, m.Err
	case e.Source == mtl.AnySource:
		return mtl.NoEndpoint, nil
	case from == mtl.NoEndpoint || int(from) >= n:
		return mtl.NoEndpoint, m.errUnknown
	}
	return from, nil
}

// MarkUnflushed records that the library may hold bytes for a peer, which leave only if this process polls.
func (m *Module) MarkUnflushed(p *Peer, to mtl.Endpoint) {
	if !p.isUnflushed {
		p.isUnflushed = true
		m.unflushedPeers = append(m.unflushedPeers, to)
	}
}

// MarkFlushed reverses MarkUnflushed. IdleAfter has removed the peer from the list.
func (p *Peer) MarkFlushed() { p.isUnflushed = false }

// errLeft is the reason for a lost message of a former member.
var errLeft = errors.New("it has left the communicator")

// LostClaim returns the error of a claimed message of n bytes that is lost, or nil. Its sender p is disconnected and still had a part
// of it. p is NoPeer for a former member of the communicator.
func (m *Module) LostClaim(p *Peer, n int64) error {
	if p.SendErr == nil || n <= m.Capabilities.Eager {
		return nil
	}
	why := p.SendErr
	if p.isUnknown {
		why = errLeft
	}
	return m.TransportError("receive", p, fmt.Errorf("some of %d bytes were still with their sender: %w", n, why))
}
