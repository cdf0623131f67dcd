package mpi

import (
	"context"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// A CommOption changes what CommFromGroup does.
type CommOption func(map[string]string)

// WithCommParam sets a parameter of communicator scope, such as cid.policy, for
// the new communicator and those made from it. All members should pass the same.
// An unknown parameter, a bad value or another scope is ErrConfig.
func WithCommParam(name, value string) CommOption {
	return func(set map[string]string) { set[name] = value }
}

// CommFromGroup makes a communicator from a group (MPI_Comm_create_from_group).
// It is collective over g: every member calls it with an equal group and the
// same tag, and it returns when all have. The tag keeps creations apart that
// overlap in time; it may be used again at once.
//
// Errors: ErrNoComm for an empty group, ErrGroup when the caller is no member,
// ErrTimeout with *MissingError naming who did not come within
// bootstrap.timeout, ErrProcFailed when a member has died, ErrUnsupported when
// members have no PML in common.
func CommFromGroup(ctx context.Context, g *Group, tag string, opts ...CommOption) (*Comm, error) {
	if g.Size() == 0 {
		return nil, fmt.Errorf("%w: the group is empty", ErrNoComm)
	}
	if g.rank == Undefined {
		return nil, fmt.Errorf("%w: the caller, %s, is not in it", ErrGroup, g.session.engine.identity.Proc)
	}
	s := g.session
	values, err := commValues(s.values, opts)
	if err != nil {
		return nil, err
	}
	if err := s.addComm(); err != nil {
		return nil, err
	}
	c, err := fromGroup(ctx, g, tag, values)
	if err != nil {
		s.doneComm()
		return nil, fmt.Errorf("communicator from group: %w", err)
	}
	return c, nil
}

func commValues(values *framework.Values, opts []CommOption) (*framework.Values, error) {
	if len(opts) == 0 {
		return values, nil
	}
	set := map[string]string{}
	for _, opt := range opts {
		opt(set)
	}
	for name := range set {
		if spec, ok := values.Spec(name); ok && spec.Scope != framework.ScopeCommunicator {
			return nil, fmt.Errorf("%w: parameter %s has %s scope, and can't be set for one communicator", ErrConfig, name, spec.Scope)
		}
	}
	return values.With("WithCommParam", set)
}

func fromGroup(ctx context.Context, g *Group, tag string, values *framework.Values) (*Comm, error) {
	e := g.session.engine
	policy, err := policyOf(values)
	if err != nil {
		return nil, err
	}
	// What the cards leave free in the payload is the id offer's.
	room := bootstrap.MaxPayload - len(e.offers) - len(e.cards) - payloadFrame
	table := e.modules[0].CIDs()
	ids := table.OfferFor(policy, g.Size(), room)
	defer table.Release(ids) // does nothing once the offer is settled

	body, err := encodePayload(e.offers, e.cards, ids.Bytes())
	if err != nil {
		return nil, err
	}
	made, err := e.construct(ctx, g.members, tag, body)
	if err != nil {
		return nil, err
	}
	payloads := make([]payload, g.Size())
	for i, b := range made.Payloads {
		if payloads[i], err = decodePayload(b); err != nil {
			return nil, badMember(g.members[i], err)
		}
	}
	m, first, err := e.chooseModule(g.members, payloads)
	if err != nil {
		return nil, err
	}
	group := make([]framework.ProcID, g.Size())
	for i, p := range g.members {
		group[i] = e.worlds.ID(p)
		if err := e.learn(group[i], p, payloads[i]); err != nil {
			return nil, err
		}
	}
	spec := pml.CommSpec{ID: cid.Extended{Base: made.ContextID}, Group: group, Rank: g.rank}
	if err := settle(&spec, m.CIDs(), ids, first, payloads); err != nil {
		return nil, err
	}
	c, err := newComm(g.session, g, m, spec, values)
	if err == nil {
		e.timing.mark(stepComm)
		e.note(group)
	}
	return c, err
}

// payloadFrame is more than the CBOR around the parts of a payload takes.
const payloadFrame = 64

func policyOf(values *framework.Values) (cid.Policy, error) {
	var p core.CID
	if err := values.Decode("cid", &p); err != nil {
		return cid.Auto, err
	}
	return p.Parse()
}

// construct is the bootstrap's, with the engine's deadline.
func (e *engine) construct(ctx context.Context, group []Proc, tag string, body []byte) (bootstrap.Constructed, error) {
	ctx, cancel := e.bound(ctx)
	defer cancel()
	e.mu.Lock()
	turn := e.constructs.last + 1
	e.constructs.last = turn
	e.constructs.waiting[turn] = fmt.Sprintf("%q with %d processes", tag, len(group))
	e.mu.Unlock()
	e.timing.mark(stepConstruct)
	made, err := e.client.Construct(ctx, group, tag, body)
	e.timing.mark(stepConstructed)
	e.mu.Lock()
	delete(e.constructs.waiting, turn)
	e.mu.Unlock()
	if err != nil {
		return made, ended(ctx, "group construct", err)
	}
	if made.ContextID == 0 || len(made.Payloads) != len(group) {
		return made, fmt.Errorf("%w: bootstrap: construct of %d members gave context id %d and %d payloads",
			ErrTransport, len(group), made.ContextID, len(made.Payloads))
	}
	return made, nil
}

func badMember(p Proc, err error) error {
	return &TransportError{Component: "mpi", Peer: p.String(), Op: "business card", Err: err}
}

// chooseModule returns the module of a new communicator, and whether it is the
// first choice of every member, from whose tables the id offers are.
func (e *engine) chooseModule(members []Proc, payloads []payload) (m module, first bool, err error) {
	if allEqual(payloads) {
		return e.modules[0], true, nil
	}
	lists := make([][]pml.Offer, len(payloads))
	for i, p := range payloads {
		if lists[i], err = decodeOffers(p.Offers); err != nil {
			return module{}, false, badMember(members[i], err)
		}
	}
	chosen, err := choose(members, lists)
	if err != nil {
		return module{}, false, err
	}
	first = true
	for _, list := range lists {
		first = first && sameOffer(list[0], chosen)
	}
	at := slices.IndexFunc(e.modules, func(m module) bool { return sameOffer(m.Offer(), chosen) })
	if at < 0 { // somebody else's card came back as ours
		return module{}, false, fmt.Errorf("%w: bootstrap: the payloads do not hold this process's own offers", ErrTransport)
	}
	return e.modules[at], first, nil
}

// learn gives a member's cards to the modules that are its, once.
func (e *engine) learn(id framework.ProcID, p Proc, from payload) error {
	if id == e.me {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known[id] == string(from.Cards) {
		return nil
	}
	offers, err := decodeOffers(from.Offers)
	if err != nil {
		return badMember(p, err)
	}
	cards, err := decodeCards(from.Cards)
	if err != nil {
		return badMember(p, err)
	}
	if len(cards) != len(offers) {
		return badMember(p, fmt.Errorf("%d cards for %d offers", len(cards), len(offers)))
	}
	for i, o := range offers {
		for _, m := range e.modules {
			if !sameOffer(m.Offer(), o) {
				continue
			}
			if err := m.Learn(id, cards[i]); err != nil {
				return badMember(p, err)
			}
		}
	}
	e.known[id] = string(from.Cards)
	return nil
}

// settle fills in the local ids as the members' offers decide.
func settle(spec *pml.CommSpec, table *cid.Table, own *cid.Offer, first bool, payloads []payload) error {
	decision := cid.Decision{Policy: cid.PolicyLazy}
	if first {
		offers := make([][]byte, len(payloads))
		for i, p := range payloads {
			offers[i] = p.CID
		}
		var err error
		if decision, err = cid.Decide(offers); err != nil {
			return err
		}
	}
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
