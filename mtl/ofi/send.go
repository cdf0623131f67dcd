package ofi

import (
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// Send implements mtl.Module. A message up to the provider's inject size costs one call of libfabric, which
// copies it. A longer one also needs a slot and a pin.
func (m *module) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (done bool, err error) {
	if err := m.checkSend(to); err != nil {
		return false, err
	}
	p := &m.peerTable.peersByEndpoint[to]
	tag, data := m.tagLayout.send(e, mode)
	var flags libfabric.Kind
	if m.tagLayout.hasSourceData {
		flags = libfabric.WithData
	}
	k := base.SlotSend
	if mode == mtl.Synchronous {
		k = base.SlotSyncSend
	} else if len(buf) <= m.Capabilities.Inject && p.blockedSends.head == nil && m.offloader.activeCall == nil && p.contactStage == connected {
		switch code := m.ep.TSend(0, buf, p.addressIndex, tag, data, flags|libfabric.Inject); code {
		case 0:
			m.MarkUnflushed(&p.Peer, to)
			return true, nil
		case libfabric.Again:
		default:
			return false, m.callError("send", to, code)
		}
	}
	if int64(len(buf)) > m.Capabilities.MaxMessage {
		return false, fmt.Errorf("%s: %d bytes, and %s takes at most %d: %w", component, len(buf), m.Description.Provider, m.Capabilities.MaxMessage, mtl.ErrTooLong)
	}
	s, err := m.takeSlot(k, op, buf)
	if err != nil {
		return false, m.transportError("send", to, err)
	}
	s.Peer, s.addressIndex, s.tag, s.bits, s.flags = to, p.addressIndex, tag, data, flags
	return false, m.startSend(s)
}

func (m *module) SendControl(op *mtl.Op, to mtl.Endpoint, data []byte) (done bool, err error) {
	if err := m.checkSend(to); err != nil {
		return false, err
	}
	if len(data) == 0 || len(data) > controlLimit {
		return false, fmt.Errorf("%s: a control message of %d bytes, and 1 to %d are possible: %w", component, len(data), controlLimit, mtl.ErrTooLong)
	}
	return m.sendFrame(base.SlotControl, op, to, append(append(m.controlReceives.injectBuf[:0], frameControl), data...))
}

// sendFrame sends a control frame. It copies a frame that cannot be injected at once. Control messages and acks
// overtake blocked messages, because the peer may need them before it receives the messages that fill the
// provider's queue. A flush frame overtakes nothing.
func (m *module) sendFrame(k base.SlotKind, op *mtl.Op, to mtl.Endpoint, frame []byte) (done bool, err error) {
	p := &m.peerTable.peersByEndpoint[to]
	if k != base.SlotFlush && len(frame) <= m.Capabilities.Inject && m.offloader.activeCall == nil && p.contactStage == connected {
		switch code := m.ep.Send(0, frame, p.addressIndex, libfabric.Inject); code {
		case 0:
			m.setAccepting(p, true)
			m.MarkUnflushed(&p.Peer, to)
			return true, nil
		case libfabric.Again:
		default:
			return false, m.callError("send", to, code)
		}
	}
	s, err := m.takeSlot(k, op, nil)
	if err != nil {
		return false, m.transportError("send", to, err)
	}
	if s.frameBuf == nil {
		s.frameBuf = make([]byte, 0, controlFrameSize)
	}
	s.frameBuf = append(s.frameBuf[:0], frame...)
	s.Pin(s.frameBuf)
	s.Peer, s.addressIndex = to, p.addressIndex
	return false, m.startSend(s)
}

func (m *module) callError(op string, to mtl.Endpoint, code libfabric.Errno) error {
	return m.transportError(op, to, errors.New(m.errnoText(code)))
}

// startSend starts a send. If the provider has no space, it queues the send behind the blocked sends of the peer,
// or before them if it may overtake (sendFrame). After an error nothing was started.
func (m *module) startSend(s *slot) error {
	p := &m.peerTable.peersByEndpoint[s.Peer]
	mayOvertake := s.Kind == base.SlotControl || s.Kind == base.SlotSyncAck
	if mayOvertake || p.blockedSends.head == nil {
		code := m.postOp(s)
		if code == 0 {
			m.setAccepting(p, true)
			m.trackSend(s)
			return nil
		}
		if code != libfabric.Again {
			err := m.callError("send", s.Peer, code)
			m.releaseSlot(s)
			return err
		}
		m.noteRefusal(p)
	}
	if s.Kind == base.SlotFlush {
		s.queuedAt = time.Now()
	}
	if mayOvertake {
		p.blockedSends.pushFirst(s)
	} else {
		p.blockedSends.push(s)
	}
	if !p.isBlocked {
		p.isBlocked = true
		m.peerTable.blockedPeers = append(m.peerTable.blockedPeers, s.Peer)
	}
	return nil
}

// trackSend follows a send that libfabric has accepted. It ends an injected one, for which there is no
// completion, and adds a synchronous one to the unacked sends. It must be called in the order of the sends.
func (m *module) trackSend(s *slot) {
	switch {
	case !s.IsPosted:
		m.MarkUnflushed(&m.peerTable.peersByEndpoint[s.Peer].Peer, s.Peer)
		m.endOp(s, mtl.Result{})
	case s.Kind == base.SlotSyncSend:
		m.awaitAck(s)
	}
}

// peersPerRetry is the largest number of blocked peers that one Poll retries, so that many unresponsive
// peers don't slow down polling.
const peersPerRetry = 16

// flushPatience is the time limit of a blocked flush frame. A provider that reconnects for each message refuses the
// frame for ever if the peer has closed. Nothing is left to flush then.
const flushPatience = 200 * time.Millisecond

// retryBlocked starts blocked sends as far as the provider has space.
func (m *module) retryBlocked() {
	t := &m.peerTable
	for range min(peersPerRetry, len(t.blockedPeers)) {
		if t.blockedCursor++; t.blockedCursor >= len(t.blockedPeers) {
			t.blockedCursor = 0
		}
		to := t.blockedPeers[t.blockedCursor]
		p := &t.peersByEndpoint[to]
		// A peer without blocked sends leaves the list one Poll after its last send, because that send's
		// refusals may have started a connection.
		if p.blockedSends.head == nil {
			p.isBlocked = false
			m.setAccepting(p, true)
			n := len(t.blockedPeers) - 1
			t.blockedPeers[t.blockedCursor] = t.blockedPeers[n]
			t.blockedPeers = t.blockedPeers[:n]
			continue
		}
		m.retryPeer(to, p)
	}
}

// retryPeer starts the blocked sends of a peer until the provider refuses one. If the peer has accepted nothing for
// connectTimeout, it fails the sends.
func (m *module) retryPeer(to mtl.Endpoint, p *peer) {
	for p.blockedSends.head != nil {
		s := p.blockedSends.head
		code := m.postOp(s)
		if code == libfabric.Again {
			m.noteRefusal(p)
			if s.Kind != base.SlotFlush || time.Since(s.queuedAt) < flushPatience {
				break
			}
			code = libfabric.Canceled
		}
		p.blockedSends.pop()
		if code == 0 {
			p.consecutiveRefusals, p.patience = 0, nil
			m.setAccepting(p, true)
			m.trackSend(s)
			continue
		}
		m.endOp(s, mtl.Result{Err: m.callError("send", to, code)})
	}
	if p.blockedSends.head != nil && m.isOverdue(to) {
		m.failBlockedSends(to)
	}
}

// refusalsPerClockCheck is the number of refusals between two readings of the clock. Short series of
// refusals are normal.
const refusalsPerClockCheck = 64

// isOverdue reports whether a peer has accepted nothing for connectTimeout. A peer with posted sends is slow, and
// there is no limit for it. Refusals don't count while the send queue is full.
func (m *module) isOverdue(to mtl.Endpoint) bool {
	p := &m.peerTable.peersByEndpoint[to]
	if p.consecutiveRefusals++; p.consecutiveRefusals%refusalsPerClockCheck != 0 {
		return false
	}
	if p.patience == nil {
		p.patience = trial.NewPatience(m.connectTimeout)
	}
	if !p.patience.Over() {
		return false
	}
	p.patience = nil // The time starts again.
	return p.postedSends == 0 && !m.isSendQueueFull()
}

// failBlockedSends ends the blocked sends of a peer. Later sends are tried again.
func (m *module) failBlockedSends(to mtl.Endpoint) {
	p := &m.peerTable.peersByEndpoint[to]
	err := m.transportError("send", to, fmt.Errorf("%v: nothing took a message there within %v (mtl.ofi.connect_timeout): its session is over, its process is stopped, or %s does not reach it%s",
		m.Env.Identity.Proc, m.connectTimeout, m.Description.Provider, m.routeText(to)))
	for p.blockedSends.head != nil {
		s := p.blockedSends.head
		p.blockedSends.pop()
		m.endOp(s, mtl.Result{Err: err})
	}
}

// Idle implements mtl.Module. Libfabric may still hold injected messages of a peer. Idle sends a flush frame
// behind them, which leaves after they have left.
func (m *module) Idle() bool { return m.IdleAfter(m.flushPeer) }

func (m *module) flushPeer(to mtl.Endpoint) {
	p := &m.peerTable.peersByEndpoint[to]
	if p.MarkFlushed(); p.SendErr == nil {
		// After an error the peer is unreachable.
		m.sendFrame(base.SlotFlush, nil, to, append(m.controlReceives.injectBuf[:0], frameFlush))
	}
}
