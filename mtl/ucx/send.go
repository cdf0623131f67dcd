package ucx

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
)

// peerForSend returns a peer with an endpoint. A peer that failed without Forget is returned without an error, and has
// no endpoint.
func (m *module) peerForSend(to mtl.Endpoint) (*peer, error) {
	if m.Err != nil {
		return nil, m.Err
	}
	if int(to) >= len(m.peersByEndpoint) {
		to = mtl.NoEndpoint
	}
	p := &m.peersByEndpoint[to]
	switch {
	case p.IsForgotten:
		return p, p.SendErr
	case p.SendErr != nil || p.ep.IsValid():
		return p, nil
	}
	return p, m.connectPeer(to)
}

// connectPeer makes the endpoint of a peer. UCX selects a common transport now, or reports that there is none.
func (m *module) connectPeer(to mtl.Endpoint) error {
	p := &m.peersByEndpoint[to]
	ep, err := m.worker.Connect(p.workerAddress, uint32(to), m.transportTraits.isPeerMode)
	if err == nil {
		p.ep = ep
		return nil
	}
	if e, ok := errors.AsType[*ucp.Error](err); ok && e.Code == ucp.Unreachable {
		err = fmt.Errorf("%w: no transport leads there: it has %s, and this process %s (error mode %s): %w", framework.ErrUnsupported, p.transportNames, m.transportTraits.transportNames, m.errorMode(), err)
	}
	return m.transportError("connect", to, err)
}

// Send implements mtl.Module. A short message costs one call of UCX, which usually completes it. A longer one also needs
// a pin.
func (m *module) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (done bool, err error) {
	if len(buf) <= ucp.MaxSendNow && mode == mtl.Standard && int(to) < len(m.peersByEndpoint) {
		if p := &m.peersByEndpoint[to]; p.SendErr == nil && p.ep.IsValid() && m.Err == nil && m.worker.SendNow(p.ep, buf, tagOf(e)) {
			m.MarkUnflushed(&p.Peer, to)
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
	k := base.SlotSend
	if mode == mtl.Synchronous {
		k = base.SlotSyncSend
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
	return m.postSend(base.SlotSend, op, to, p, data, controlTag)
}

// postSend passes a message to UCX.
func (m *module) postSend(k base.SlotKind, op *mtl.Op, to mtl.Endpoint, p *peer, buf []byte, tag uint64) (done bool, err error) {
	if p.SendErr != nil {
		m.QueueResult(op, mtl.Result{Err: p.SendErr})
		return false, nil
	}
	s, err := m.nextSlot() // Taken only if UCX does not complete the send at once.
	if err != nil {
		return false, m.transportError("send", to, err)
	}
	if len(buf) > ucp.MaxCopied {
		m.pin(s, buf)
		s.isRegistered = m.transportTraits.registersMemory
	}
	done, code := m.worker.Send(s.Number, p.ep, buf, tag, k == base.SlotSyncSend)
	if code == 0 && !done {
		_, _ = m.takeSlot(k, op) // Returns s.
		s.Peer, s.IsPosted = to, true
		return false, nil
	}
	m.unpinIfPinned(s)
	if code != 0 { // The endpoint has failed.
		m.QueueResult(op, mtl.Result{Err: m.codeError("send", to, code)})
		return false, nil
	}
	m.MarkUnflushed(&p.Peer, to)
	if k == base.SlotSyncSend {
		m.QueueResult(op, mtl.Result{})
		return false, nil
	}
	return true, nil
}

// Idle implements mtl.Module. It flushes the peers for which UCX may hold messages.
func (m *module) Idle() bool { return m.IdleAfter(m.flushPeer) }

func (m *module) flushPeer(to mtl.Endpoint) {
	p := &m.peersByEndpoint[to]
	p.MarkFlushed()
	if p.SendErr != nil || !p.ep.IsValid() {
		return
	}
	s, err := m.takeSlot(base.SlotFlush, nil)
	if err != nil {
		return // Without memory the messages are not flushed.
	}
	s.Peer = to
	if done, code := m.worker.Flush(s.Number, p.ep); done || code != 0 {
		m.releaseSlot(s) // After an error the peer is unreachable.
	} else {
		s.IsPosted = true
	}
}

// Forget implements mtl.Module. In peer mode UCX releases the buffers of its sends at once, and otherwise
// when they complete.
func (m *module) Forget(to mtl.Endpoint, why error) {
	p := &m.peersByEndpoint[to]
	if !m.ForgetPeer(&p.Peer, why) {
		return
	}
	m.canceledReceives.forgottenPeers++
	m.disconnectPeer(to, p.SendErr)
	m.abandonClaimedReceives(to)
	m.checkQueue()
}

// disconnectPeer ends all sends to a peer, also later ones.
func (m *module) disconnectPeer(to mtl.Endpoint, why error) {
	p := &m.peersByEndpoint[to]
	p.SendErr = why
	for _, s := range m.slotsByNumber {
		if s.Peer != to || !s.Kind.IsSend() {
			continue
		}
		m.Abandon(&s.Slot, why)
	}
	if !m.transportTraits.isPeerMode {
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
	if done, code := m.worker.Disconnect(s.Number, ep); done || code != 0 {
		m.releaseSlot(s)
		return
	}
	s.IsPosted = true
}

func (m *module) transportError(op string, to mtl.Endpoint, err error) error {
	return m.TransportError(op, &m.peersByEndpoint[to].Peer, err)
}

func (m *module) codeError(op string, to mtl.Endpoint, code ucp.Status) error {
	err := errors.New(m.worker.Describe(code))
	if code == ucp.EndpointTimeout && to != mtl.NoEndpoint {
		err = fmt.Errorf("%w: it has %s, and this process %s; mtl.ucx.device_include chooses", err, m.peersByEndpoint[to].transportNames, m.transportTraits.transportNames)
	}
	return m.transportError(op, to, err)
}

func (m *module) Connect(p framework.Peer) (mtl.Endpoint, error) {
	if to, ok := m.Endpoints[p.Incarnation]; ok {
		return to, nil
	}
	b, err := m.checkReach(p)
	if err != nil {
		return 0, err
	}
	to := mtl.Endpoint(len(m.peersByEndpoint))
	m.peersByEndpoint = append(m.peersByEndpoint, peer{Peer: m.AddPeer(p.Incarnation, to), workerAddress: bytes.Clone(b.workerAddress), transportNames: b.transportNames})
	return to, nil
}

func (m *module) Reach(peer framework.Peer) error {
	_, err := m.checkReach(peer)
	return err
}

// checkReach returns the card entry of peer, or the reason why this module cannot reach it, as far as that is known without
// UCX.
func (m *module) checkReach(peer framework.Peer) (cardEntry, error) {
	if m.Err != nil {
		return cardEntry{}, m.Err
	}
	b, err := parseCardEntry(peer.Blob)
	switch {
	case err != nil:
		return b, fmt.Errorf("%s: %v: %w", component, peer.Proc, err)
	case b.incarnation != peer.Incarnation:
		return b, fmt.Errorf("%s: %v has the entry of another process in its business card", component, peer.Proc)
	case majorVersion(b.libraryVersion) != majorVersion(m.transportTraits.libraryVersion):
		return b, fmt.Errorf("%s: %w: %v has UCX %s, and this process UCX %s: they don't understand each other's addresses", component, framework.ErrUnsupported, peer.Proc, b.libraryVersion, m.transportTraits.libraryVersion)
	case b.offer != m.Card.Offer:
		return b, fmt.Errorf("%s: %w: %v has %q with %s, and this process %q with %s: mtl.ucx.provider_include and mtl.ucx.error_mode choose", component, framework.ErrUnsupported, peer.Proc, b.offer, b.transportNames, m.Card.Offer, m.transportTraits.transportNames)
	case m.Card.NodeProof != "" && b.nodeProof != m.Card.NodeProof:
		return b, fmt.Errorf("%s: %w: %v %s, and %s connects only processes of one node here", component, framework.ErrUnsupported, peer.Proc, m.Card.Medium.Difference(m.Card.NodeProof, b.nodeProof), m.Description.Provider)
	}
	return b, nil
}
