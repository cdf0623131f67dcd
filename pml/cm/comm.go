package cm

import (
	"fmt"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// comm is one communicator handle of this process.
type comm struct {
	base.Comm[*proc]
	base.Probes
	m *Module
	// localID is this process's MTL id of the communicator, see idLayout.
	localID     uint32
	peersByRank base.Table[*peer]
	// hasRefusal is set once a member has refused the communicator.
	hasRefusal  bool
	inquiryMark base.InquiryMark
	// reapedFailures has, for each plane, the value of Module.failureCount at the start
	// of the last reaper probe that found no message.
	reapedFailures [pml.Planes]uint32
	// heldMessageCount counts peer.unreceivedMessages.heldMessages of all members.
	heldMessageCount int
	// pendingProbes counts the messages that are not freed, including those of
	// probes in progress.
	pendingProbes int

	// matchQueues holds messages that were pulled out of the network and wait for a receive, and
	// the deferred receives.
	matchQueues  [pml.Planes]match.Queues[request, message]
	pullsByPlane [pml.Planes]pullState
	// deferredRecvs holds, in order, the receives that wait for the end of a pull or a sweep.
	deferredRecvs [pml.Planes]match.Order[request]
	// sweepersByPlane is nil for planes on which the network matches receives.
	sweepersByPlane [pml.Planes]*sweeper
	// hasFailedMember is set once the bootstrap has reported the failure of a member.
	hasFailedMember bool
}

// peer is one rank of a communicator.
type peer struct {
	c          *comm
	proc       *proc
	rank       int
	idExchange cid.Exchange
	// canSend is set if remoteID is known and no earlier send is held.
	canSend bool
	// endpoint is the member's endpoint within its process.
	endpoint uint16
	// remoteID is the member's MTL id of the communicator, see idLayout.
	remoteID  uint32
	heldSends match.Order[request]
	// hasSentID is set once this process's id was sent to the member.
	hasSentID bool
	// isInquired is set once the member was asked whether it is in the communicator.
	isInquired         bool
	hasRefused         bool
	closeState         cid.PeerClose
	messageTally       cid.Tally
	missedRecvs        missedReceives
	unreceivedMessages unreceivedMessages
	syncSends          syncSends
	matchPeers         [pml.Planes]match.Peer[request, message]
}

// AddComm implements pml.Module.
func (m *Module) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	if n := int64(spec.Members.Len()); n > 1<<m.mtlCaps.SourceBits {
		return nil, fmt.Errorf("%w: pml cm: %d members: mtl %s (%s) has %d bits for ranks, room for %d: use fewer ranks",
			framework.ErrUnsupported, n, m.mtlName, m.mtl.Describe().Mode, m.mtlCaps.SourceBits, int64(1)<<m.mtlCaps.SourceBits)
	}
	m.engine.Lock()
	defer m.engine.Unlock()
	unknownSenders := 0
	if spec.Agreed || spec.Indices != nil { // Otherwise a member asks for the id before it sends.
		for rank := range spec.Members.Len() {
			if rank != spec.Rank && !spec.IsElsewhere(rank) {
				unknownSenders++
			}
		}
	}
	known, err := m.procs.Comm(spec, cid.NewCommClose(cid.Held, unknownSenders))
	if err != nil {
		return nil, err
	}
	if err := m.checkFit(&known); err != nil {
		m.procs.Drop(&known)
		return nil, err
	}
	c := &comm{Comm: known, m: m, localID: m.idLayout.commID(spec.Local), peersByRank: base.NewTable[*peer](known.Len(), known.IsWhole())}
	c.Probes = base.NewProbes(m.engine, c)
	c.hasFailedMember = m.failureCount > 0 && c.lastMemberFailure() != nil
	if err := m.comms.Add("cm", &c.State, c); err != nil {
		m.procs.Drop(&c.Comm)
		return nil, err
	}
	if !c.IsWhole() {
		m.handleCounts[spec.ID]++
	}
	c.deliverEarly()
	return c, nil
}

// peer returns the state of a rank, and creates it on first use. Lock held.
func (c *comm) peer(rank int) *peer {
	if p := c.peersByRank.Get(rank); p != nil {
		return p
	}
	proc := c.Proc(rank)
	if p := c.peersByRank.Get(rank); p != nil { // Proc may have handled the end of the process.
		return p
	}
	p := &peer{c: c, proc: proc, rank: rank, endpoint: c.EndpointOf(rank), idExchange: c.Exchange(rank, cid.Held)}
	p.updateReady()
	c.peersByRank.Set(rank, p)
	return p
}

// id returns the id of the member's handle of the communicator.
func (p *peer) id() cid.EndpointID {
	return cid.EndpointID{Extended: p.c.Spec.ID, Endpoint: p.endpoint}
}

// updateReady recomputes remoteID and canSend. Call it after every exchange event.
func (p *peer) updateReady() {
	if p.idExchange.Known() {
		p.remoteID = p.c.m.idLayout.commID(p.idExchange.Remote())
	}
	p.canSend = p.idExchange.Known() && !p.idExchange.Closed() && p.heldSends.First() == nil && !p.syncSends.hasStopped
}

// recvFailure returns the reason why no message can come from src on a plane, or nil.
// It asks members that may not be in the communicator.
func (c *comm) recvFailure(src int, plane pml.Plane) error {
	if !c.m.mustCheckFailures && !c.hasRefusal {
		return nil
	}
	return c.findRecvFailure(src, plane)
}

// findRecvFailure is the slow path of recvFailure, after a failure or a refusal.
func (c *comm) findRecvFailure(src int, plane pml.Plane) error {
	if err := c.refusedBy(src); err != nil {
		return err
	}
	err := c.SourceError(src, plane)
	if err == nil {
		c.inquire(src)
	}
	return err
}

// Abort implements pml.Comm. A submitted send, or one that awaits its CTS, goes on,
// because the network may still read its buffer for a member that is notified later.
// It ends when that member has received or dropped the message, since all members
// drain an aborted plane.
func (c *comm) Abort(plane pml.Plane, err error) {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	if c.Aborted[plane] != nil {
		return
	}
	c.Aborted[plane] = err
	m.mustCheckFailures = true
	for _, r := range m.allRequests {
		if r.c == c && r.plane == plane && r.state != awaitingCTS && r.state != receivingFragment && r.state != confirming {
			r.abort(err)
		}
	}
	c.discardUnexpected(plane)
	c.startReaping()
	m.wakeProbes()
}
