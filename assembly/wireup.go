package assembly

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// WireUp makes a group construct (MPI-4.1 section 11.3) with the members of group. rank is that of this process. The members exchange cards,
// and decide on a PML and on ids for the new communicator. WireUp returns the PML and the description of the communicator, with a Local from
// the table of the PML. It is collective over group, and blocks until all members have called it with the same tag, ctx ends, or
// bootstrap.timeout has passed. The caller holds the members (HoldPeers) until it has created the communicator. A large group on several nodes is
// wired up in levels (package wireup).
func (a *Assembly) WireUp(ctx context.Context, group []framework.Proc, rank int, tag string, policy cid.Policy) (m PML, spec pml.CommSpec, err error) {
	defer a.enterWireUp()()
	layout, err := a.layout(ctx, group)
	if err != nil {
		return m, spec, err
	}
	if layout != nil {
		return a.wireUpLevels(ctx, layout, group, rank, tag, policy)
	}
	m, spec, _, err = a.wireUp(ctx, group, rank, tag, func(room int) *cid.Candidates {
		return a.pmls[0].CIDs().WithholdCandidates(policy, len(group), room)
	}, wireup.Payload{})
	if err == nil {
		a.timing.mark(stepComm)
	}
	return m, spec, err
}

// wireUp makes a group construct. It calls offer for the candidate ids with the room for them in bytes. The payload of this process includes
// extra, which a creation in levels uses. It also returns the payloads of all members.
func (a *Assembly) wireUp(ctx context.Context, group []framework.Proc, rank int, tag string, offer func(room int) *cid.Candidates, extra wireup.Payload) (m PML, spec pml.CommSpec, all [][]byte, err error) {
	own, err := a.currentCard()
	if err != nil {
		return m, spec, nil, err
	}
	body := extra
	body.Ended = a.disconnectedMembers(group)
	used, err := a.encodePayload(own, body)
	if err != nil {
		return m, spec, nil, err
	}
	// The candidate ids get the rest of the payload.
	ids := offer(bootstrap.MaxPayload - len(used) - wireup.PayloadFrame)
	table := a.pmls[0].CIDs()
	defer table.Release(ids) // No effect after the candidates are settled.

	body.IDs = ids.Bytes()
	encoded, err := a.encodePayload(own, body)
	if err != nil {
		return m, spec, nil, err
	}
	made, err := a.Construct(ctx, group, tag, encoded)
	if err != nil {
		return m, spec, nil, err
	}
	defer func() {
		if err != nil { // Other members may have created the communicator.
			a.refuse(cid.Extended{Base: made.ContextID}, group, err)
		}
	}()
	x := construction{group: group, ownRank: rank, commID: cid.Extended{Base: made.ContextID}, candidateIDs: ids}
	if m, spec, err = a.decideComm(ctx, &x, made.Payloads); err != nil {
		return m, spec, nil, err
	}
	return m, spec, made.Payloads, nil
}

// construction is a group construct, or the creation of a communicator over another one.
type construction struct {
	group   []framework.Proc
	ownRank int
	commID  cid.Extended
	// Of this process.
	candidateIDs *cid.Candidates
	// Of the members' processes, for members that may be streams. nil in a group construct.
	processNonces []uint64
}

// decideComm decides on the communicator with the payloads of all members.
func (a *Assembly) decideComm(ctx context.Context, x *construction, encoded [][]byte) (m PML, spec pml.CommSpec, err error) {
	group := x.group
	payloads := make([]wireup.Payload, len(group))
	for i, b := range encoded {
		if payloads[i], err = wireup.DecodePayload(b); err != nil {
			return m, spec, badMember(group[i], err)
		}
	}
	m, first, err := a.chooseModule(group, payloads)
	if err != nil {
		return m, spec, err
	}
	if x.processNonces == nil {
		if err := a.reconnectMembers(ctx, group, x.ownRank, x.commID.Base, payloads); err != nil {
			return m, spec, err
		}
	}
	members := make([]pml.Member, len(group))
	spec = pml.CommSpec{ID: x.commID, Members: pml.NewMembers(members), Rank: x.ownRank}
	a.reserveRecords(len(group))
	for i, p := range group {
		members[i].Incarnation = framework.Incarnation{ID: a.env.Worlds.ID(p), Nonce: payloads[i].Nonce}
		if x.processNonces != nil {
			a.addStreamMember(members[i].Incarnation, p, x.processNonces[i])
		}
		if err := a.learn(members[i].Incarnation, p, payloads[i]); err != nil {
			return m, spec, err
		}
		if x.processNonces != nil {
			a.catchUp(members[i].Incarnation, p, x.processNonces[i])
		}
	}
	decision := cid.Decision{Policy: cid.PolicyLazy}
	if first {
		if decision, err = decideIDs(payloads); err != nil {
			return m, spec, err
		}
	}
	if err := settle(&spec, m.CIDs(), x.candidateIDs, decision); err != nil {
		return m, spec, err
	}
	a.saveRoutes(spec.Members)
	return m, spec, nil
}

// reserveRecords reserves memory for the records of a group.
func (a *Assembly) reserveRecords(members int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peers.reserve(members)
}

// enterWireUp begins a wire-up, and returns the function that ends it.
func (a *Assembly) enterWireUp() (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodeProcs.beginWireUp()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.nodeProcs.endWireUp()
	}
}

// refuse reports to the members of group that this process has neither the communicator of id nor any derived from it.
func (a *Assembly) refuse(id cid.Extended, group []framework.Proc, why error) {
	for _, m := range a.pmls {
		m.Refuse(cid.Descendants(id), pml.AllEndpoints)
	}
	if a.ownerProcess != nil {
		a = a.ownerProcess
	}
	a.mu.Lock()
	a.refusedComms = append(a.refusedComms, cid.Descendants(id))
	a.mu.Unlock()
	a.ReportBroken(id, group, why)
}

// StandBy takes part in the construct of a group without this process if the bootstrap requires all processes (bootstrap.Bystander).
func (a *Assembly) StandBy(ctx context.Context, group []framework.Proc, tag string) error {
	b, needed := framework.As[bootstrap.Bystander](a.client)
	if !needed {
		return nil
	}
	ctx, cancel := a.Bound(ctx)
	defer cancel()
	return framework.Ended(ctx, "group construct", b.StandBy(ctx, group, tag))
}

// badMember returns the error for an invalid payload or business card of a member.
func badMember(p framework.Proc, err error) error {
	return &framework.TransportError{Component: "assembly", Peer: p.String(), Op: "business card", Err: err}
}

// chooseModule returns the PML of a new communicator. first reports that it is the first choice of all members, whose candidate ids are from its
// table.
func (a *Assembly) chooseModule(members []framework.Proc, payloads []wireup.Payload) (m PML, first bool, err error) {
	var capabilities []wireup.Capability
	for i, p := range payloads {
		capabilities, _ = wireup.AddCapability(capabilities, wireup.Capability{EncodedList: p.Capabilities, MemberCount: 1, LowestRanks: []uint32{uint32(i)}})
	}
	if len(capabilities) == 1 {
		return a.pmls[0], true, nil // The usual case. Each takes its own first choice.
	}
	chosen, first, err := wireup.Choose(capabilities, func(rank uint32) framework.Proc { return members[rank] })
	if errors.Is(err, framework.ErrUnsupported) {
		return PML{}, false, fmt.Errorf("%w%s", err, openFailures(members, payloads))
	}
	if err != nil {
		return PML{}, false, err
	}
	at := slices.IndexFunc(a.pmls, func(m PML) bool { return wireup.Same(m.Capabilities(), chosen) })
	if at < 0 {
		return PML{}, false, fmt.Errorf("%w: bootstrap: the payloads do not contain the capabilities of this process", framework.ErrTransport)
	}
	return a.pmls[at], first, nil
}

// learn stores a member's card. PMLs take it at the first use of the process, or get it at once if they have
// another card of the process or have asked for this one.
func (a *Assembly) learn(incarnation framework.Incarnation, p framework.Proc, from wireup.Payload) error {
	if incarnation.ID == a.env.Self.ID {
		return nil
	}
	a.learnMu.Lock()
	defer a.learnMu.Unlock()
	a.mu.Lock()
	known, _ := a.peers.get(incarnation)
	err := a.checkNonce(incarnation)
	a.mu.Unlock()
	if bytes.Equal(known.encodedCard, from.Card) || known.hasCard() && from.Edition < known.cardEdition {
		a.keepRecord(incarnation, known)
		return nil
	}
	if err != nil {
		return badMember(p, err)
	}
	offers, err := a.decodeCapabilities(from.Capabilities)
	if err != nil {
		return badMember(p, err)
	}
	node, _, err := wireup.FindAddress(from.Card, framework.NodeEntry)
	if err != nil {
		return badMember(p, err)
	}
	// The record precedes the notification of PMLs, so that they are notified of a failure in between. mu is not held during the
	// notification, because PMLs wait for the engine, in which a transport may hang.
	defer a.dropAfterLateCard(incarnation)
	isSought, isolated := a.storeRecord(incarnation, record{encodedCard: from.Card, cardEdition: from.Edition}, node)
	if !isSought && isolated == nil {
		return nil
	}
	card, err := wireup.DecodeCard(from.Card)
	if err != nil {
		a.restoreRecord(incarnation, known)
		return badMember(p, err)
	}
	for _, o := range offers {
		for _, m := range a.pmls {
			if !wireup.Same(m.Capabilities(), o) {
				continue
			}
			if isSought {
				if err := m.Learn(incarnation, card); err != nil {
					a.restoreRecord(incarnation, known)
					return badMember(p, err)
				}
			}
			if isolated != nil {
				m.PeerChanged(framework.UnreachableEvent(incarnation, isolated))
			}
		}
	}
	return nil
}

// keepRecord makes a record of an incarnation that is only in a table, because communicators without the table have it.
func (a *Assembly) keepRecord(incarnation framework.Incarnation, known peerEntry) {
	if known.cardTable == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.peers.set(incarnation, known)
}

// decodeCapabilities decodes the capabilities of a process. Most processes have those of this one.
func (a *Assembly) decodeCapabilities(b []byte) ([]pml.Capabilities, error) {
	if bytes.Equal(b, a.encodedCapabilities) {
		return a.decodedCapabilities, nil
	}
	return wireup.DecodeCapabilities(b)
}

// restoreRecord restores the record of an incarnation as it was before a card that PMLs refuse.
func (a *Assembly) restoreRecord(incarnation framework.Incarnation, known peerEntry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known.encodedCard, known.cardTable = nil, nil; known.epochState == (epochState{}) {
		a.peers.remove(incarnation)
	} else {
		a.peers.set(incarnation, known)
	}
}

// checkNonce returns an error if the nonce of an incarnation belongs to another process. a.mu is held.
func (a *Assembly) checkNonce(incarnation framework.Incarnation) error {
	if incarnation.Nonce == a.env.Self.Nonce {
		return errors.New("its nonce is this process's own")
	}
	if other, ok := a.peers.owner(incarnation.Nonce); ok && other != incarnation.ID {
		return fmt.Errorf("its nonce is that of %v", a.env.Worlds.Proc(other))
	}
	return nil
}

// IsOnNode reports whether a member of a communicator is on this node. The member's card decides, because a launcher may not know.
func (a *Assembly) IsOnNode(member framework.Incarnation) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, _ := a.peers.get(member)
	return member == a.env.Self || a.env.Node != "" && known.nodeID == a.env.Node
}

// storeRecord stores the record of an incarnation, which becomes the present one of its process. It reports whether PMLs need the card at once, and
// returns the reason of the isolation of this process, if any.
func (a *Assembly) storeRecord(incarnation framework.Incarnation, with record, node []byte) (isSought bool, isolated error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, _ := a.peers.get(incarnation)
	with.nodeID, with.hasEnded, with.isTaken = a.peers.node(node), known.hasEnded, a.peers.isSought(incarnation)
	a.peers.set(incarnation, peerEntry{with, known.epochState})
	if a.ownerProcess == nil && !a.IsStream(incarnation) { // Streams share the processors of their processes.
		a.nodeProcs.arrive(incarnation, with.nodeID != "" && with.nodeID == a.env.Node)
	}
	return with.isTaken, a.isolationErr
}

// decideIDs decides by the candidate ids of all members.
func decideIDs(payloads []wireup.Payload) (cid.Decision, error) {
	offers := make([][]byte, len(payloads))
	for i, p := range payloads {
		offers[i] = p.IDs
	}
	return cid.Decide(offers)
}

// settle fills in the local ids of a decision.
func settle(spec *pml.CommSpec, table *cid.Table, own *cid.Candidates, decision cid.Decision) error {
	if decision.Policy == cid.PolicyLazy {
		local, err := table.Reserve()
		spec.Local = local
		return err
	}
	spec.Local = decision.Local(spec.Rank)
	spec.Agreed = decision.Policy == cid.PolicyAgree
	spec.Indices = decision.MemberIDs
	return table.Accept(own, spec.Local)
}
