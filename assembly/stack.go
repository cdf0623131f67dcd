package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/compose"
	"github.com/ferrympi/ferry/progress"
)

// PML is an open PML and the name of its component.
type PML struct {
	Name string
	pml.Module
}

// Stack is the open modules of a process, its PMLs with their requirements.
type Stack struct {
	registry   *framework.Registry
	values     *framework.Values
	selections map[framework.Kind]*framework.Selection
	timing     *timing // May be nil.
	env        progress.Env
	hooks      pml.Hooks
	// The next four fields are those of pml.Env.
	cards               pml.Cards
	disconnect          func(framework.Incarnation, error)
	droppablePeer       func(framework.Incarnation)
	hasLateRoutes       bool
	isFabricUnrequested bool // That of mtl.Env.

	pmls []PML // By preference.
	// For the processes of the node. Module is nil if there is none.
	nodePML PML
	// BTLs and MTLs, in the order in which they were opened.
	transports []transport
	// Components of transports, such as "btl.shm".
	transportNames []string
	// Requirements of pmls and nodePML.
	pmlNeeds []Need
}

// transport is an open BTL or MTL.
type transport interface {
	progress.Source
	Close() error
}

// OpenStack opens the PMLs of a registry and the components that they require, with the given values. The stack owns the engine of env. It
// closes it in Close, and here after an error. cards may be nil.
func OpenStack(ctx context.Context, reg *framework.Registry, values *framework.Values, env progress.Env, hooks pml.Hooks, cards pml.Cards) (*Stack, error) {
	selections, err := reg.SelectAll(ctx, values)
	s := &Stack{registry: reg, values: values, selections: selections, cards: cards}
	if err == nil {
		err = s.open(ctx, env, hooks)
	} else {
		env.Engine.Close()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open opens all PMLs that selection allows. The first one is preferred. The others serve peers without it.
func (s *Stack) open(ctx context.Context, env progress.Env, hooks pml.Hooks) error {
	s.env, s.hooks = env, hooks
	selection := s.selections[framework.PML]
	var request error     // The first failed request for a component that a PML uses.
	var warnings []func() // Of PMLs that another one replaces. The error has their reasons otherwise.
	for _, choice := range slices.Clone(selection.Chosen) {
		before, node := len(s.transports), s.nodePML
		var m pml.Module
		var err error
		if choice.Verdict.Name == node.Name && node.Module != nil { // Opened for another PML.
			m = node.Module
		} else {
			m, err = s.openPML(ctx, choice, "")
		}
		if err == nil {
			s.pmls = append(s.pmls, PML{choice.Verdict.Name, m})
			continue
		}
		if s.nodePML.Module != node.Module {
			err = errors.Join(err, s.closeNode())
		}
		err = errors.Join(err, s.closeTransports(before))
		if bound := selection.Fail(choice.Verdict.Name, err); bound != nil {
			return bound
		}
		request = cmp.Or(request, framework.FailedRequest(err))
		warnings = append(warnings, func() { env.Logger.Warn("pml failed to open", "pml", choice.Verdict.Name, "err", err) })
	}
	if _, err := selection.TakeFirst(); err != nil {
		return cmp.Or(request, err)
	}
	for _, warn := range warnings {
		warn()
	}
	s.markUnusedTransports()
	s.warnNoTransportToSelf()
	return nil
}

// warnNoTransportToSelf logs in rank 0 that no transport carries messages of a process to itself, as with btl=tcp or btl=^self. Such messages fail when
// they are sent. The transports of a stream are those of its process, so that streams log nothing.
func (s *Stack) warnNoTransportToSelf() {
	if _, stream := s.env.Identity.Proc.Process(); stream > 0 || s.env.Self.ID.Rank() != 0 {
		return
	}
	route := s.pmls[0].Route(s.env.Self)
	if route.Transport != "" || len(route.Rejected) == 0 {
		return
	}
	var reasons []string
	for _, r := range route.Rejected {
		reasons = append(reasons, r.Name+": "+r.Reason)
	}
	remedy := "add self to the list of btl"
	if list, _ := s.values.Get(string(framework.BTL)); strings.HasPrefix(strings.TrimSpace(list.Text), "^") {
		remedy = "remove self from the list of btl"
	}
	s.env.Logger.Warn("no transport carries messages of a process to itself, so that they fail; "+remedy, "reasons", strings.Join(reasons, "; "))
}

// markUnusedTransports marks the selected transports that no PML has opened.
func (s *Stack) markUnusedTransports() {
	var names []string
	for _, m := range s.pmls {
		names = append(names, m.Name)
	}
	if s.nodePML.Module != nil && !slices.Contains(names, s.nodePML.Name) {
		names = append(names, s.nodePML.Name)
	}
	for _, kind := range []framework.Kind{framework.BTL, framework.MTL} {
		if selection := s.selections[kind]; selection != nil {
			selection.Deselect(func(name string) bool { return !slices.Contains(s.transportNames, framework.ComponentName(kind, name)) },
				fmt.Sprintf("pml %s needs no %s", strings.Join(names, ", "), kind))
		}
	}
}

// openPML opens a PML and its requirements. nodeBy is pml.Env.NodeBy.
func (s *Stack) openPML(ctx context.Context, choice framework.Choice, nodeBy string) (pml.Module, error) {
	component, ok := choice.Component.(pml.Component)
	if !ok {
		return nil, wrongContract(choice)
	}
	defer s.timing.opened(framework.PML, choice.Verdict.Name, time.Now())
	below := &requirementOpener{Stack: s, ctx: ctx, openedNames: map[framework.Kind][]string{}}
	env := pml.Env{Env: s.envOf(choice), Params: choice.Params, Hooks: s.hooks, Modules: below, Cards: s.cards, Disconnect: s.disconnect, Droppable: s.droppablePeer, LateRoutes: s.hasLateRoutes, NodeBy: nodeBy}
	m, err := component.Open(ctx, env)
	if err == nil {
		m, err = pml.CheckedModule(choice.Verdict.Name, m)
	}
	if err != nil {
		return nil, err
	}
	var needs []Need
	for _, need := range framework.Requires(component, choice.Params) {
		n := newNeed(choice.Verdict, need)
		if !need.Node {
			n.SatisfiedBy = below.openedNames[need.Kind]
		} else if err := s.openNode(ctx, choice.Verdict.Name, need.By); err == nil {
			m = compose.New(env, m, s.nodePML.Module, need.By)
			n.SatisfiedBy = []string{s.nodePML.Name}
		} else if n.Reason = err.Error(); !errors.Is(err, framework.ErrUnsupported) { // The network serves the processes of the node, too.
			return nil, errors.Join(fmt.Errorf("pml %s: for %s: %w", choice.Verdict.Name, need.For, err), m.Close())
		}
		needs = append(needs, n)
	}
	s.pmlNeeds = append(s.pmlNeeds, needs...)
	return m, nil
}

// requirementOpener opens the requirements of one PML.
type requirementOpener struct {
	*Stack
	// That of the PML's Open.
	ctx         context.Context
	openedNames map[framework.Kind][]string
}

// Open implements framework.Opener.
func (o *requirementOpener) Open(kind framework.Kind, up func(name string) any) (all []framework.Opened[any], err error) {
	s := o.Stack
	selection := s.selections[kind]
	if selection == nil {
		return nil, fmt.Errorf("%w: this program has no %s component", framework.ErrUnsupported, kind)
	}
	for _, choice := range slices.Clone(selection.Chosen) {
		name := choice.Verdict.Name
		m, err := s.openTransport(o.ctx, choice, up(name))
		if err != nil {
			if bound := selection.Fail(name, err); bound != nil {
				return nil, bound
			}
			s.env.Logger.Warn(string(kind)+" failed to open", string(kind), name, "err", err)
			continue
		}
		s.transports, s.transportNames = append(s.transports, m), append(s.transportNames, framework.ComponentName(kind, name))
		s.env.Engine.Add(m)
		o.openedNames[kind] = append(o.openedNames[kind], name)
		all = append(all, framework.Opened[any]{Name: name, Module: m})
		if kind == framework.MTL {
			_, err := selection.TakeFirst()
			return all, err
		}
	}
	return all, selection.CheckChosen()
}

// openTransport opens a BTL or an MTL.
func (s *Stack) openTransport(ctx context.Context, choice framework.Choice, up any) (transport, error) {
	defer s.timing.opened(choice.Verdict.Kind, choice.Verdict.Name, time.Now())
	switch c := choice.Component.(type) {
	case btl.Component:
		if up, ok := up.(btl.Receiver); ok {
			m, err := c.Open(ctx, btl.Env{Env: s.envOf(choice), Params: choice.Params, Upcall: up})
			if err != nil {
				return nil, err
			}
			return btl.CheckedModule(choice.Verdict.Name, m)
		}
	case mtl.Component:
		if up, ok := up.(mtl.Receiver); ok {
			m, err := c.Open(ctx, mtl.Env{Env: s.envOf(choice), Params: choice.Params, Upcall: up, IsUnrequested: s.isFabricUnrequested})
			if err != nil {
				return nil, err
			}
			return mtl.CheckedModule(choice.Verdict.Name, m)
		}
	}
	return nil, wrongContract(choice)
}

// envOf returns the environment of a component, with its own logger.
func (s *Stack) envOf(choice framework.Choice) progress.Env {
	env := s.env
	env.Logger = logger(s.env.Logger, choice.Verdict.Kind, choice.Verdict.Name)
	return env
}

// NotOpen implements framework.Opener. The selection is final when modules are in use.
func (s *Stack) NotOpen(kind framework.Kind) []framework.Rejection {
	var not []framework.Rejection
	if selection := s.selections[kind]; selection != nil {
		for _, v := range selection.Verdicts {
			switch v.Status {
			case framework.StatusNotSelected, framework.StatusUnavailable, framework.StatusFailed:
				not = append(not, v.Rejection())
			}
		}
	}
	return not
}

// openNode opens the PML that components.yaml names for the processes of this node beside PML of. It uses a module that is open, or one that
// selection allows, or opens a separate one. by is the parameter that requests it.
func (s *Stack) openNode(ctx context.Context, of, by string) error {
	name := s.registry.Node(framework.PML, of)
	component, ok := s.registry.Lookup(framework.PML, name)
	switch {
	case !ok:
		return fmt.Errorf("%w: this program has no pml for the processes of a node beside %s", framework.ErrUnsupported, of)
	case s.nodePML.Module != nil && s.nodePML.Name != name:
		return fmt.Errorf("%w: pml %s serves the processes of this node already, and %s wants %s", framework.ErrConfig, s.nodePML.Name, of, name)
	case s.nodePML.Module != nil:
		return nil
	}
	if i := slices.IndexFunc(s.pmls, func(m PML) bool { return m.Name == name }); i >= 0 {
		s.nodePML = s.pmls[i]
		return nil
	}
	choice := framework.Choice{Component: component, Params: component.Params(), Verdict: framework.Verdict{Kind: framework.PML, Name: name}}
	if choice.Params != nil {
		if err := s.values.Decode(framework.ComponentName(framework.PML, name), choice.Params); err != nil {
			return err
		}
	}
	before := len(s.transports)
	m, err := s.openPML(ctx, choice, by)
	if err != nil { // The network serves the processes of the node without it.
		return errors.Join(err, s.closeTransports(before))
	}
	s.nodePML = PML{name, m}
	return nil
}

// closeNode closes the PML for the processes of this node if it is a separate module. The PMLs that use it are closed before.
func (s *Stack) closeNode() error {
	m := s.nodePML.Module
	s.nodePML = PML{}
	if m == nil || slices.ContainsFunc(s.pmls, func(x PML) bool { return x.Module == m }) {
		return nil
	}
	return m.Close()
}

// Env returns the environment of all modules.
func (s *Stack) Env() *progress.Env { return &s.env }

// PMLs returns the open PMLs, by preference.
func (s *Stack) PMLs() []PML { return s.pmls }

// Upper returns the PMLs that no other PML uses. Their reports include those of the node's PML.
func (s *Stack) Upper() []PML {
	return slices.DeleteFunc(slices.Clone(s.pmls), func(m PML) bool { return m.Module == s.nodePML.Module })
}

// Card returns the process's business card.
func (s *Stack) Card() framework.Card {
	card := framework.Card{}.WithNode(s.env.Node)
	for _, m := range s.pmls {
		for _, a := range m.Addresses() {
			if !slices.ContainsFunc(card, func(have framework.Address) bool { return have.Component == a.Component }) {
				card = append(card, a)
			}
		}
	}
	return card
}

// Close closes all modules, users before their requirements, and the engine.
func (s *Stack) Close() error {
	if s.env.Engine == nil {
		return nil
	}
	for _, m := range s.transports {
		s.env.Engine.Remove(m)
	}
	var errs []error
	for _, m := range s.Upper() {
		errs = append(errs, m.Close())
	}
	if s.nodePML.Module != nil {
		errs = append(errs, s.nodePML.Close())
	}
	errs = append(errs, s.closeTransports(0))
	s.env.Engine.Close()
	return errors.Join(errs...)
}

// closeTransports closes the transports from an index on, the newest first.
func (s *Stack) closeTransports(from int) error {
	var errs []error
	for _, m := range slices.Backward(s.transports[from:]) {
		s.env.Engine.Remove(m) // No effect if it was removed before.
		errs = append(errs, m.Close())
	}
	s.transports, s.transportNames = s.transports[:from], s.transportNames[:from]
	return errors.Join(errs...)
}
