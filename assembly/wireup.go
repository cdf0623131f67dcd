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

// WireUp makes a group construct (MPI-4.1 section 11.3) with the members of group,
// of which this process is rank: cards are exchanged, the members' PML and ids for
// the new communicator are decided. It returns the PML and the communicator's
// description, whose Local is taken from the PML's table. It is collective over
// group, and returns when all have called it with the same tag, or ctx or the
// configured time has ended. The caller keeps the members (Keep) until it has made the communicator.
// A large group on several nodes is wired up in levels (package wireup).
func (a *Assembly) WireUp(ctx context.Context, group []framework.Proc, rank int, tag string, policy cid.Policy) (m PML, spec pml.CommSpec, err error) {
	defer a.enterWireUp()()
	layout, err := a.layout(ctx, group)
	if err != nil {
		return m, spec, err
	}
	if layout != nil {
		return a.wireUpLevels(ctx, layout, group, rank, tag, policy)
	}
	m, spec, _, err = a.wireUp(ctx, group, rank, tag, func(room int) *cid.Offer {
		return a.pmls[0].CIDs().OfferFor(policy, len(group), room)
	}, wireup.Payload{})
	if err == nil {
		a.timing.mark(stepComm)
	}
	return m, spec, err
}

// wireUp makes a group construct. The candidate ids are those of offer, which is called with the room for them. The payload of this process has the
// elements of extra for levels. It returns the payloads of all members, too.
func (a *Assembly) wireUp(ctx context.Context, group []framework.Proc, rank int, tag string, offer func(room int) *cid.Offer, extra wireup.Payload) (m PML, spec pml.CommSpec, all [][]byte, err error) {
	own, err := a.present()
	if err != nil {
		return m, spec, nil, err
	}
	body := extra
	body.Ended = a.endedWith(group)
	used, err := a.encodePayload(own, body)
	if err != nil {
		return m, spec, nil, err
	}
	// The candidate ids get the rest of the payload.
	ids := offer(bootstrap.MaxPayload - len(used) - wireup.PayloadFrame)
	table := a.pmls[0].CIDs()
	defer table.Release(ids) // does nothing once the offer is settled

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
		if err != nil { // the others may have the communicator
			a.refuse(cid.Extended{Base: made.ContextID}, group, err)
		}
	}()
	x := meeting{group: group, rank: rank, id: cid.Extended{Base: made.ContextID}, ids: ids}
	if m, spec, err = a.conclude(ctx, &x, made.Payloads); err != nil {
		return m, spec, nil, err
	}
	return m, spec, made.Payloads, nil
}

// meeting is a group construct, or the creation of a communicator over another one.
type meeting struct {
	group []framework.Proc
	rank  int // Of this process.
	id    cid.Extended
	ids   *cid.Offer // Candidate ids of this process.
	// processes are the nonces of the members' processes, for members that may be streams. It is nil in a group construct.
	processes []uint64
}

// conclude decides by the payloads of all members.
func (a *Assembly) conclude(ctx context.Context, x *meeting, encoded [][]byte) (m PML, spec pml.CommSpec, err error) {
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
	if x.processes == nil {
		if err := a.renew(ctx, group, x.rank, x.id.Base, payloads); err != nil {
			return m, spec, err
		}
	}
	members := make([]pml.Member, len(group))
	spec = pml.CommSpec{ID: x.id, Members: pml.NewMembers(members), Rank: x.rank}
	a.expect(len(group))
	for i, p := range group {
		members[i].Life = framework.Life{ID: a.env.Worlds.ID(p), Nonce: payloads[i].Nonce}
		if x.processes != nil {
			a.meetStream(members[i].Life, p, x.processes[i])
		}
		if err := a.learn(members[i].Life, p, payloads[i]); err != nil {
			return m, spec, err
		}
		if x.processes != nil {
			a.catchUp(members[i].Life, p, x.processes[i])
		}
	}
	decision := cid.Decision{Policy: cid.PolicyLazy}
	if first {
		if decision, err = decideIDs(payloads); err != nil {
			return m, spec, err
		}
	}
	if err := settle(&spec, m.CIDs(), x.ids, decision); err != nil {
		return m, spec, err
	}
	a.note(spec.Members)
	return m, spec, nil
}

// expect makes room for the cards of a group.
func (a *Assembly) expect(members int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.expect(members)
}

// enterWireUp begins a wire-up, and returns the function that ends it.
func (a *Assembly) enterWireUp() (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.here.beginWireUp()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.here.endWireUp()
	}
}

// refuse says that this process is in no communicator with that id, nor in one that is
// derived from it, though it is of the group.
func (a *Assembly) refuse(id cid.Extended, group []framework.Proc, why error) {
	for _, m := range a.pmls {
		m.Refuse(cid.Below(id), pml.AllEndpoints)
	}
	if a.process != nil {
		a = a.process
	}
	a.mu.Lock()
	a.refused = append(a.refused, cid.Below(id))
	a.mu.Unlock()
	a.Broke(id, group, why)
}

// Construct is the bootstrap's, with the configured deadline.
func (a *Assembly) Construct(ctx context.Context, group []framework.Proc, tag string, body []byte) (bootstrap.Constructed, error) {
	ctx, cancel := a.Bound(ctx)
	defer cancel()
	a.mu.Lock()
	if isolated := a.isolated; isolated != nil && len(group) > 1 { // a bootstrap may work without its launcher
		a.mu.Unlock()
		return bootstrap.Constructed{}, isolated
	}
	turn := a.constructs.last + 1
	a.constructs.last = turn
	a.constructs.waiting[turn] = fmt.Sprintf("%q with %d processes", tag, len(group))
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if len(group) > 1 {
		a.constructs.cancel[turn] = end
	}
	a.mu.Unlock()
	a.timing.mark(stepConstruct)
	made, err := a.client.Construct(ctx, group, tag, body)
	a.timing.mark(stepConstructed)
	a.mu.Lock()
	delete(a.constructs.waiting, turn)
	delete(a.constructs.cancel, turn)
	isolated := a.isolated
	a.mu.Unlock()
	if err != nil && isolated != nil && len(group) > 1 {
		return made, isolated
	}
	if err != nil {
		return made, framework.Ended(ctx, "group construct", err)
	}
	if made.ContextID == 0 || len(made.Payloads) != len(group) {
		return made, fmt.Errorf("%w: bootstrap: construct of %d members gave context id %d and %d payloads",
			framework.ErrTransport, len(group), made.ContextID, len(made.Payloads))
	}
	return made, nil
}

// StandBy takes part in the construct of a group that this process is not in, under a
// bootstrap which needs everyone for that; under others it does nothing.
func (a *Assembly) StandBy(ctx context.Context, group []framework.Proc, tag string) error {
	b, needed := framework.As[bootstrap.Bystander](a.client)
	if !needed {
		return nil
	}
	ctx, cancel := a.Bound(ctx)
	defer cancel()
	return framework.Ended(ctx, "group construct", b.StandBy(ctx, group, tag))
}

// badMember returns the error for an invalid business card of a member.
func badMember(p framework.Proc, err error) error {
	return &framework.TransportError{Component: "assembly", Peer: p.String(), Op: "business card", Err: err}
}

// chooseModule returns the module of a new communicator, and whether it is the
// first choice of every member, from whose tables the id offers are.
func (a *Assembly) chooseModule(members []framework.Proc, payloads []wireup.Payload) (m PML, first bool, err error) {
	var capabilities []wireup.Capability
	for i, p := range payloads {
		capabilities, _ = wireup.AddCapability(capabilities, wireup.Capability{Bytes: p.Capabilities, Count: 1, Lowest: []uint32{uint32(i)}})
	}
	if len(capabilities) == 1 {
		return a.pmls[0], true, nil // The usual case. Each takes its own first choice.
	}
	chosen, first, err := wireup.Choose(capabilities, func(rank uint32) framework.Proc { return members[rank] })
	if errors.Is(err, framework.ErrUnsupported) {
		return PML{}, false, fmt.Errorf("%w%s", err, failures(members, payloads))
	}
	if err != nil {
		return PML{}, false, err
	}
	at := slices.IndexFunc(a.pmls, func(m PML) bool { return wireup.Same(m.Offer(), chosen) })
	if at < 0 {
		return PML{}, false, fmt.Errorf("%w: bootstrap: the payloads do not contain the capabilities of this process", framework.ErrTransport)
	}
	return a.pmls[at], first, nil
}

// learn stores a member's card. PMLs take it at the first use of the process, or get it at once if they have
// another card of the process or have asked for this one.
func (a *Assembly) learn(life framework.Life, p framework.Proc, from wireup.Payload) error {
	if life.ID == a.env.Self.ID {
		return nil
	}
	a.learning.Lock()
	defer a.learning.Unlock()
	a.mu.Lock()
	known, _ := a.known.get(life)
	err := a.taken(life)
	a.mu.Unlock()
	if bytes.Equal(known.card, from.Card) || known.hasCard() && from.Edition < known.edition {
		a.keepRecord(life, known)
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
	// Before the PMLs know it: a death that is reported meanwhile is told to them. And
	// without mu while they do: they wait for the engine, in which a transport may hang.
	defer a.dropAgain(life)
	isSought, isolated := a.know(life, record{card: from.Card, edition: from.Edition}, node)
	if !isSought && isolated == nil {
		return nil
	}
	card, err := wireup.DecodeCard(from.Card)
	if err != nil {
		a.unlearn(life, known)
		return badMember(p, err)
	}
	for _, o := range offers {
		for _, m := range a.pmls {
			if !wireup.Same(m.Offer(), o) {
				continue
			}
			if isSought {
				if err := m.Learn(life, card); err != nil {
					a.unlearn(life, known)
					return badMember(p, err)
				}
			}
			if isolated != nil {
				m.PeerGone(life, isolated)
			}
		}
	}
	return nil
}

// keepRecord makes a record of an incarnation that is only in a table, because communicators without the table have it.
func (a *Assembly) keepRecord(life framework.Life, known acquaintance) {
	if known.table == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known.set(life, known)
}

// decodeCapabilities decodes the capabilities of a process. Most processes have those of this one.
func (a *Assembly) decodeCapabilities(b []byte) ([]pml.Offer, error) {
	if bytes.Equal(b, a.offers) {
		return a.decodedOffers, nil
	}
	return wireup.DecodeCapabilities(b)
}

// unlearn restores the record of an incarnation as it was before a card that PMLs refuse.
func (a *Assembly) unlearn(life framework.Life, known acquaintance) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known.card, known.table = nil, nil; known.renewal == (renewal{}) {
		a.known.remove(life)
	} else {
		a.known.set(life, known)
	}
}

// taken says whose nonce a life has that belongs to another process, or nil. a.mu held.
func (a *Assembly) taken(life framework.Life) error {
	if life.Nonce == a.env.Self.Nonce {
		return errors.New("its nonce is this process's own")
	}
	if other, ok := a.known.owner(life.Nonce); ok && other != life.ID {
		return fmt.Errorf("its nonce is that of %v", a.env.Worlds.Proc(other))
	}
	return nil
}

// IsHere reports whether a member of a communicator is on this process's node: a launcher
// may not know, and the member's card says so.
func (a *Assembly) IsHere(member framework.Life) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, _ := a.known.get(member)
	return member == a.env.Self || a.env.Node != "" && known.node == a.env.Node
}

// know stores the record of a life, which is the process's present one from now on. It reports whether PMLs need the card
// at once, and returns the reason if the life is isolated.
func (a *Assembly) know(life framework.Life, with record, node []byte) (isSought bool, isolated error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, _ := a.known.get(life)
	with.node, with.hasEnded, with.isTaken = a.known.node(node), known.hasEnded, a.known.isSought(life)
	a.known.set(life, acquaintance{with, known.renewal})
	if a.process == nil && !a.IsStream(life) { // Streams share the processors of their processes.
		a.here.arrive(life, with.node != "" && with.node == a.env.Node)
	}
	return with.isTaken, a.isolated
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
func settle(spec *pml.CommSpec, table *cid.Table, own *cid.Offer, decision cid.Decision) error {
	if decision.Policy == cid.PolicyLazy {
		local, err := table.Reserve()
		spec.Local = local
		return err
	}
	spec.Local = decision.Local(spec.Rank)
	spec.Agreed = decision.Policy == cid.PolicyAgree
	spec.Indices = decision.Each
	return table.Accept(own, spec.Local)
}
