package ucx

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
)

// peerForSend returns a peer with an endpoint. A peer that failed without Forget is returned without an error, and has
// no endpoint.
func (m *module) peerForSend(to mtl.Endpoint) (*peer, error) {
	if m.err != nil {
		return nil, m.err
	}
	if int(to) >= len(m.peers.all) {
		return nil, errUnknownEndpoint
	}
	p := &m.peers.all[to]
	switch {
	case p.isForgotten:
		return p, p.sendErr
	case p.sendErr != nil || p.ep.IsValid():
		return p, nil
	}
	return p, m.connectPeer(to)
}

// connectPeer makes the endpoint of a peer. UCX selects a common transport now, or reports that there is none.
func (m *module) connectPeer(to mtl.Endpoint) error {
	p := &m.peers.all[to]
	ep, err := m.worker.Connect(p.address, uint32(to), m.peerMode)
	if err == nil {
		p.ep = ep
		return nil
	}
	if e, ok := errors.AsType[*ucp.Error](err); ok && e.Code == ucp.Unreachable {
		err = fmt.Errorf("%w: no transport leads there: it has %s, and this process %s (error mode %s): %w", framework.ErrUnsupported, p.transports, m.transports, m.errorMode(), err)
	}
	return m.transportError("connect", to, err)
}

// Send implements mtl.Module. A short message costs one call of UCX, which usually completes it. A longer one also needs
// a pin.
func (m *module) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (done bool, err error) {
	if len(buf) <= ucp.MaxSendNow && mode == mtl.Standard && int(to) < len(m.peers.all) {
		if p := &m.peers.all[to]; p.sendErr == nil && p.ep.IsValid() && m.err == nil && m.worker.SendNow(p.ep, buf, tagOf(e)) {
			m.markUnflushed(to)
			return true, nil
		}
	}
	p, err := m.peerForSend(to)
	if err != nil {
		return false, err
	}
	if len(buf) > maxMessage {
		return false, fmt.Errorf("%s: %d bytes, and %d are possible: %w", component, len(buf), maxMessage, mtl.ErrTooLong)
	}
	k := slotSend
	if mode == mtl.Synchronous {
		k = slotSyncSend
	}
	return m.postSend(k, op, to, p, buf, tagOf(e))
}

func (m *module) SendControl(op *mtl.Op, to mtl.Endpoint, data []byte) (done bool, err error) {
	p, err := m.peerForSend(to)
	if err != nil {
		return false, err
	}
	if len(data) == 0 || len(data) > controlLimit {
		return false, fmt.Errorf("%s: a control message of %d bytes, and 1 to %d are possible: %w", component, len(data), controlLimit, mtl.ErrTooLong)
	}
	return m.postSend(slotSend, op, to, p, data, controlTag)
}

// postSend passes a message to UCX.
func (m *module) postSend(k slotKind, op *mtl.Op, to mtl.Endpoint, p *peer, buf []byte, tag uint64) (done bool, err error) {
	if p.sendErr != nil {
		m.queueResult(op, mtl.Result{Err: p.sendErr})
		return false, nil
	}
	s, err := m.nextSlot() // Taken only if UCX does not complete the send at once.
	if err != nil {
		return false, m.transportError("send", to, err)
	}
	if len(buf) > ucp.MaxCopied {
		m.pin(s, buf)
		s.isRegistered = m.registersMemory
	}
	done, code := m.worker.Send(s.number, p.ep, buf, tag, k == slotSyncSend)
	if code == 0 && !done {
		_, _ = m.takeSlot(k, op) // Returns s.
		s.peer, s.isPosted = to, true
		return false, nil
	}
	m.unpinIfPinned(s)
	if code != 0 { // The endpoint has failed.
		m.queueResult(op, mtl.Result{Err: m.codeError("send", to, code)})
		return false, nil
	}
	m.markUnflushed(to)
	if k == slotSyncSend {
		m.queueResult(op, mtl.Result{})
		return false, nil
	}
	return true, nil
}

// markUnflushed records that UCX may hold bytes for a peer, which leave only if this process polls.
func (m *module) markUnflushed(to mtl.Endpoint) {
	if p := &m.peers.all[to]; !p.isUnflushed {
		p.isUnflushed = true
		m.peers.unflushed = append(m.peers.unflushed, to)
	}
}

// Idle implements mtl.Module. It flushes the peers for which UCX may hold messages.
func (m *module) Idle() bool {
	if m.err != nil {
		return true
	}
	for len(m.peers.unflushed) > 0 {
		to := m.peers.unflushed[len(m.peers.unflushed)-1]
		m.peers.unflushed = m.peers.unflushed[:len(m.peers.unflushed)-1]
		p := &m.peers.all[to]
		p.isUnflushed = false
		if p.sendErr != nil || !p.ep.IsValid() {
			continue
		}
		s, err := m.takeSlot(slotFlush, nil)
		if err != nil {
			continue // Out of memory: the messages are not flushed.
		}
		s.peer = to
		if done, code := m.worker.Flush(s.number, p.ep); done || code != 0 {
			m.releaseSlot(s) // After an error the peer is unreachable.
		} else {
			s.isPosted = true
		}
	}
	return m.slots.activeSends == 0 && len(m.results.pending) == 0
}

// Forget implements mtl.Module. In peer mode UCX releases the buffers of its sends at once, and otherwise
// when they complete.
func (m *module) Forget(to mtl.Endpoint, why error) {
	p := &m.peers.all[to]
	if p.isForgotten {
		return
	}
	p.isForgotten = true
	m.peers.forgotten++
	delete(m.peers.byIncarnation, p.Incarnation)
	m.disconnectPeer(to, m.transportError("send", to, why))
	m.abandonClaimedReceives(to)
	m.checkQueue()
}

// disconnectPeer ends all sends to a peer, also later ones.
func (m *module) disconnectPeer(to mtl.Endpoint, why error) {
	p := &m.peers.all[to]
	p.sendErr = why
	for _, s := range m.slots.all {
		if s.peer != to || !s.kind.isSend() {
			continue
		}
		m.abandonOp(s, why)
	}
	if !m.peerMode {
		return
	}
	// Closing the endpoint also ends receives from the peer. If the peer has connected, UCX has an endpoint, which Connect
	// returns.
	if !p.ep.IsValid() && m.connectPeer(to) != nil {
		return
	}
	m.closeEndpoint(p)
}

// closeEndpoint closes the endpoint of a peer at once. Its operations in progress end.
func (m *module) closeEndpoint(p *peer) {
	s, err := m.takeSlot(slotClosing, nil)
	if err != nil {
		return // Out of memory. Close tries again.
	}
	ep := p.ep
	p.ep = ucp.Endpoint{}
	if done, code := m.worker.Disconnect(s.number, ep); done || code != 0 {
		m.releaseSlot(s)
		return
	}
	s.isPosted = true
}

func (m *module) transportError(op string, to mtl.Endpoint, err error) error {
	e := &framework.TransportError{Component: component, Op: op, Err: err}
	if to != mtl.NoEndpoint {
		e.Peer = m.env.Worlds.Proc(m.peers.all[to].ID).String()
	}
	return e
}

func (m *module) codeError(op string, to mtl.Endpoint, code ucp.Status) error {
	err := errors.New(m.worker.Describe(code))
	if code == ucp.EndpointTimeout && to != mtl.NoEndpoint {
		err = fmt.Errorf("%w: it has %s, and this process %s; mtl.ucx.device_include chooses", err, m.peers.all[to].transports, m.transports)
	}
	return m.transportError(op, to, err)
}

func (m *module) Connect(p framework.Peer) (mtl.Endpoint, error) {
	if to, ok := m.peers.byIncarnation[p.Incarnation]; ok {
		return to, nil
	}
	b, err := m.checkReach(p)
	if err != nil {
		return 0, err
	}
	to := mtl.Endpoint(len(m.peers.all))
	m.peers.all = append(m.peers.all, peer{Incarnation: p.Incarnation, address: bytes.Clone(b.address), transports: b.transports})
	m.peers.byIncarnation[p.Incarnation] = to
	return to, nil
}

func (m *module) Reach(peer framework.Peer) error {
	_, err := m.checkReach(peer)
	return err
}

// checkReach returns the card entry of peer, or the reason why this module cannot reach it, as far as that is known without
// UCX.
func (m *module) checkReach(peer framework.Peer) (cardEntry, error) {
	if m.err != nil {
		return cardEntry{}, m.err
	}
	b, err := parseCardEntry(peer.Blob)
	switch {
	case err != nil:
		return b, fmt.Errorf("%s: %v: %w", component, peer.Proc, err)
	case b.incarnation != peer.Incarnation:
		return b, fmt.Errorf("%s: %v has the entry of another process in its business card", component, peer.Proc)
	case majorVersion(b.library) != majorVersion(m.version):
		return b, fmt.Errorf("%s: %w: %v has UCX %s, and this process UCX %s: they don't understand each other's addresses", component, framework.ErrUnsupported, peer.Proc, b.library, m.version)
	case b.offer != m.offer:
		return b, fmt.Errorf("%s: %w: %v has %q with %s, and this process %q with %s: mtl.ucx.provider_include and mtl.ucx.error_mode choose", component, framework.ErrUnsupported, peer.Proc, b.offer, b.transports, m.offer, m.transports)
	case m.nodeProof != "" && b.node != m.nodeProof:
		return b, fmt.Errorf("%s: %w: %v %s, and %s connects only processes of one node here", component, framework.ErrUnsupported, peer.Proc, m.medium.Difference(m.nodeProof, b.node), m.description.Provider)
	}
	return b, nil
}
