package ofi

import (
	"bytes"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/base"
	"github.com/ferrympi/ferry/mtl/trial"
)

// peer is a connected process.
type peer struct {
	base.Peer
	// addressIndex is the index in libfabric's address vector, valid from stage addressKnown on.
	addressIndex uint64
	// rawAddress is the network address from the business card.
	rawAddress     []byte
	contactStage   contactStage
	requestedStage contactStage
	isUnreachable  bool
	// isBlocked is set while the peer is in peerTable.blockedPeers.
	isBlocked    bool
	blockedSends fifo
	postedSends  int
	// isRefusing is set while libfabric refuses sends to this peer although its queue has space.
	isRefusing bool
	// consecutiveRefusals counts retries in a row that libfabric refused.
	consecutiveRefusals int
	// patience is the time limit for a peer that accepts nothing; nil until refusalsPerClockCheck.
	patience     *trial.Patience
	unackedSends *unackedSends
}

// peerTable holds the connected processes.
type peerTable struct {
	// Peers are never removed.
	peersByEndpoint []peer
	byNonce         map[uint64]mtl.Endpoint
	// blockedPeers lists the peers with blockedSends, each once.
	blockedPeers []mtl.Endpoint
	// blockedCursor is the index in blockedPeers of the peer that was retried last.
	blockedCursor int
	// refusingCount counts the peers with isRefusing.
	refusingCount int
}

func (m *module) Connect(p framework.Peer) (mtl.Endpoint, error) {
	if to, ok := m.Endpoints[p.Incarnation]; ok {
		return to, nil
	}
	address, err := m.checkReach(p)
	if err != nil {
		return 0, err
	}
	to := mtl.Endpoint(len(m.peerTable.peersByEndpoint))
	m.peerTable.peersByEndpoint = append(m.peerTable.peersByEndpoint, peer{Peer: m.AddPeer(p.Incarnation, to), rawAddress: bytes.Clone(address)})
	m.requestContact(to, addressKnown)
	m.peerTable.byNonce[p.Nonce] = to
	return to, nil
}

// Forget leaves the peer in libfabric's address vector, because providers find connections by
// their index there.
func (m *module) Forget(to mtl.Endpoint, why error) {
	p := &m.peerTable.peersByEndpoint[to]
	if !m.ForgetPeer(&p.Peer, why) {
		return
	}
	delete(m.peerTable.byNonce, p.Nonce)
	p.blockedSends, p.unackedSends = fifo{}, nil
	for _, s := range m.slotsByNumber {
		if s.Peer != to || !s.Kind.IsSend() {
			continue
		}
		if !s.IsPosted || s.isBufferFree {
			m.endOp(s, mtl.Result{Err: p.SendErr})
			continue
		}
		// The slot stays in use until libfabric releases the buffer.
		m.Abandon(&s.Slot, p.SendErr)
	}
}

// checkSend returns the error of sends to a peer, or nil if sending is possible.
func (m *module) checkSend(to mtl.Endpoint) error {
	if m.Err != nil {
		return m.Err
	}
	if int(to) >= len(m.peerTable.peersByEndpoint) {
		to = mtl.NoEndpoint
	}
	return m.peerTable.peersByEndpoint[to].SendErr
}

// setAccepting records whether libfabric accepts sends to a peer.
func (m *module) setAccepting(p *peer, isAccepting bool) {
	if p.isRefusing != isAccepting {
		return
	}
	p.isRefusing = !isAccepting
	if isAccepting {
		m.peerTable.refusingCount--
	} else {
		m.peerTable.refusingCount++
	}
}

// noteRefusal records that libfabric refused a send to a peer. The peer is refusing unless its contact is
// incomplete or the send queue is full. Sends that libfabric holds don't count: a long message stays there
// until its receiver takes it or is forgotten.
func (m *module) noteRefusal(p *peer) {
	if m.offloader.activeCall == nil {
		m.setAccepting(p, p.contactStage < connected || m.isSendQueueFull())
	}
}

// isSendQueueFull reports whether libfabric's queue may be the reason of a refusal.
func (m *module) isSendQueueFull() bool {
	return m.postedCounts.sends >= m.postedCounts.sendQueueSize/2 || m.postedCounts.operations >= m.postedCounts.queueLimits.maxOperations
}

// routeText describes the addresses of both ends of a socket provider, for errors.
func (m *module) routeText(to mtl.Endpoint) string {
	own, isIP := ipOf(m.localAddress.format, m.localAddress.raw)
	peer, isPeerIP := ipOf(m.localAddress.format, m.peerTable.peersByEndpoint[to].rawAddress)
	if !isIP || !isPeerIP {
		return ""
	}
	return fmt.Sprintf(" from %s (%v) at %v; mtl.ofi.domain_include chooses the interface", m.Description.Device, own, peer)
}
