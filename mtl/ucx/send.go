package ucx

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ucp"
	"github.com/ferrympi/ferry/mtl"
)

// to returns the peer that something is sent to, with an endpoint. A peer whose endpoint has failed,
// without anybody's word that it is dead, has none.
func (m *module) to(to mtl.Endpoint) (*peer, error) {
	if m.broken != nil {
		return nil, m.broken
	}
	if int(to) >= len(m.peers) {
		return nil, errNobody
	}
	p := &m.peers[to]
	switch {
	case p.forgotten:
		return p, p.gone
	case p.gone != nil || p.ep.Made():
		return p, nil
	}
	return p, m.introduce(to)
}

// introduce makes the endpoint of a peer: the first message goes there. UCX finds out now
// whether the two have a transport in common.
func (m *module) introduce(to mtl.Endpoint) error {
	p := &m.peers[to]
	ep, err := m.worker.Connect(p.address, uint32(to), m.peerMode)
	if err == nil {
		p.ep = ep
		return nil
	}
	if e, ok := errors.AsType[*ucp.Error](err); ok && e.Code == ucp.Unreachable {
		err = fmt.Errorf("%w: no transport leads there: it has %s, and this process %s (error mode %s): %w", framework.ErrUnsupported, p.transports, m.transports, m.mode(), err)
	}
	return m.transportError("connect", to, err)
}

// Send implements mtl.Module. A short message costs one call of UCX, which usually has
// taken it when it returns; a longer one a pin as well.
func (m *module) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (done bool, err error) {
	if len(buf) <= ucp.Now && mode == mtl.Standard && int(to) < len(m.peers) {
		if p := &m.peers[to]; p.gone == nil && p.ep.Made() && m.broken == nil && m.worker.SendNow(p.ep, buf, tagOf(e)) {
			m.sent(to)
			return true, nil
		}
	}
	p, err := m.to(to)
	if err != nil {
		return false, err
	}
	if len(buf) > longest {
		return false, fmt.Errorf("%s: %d bytes, and %d are possible: %w", component, len(buf), longest, mtl.ErrTooLong)
	}
	k := send
	if mode == mtl.Synchronous {
		k = synchronous
	}
	return m.post(k, op, to, p, buf, tagOf(e))
}

func (m *module) SendControl(op *mtl.Op, to mtl.Endpoint, data []byte) (done bool, err error) {
	p, err := m.to(to)
	if err != nil {
		return false, err
	}
	if len(data) == 0 || len(data) > controlLimit {
		return false, fmt.Errorf("%s: a control message of %d bytes, and 1 to %d are possible: %w", component, len(data), controlLimit, mtl.ErrTooLong)
	}
	return m.post(send, op, to, p, data, control)
}

// post gives UCX a message.
func (m *module) post(k kind, op *mtl.Op, to mtl.Endpoint, p *peer, buf []byte, tag uint64) (done bool, err error) {
	if p.gone != nil {
		m.end(op, mtl.Result{Err: p.gone})
		return false, nil
	}
	s, err := m.next() // what UCX takes at once needs none
	if err != nil {
		return false, m.transportError("send", to, err)
	}
	if len(buf) > ucp.Short {
		m.pin(s, buf)
		s.known = m.registers
	}
	done, code := m.worker.Send(s.number, p.ep, buf, tag, k == synchronous)
	if code == 0 && !done {
		_, _ = m.take(k, op) // the same
		s.to, s.posted = to, true
		return false, nil
	}
	m.drop(s)
	if code != 0 { // the endpoint has failed
		m.end(op, mtl.Result{Err: m.codeError("send", to, code)})
		return false, nil
	}
	m.sent(to)
	if k == synchronous {
		m.end(op, mtl.Result{})
		return false, nil
	}
	return true, nil
}

// sent notes that there may be bytes for a peer which only this process can bring on
// their way.
func (m *module) sent(to mtl.Endpoint) {
	if p := &m.peers[to]; !p.dirty {
		p.dirty = true
		m.dirty = append(m.dirty, to)
	}
}

// Idle implements mtl.Module. Behind what UCX has taken goes a flush.
func (m *module) Idle() bool {
	if m.broken != nil {
		return true
	}
	for len(m.dirty) > 0 {
		to := m.dirty[len(m.dirty)-1]
		m.dirty = m.dirty[:len(m.dirty)-1]
		p := &m.peers[to]
		p.dirty = false
		if p.gone != nil || !p.ep.Made() {
			continue
		}
		s, err := m.take(flush, nil)
		if err != nil {
			continue // no memory: the messages go as they may
		}
		s.to = to
		if done, code := m.worker.Flush(s.number, p.ep); done || code != 0 {
			m.release(s) // an error means that the peer gets nothing any more
		} else {
			s.posted = true
		}
	}
	return m.sending == 0 && len(m.over) == 0
}

// Forget ends what was sent to a peer. In peer mode UCX lets go of the buffers at once, and
// otherwise when it may.
func (m *module) Forget(to mtl.Endpoint, why error) {
	p := &m.peers[to]
	if p.forgotten {
		return
	}
	p.forgotten = true
	m.forgotten++
	delete(m.known, p.Life)
	m.leave(to, m.transportError("send", to, why))
	m.abandonClaimed(to)
	m.check()
}

// leave has nothing go to a peer any more.
func (m *module) leave(to mtl.Endpoint, why error) {
	p := &m.peers[to]
	p.gone = why
	for _, s := range m.slots {
		if s.to != to || !s.kind.isSend() {
			continue
		}
		m.giveUp(s, why)
	}
	if !m.peerMode {
		return
	}
	// Closing the endpoint ends what came from there, too. UCX has one for that, which it gives
	// to who asks for one.
	if !p.ep.Made() && m.introduce(to) != nil {
		return
	}
	m.disconnect(p)
}

// disconnect closes the endpoint of a peer at once: what is in progress there ends.
func (m *module) disconnect(p *peer) {
	s, err := m.take(closing, nil)
	if err != nil {
		return // no memory: Close tries again
	}
	ep := p.ep
	p.ep = ucp.Endpoint{}
	if done, code := m.worker.Disconnect(s.number, ep); done || code != 0 {
		m.release(s)
		return
	}
	s.posted = true
}

// transportError says what has failed of which peer.
func (m *module) transportError(op string, to mtl.Endpoint, err error) error {
	e := &framework.TransportError{Component: component, Op: op, Err: err}
	if to != mtl.NoEndpoint {
		e.Peer = m.env.Worlds.Proc(m.peers[to].ID).String()
	}
	return e
}

func (m *module) codeError(op string, to mtl.Endpoint, code ucp.Status) error {
	err := errors.New(m.worker.Describe(code))
	if code == ucp.EndpointTimeout && to != mtl.NoEndpoint {
		err = fmt.Errorf("%w: it has %s, and this process %s; mtl.ucx.device_include chooses", err, m.peers[to].transports, m.transports)
	}
	return m.transportError(op, to, err)
}

func (m *module) Connect(p framework.Peer) (mtl.Endpoint, error) {
	if to, ok := m.known[p.Life]; ok {
		return to, nil
	}
	b, err := m.look(p)
	if err != nil {
		return 0, err
	}
	to := mtl.Endpoint(len(m.peers))
	m.peers = append(m.peers, peer{Life: p.Life, address: bytes.Clone(b.address), transports: b.transports})
	m.known[p.Life] = to
	return to, nil
}

func (m *module) Reach(peer framework.Peer) error {
	_, err := m.look(peer)
	return err
}

// look returns the entry of a peer that this module reaches, as far as can be said without
// asking UCX.
func (m *module) look(peer framework.Peer) (blob, error) {
	if m.broken != nil {
		return blob{}, m.broken
	}
	b, err := parseBlob(peer.Blob)
	switch {
	case err != nil:
		return b, fmt.Errorf("%s: %v: %w", component, peer.Proc, err)
	case b.life != peer.Life:
		return b, fmt.Errorf("%s: %v has the entry of another process in its business card", component, peer.Proc)
	case major(b.library) != major(m.version):
		return b, fmt.Errorf("%s: %w: %v has UCX %s, and this process UCX %s: they don't understand each other's addresses", component, framework.ErrUnsupported, peer.Proc, b.library, m.version)
	case b.offer != m.offer:
		return b, fmt.Errorf("%s: %w: %v has %q with %s, and this process %q with %s: mtl.ucx.provider_include and mtl.ucx.error_mode choose", component, framework.ErrUnsupported, peer.Proc, b.offer, b.transports, m.offer, m.transports)
	case m.node != "" && b.node != m.node:
		return b, fmt.Errorf("%s: %w: %v %s, and %s connects only processes of one node here", component, framework.ErrUnsupported, peer.Proc, m.medium.Difference(m.node, b.node), m.about.Provider)
	}
	return b, nil
}
