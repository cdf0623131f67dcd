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

// Stack is the open modules of a process: its PMLs and what they require.
type Stack struct {
	registry   *framework.Registry
	values     *framework.Values
	selections map[framework.Kind]*framework.Selection
	timing     *timing // or nil
	env        progress.Env
	hooks      pml.Hooks
	cards      pml.Cards                   // pml.Env's
	giveUp     func(framework.Life, error) // pml.Env's
	// droppablePeer is pml.Env's Droppable.
	droppablePeer func(framework.Life)
	lateRoutes    bool // pml.Env's
	fabric        bool // an MTL is used for the sake of a network's hardware only, see mtl.Env

	pmls   []PML       // by preference
	node   PML         // to which others leave the processes of a node; none: no Module
	movers []transport // BTLs and MTLs, in the order in which they were opened
	carry  []string    // their components ("btl.shm")
	needs  []Need      // of pmls and node
}

// transport is an open BTL or MTL.
type transport interface {
	progress.Source
	Close() error
}

// OpenStack opens the PMLs that the registry's components make up, under the given
// values, and the components that they require. The engine becomes the stack's, which closes it. cards are pml.Env's, and may be nil.
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

// open opens every PML that selection allows: the first is what this process
// prefers, and the others are offers to peers that lack it.
func (s *Stack) open(ctx context.Context, env progress.Env, hooks pml.Hooks) error {
	s.env, s.hooks = env, hooks
	selection := s.selections[framework.PML]
	var request error     // The first failed request for a component that a PML uses.
	var warnings []func() // Of PMLs that another one replaces. The error has their reasons otherwise.
	for _, choice := range slices.Clone(selection.Chosen) {
		before, node := len(s.movers), s.node
		var m pml.Module
		var err error
		if choice.Verdict.Name == node.Name && node.Module != nil { // another one has opened it
			m = node.Module
		} else {
			m, err = s.openPML(ctx, choice, "")
		}
		if err == nil {
			s.pmls = append(s.pmls, PML{choice.Verdict.Name, m})
			continue
		}
		if s.node.Module != node.Module {
			err = errors.Join(err, s.closeNode())
		}
		err = errors.Join(err, s.closeMovers(before))
		if bound := selection.Fail(choice.Verdict.Name, err); bound != nil {
			return bound
		}
		request = cmp.Or(request, framework.FailedRequest(err))
		warnings = append(warnings, func() { env.Logger.Warn("pml failed to open", "pml", choice.Verdict.Name, "err", err) })
	}
	if _, err := selection.One(); err != nil {
		return cmp.Or(request, err)
	}
	for _, warn := range warnings {
		warn()
	}
	s.idle()
	s.warnOfSelf()
	return nil
}

// warnOfSelf logs in rank 0 that no transport carries messages of a process to itself, as with btl=tcp or btl=^self. They fail at
// their first use only. The transports of a stream are those of its process.
func (s *Stack) warnOfSelf() {
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

// idle marks the transports that selection took and no PML has opened: nothing needs
// them.
func (s *Stack) idle() {
	var names []string
	for _, m := range s.pmls {
		names = append(names, m.Name)
	}
	if s.node.Module != nil && !slices.Contains(names, s.node.Name) {
		names = append(names, s.node.Name)
	}
	for _, kind := range []framework.Kind{framework.BTL, framework.MTL} {
		if selection := s.selections[kind]; selection != nil {
			selection.Leave(func(name string) bool { return !slices.Contains(s.carry, framework.ComponentName(kind, name)) },
				fmt.Sprintf("pml %s needs no %s", strings.Join(names, ", "), kind))
		}
	}
}

// openPML opens a PML and its requirements. nodeBy is pml.Env's.
func (s *Stack) openPML(ctx context.Context, choice framework.Choice, nodeBy string) (pml.Module, error) {
	component, ok := choice.Component.(pml.Component)
	if !ok {
		return nil, wrongContract(choice)
	}
	defer s.timing.opened(framework.PML, choice.Verdict.Name, time.Now())
	below := &opener{Stack: s, ctx: ctx, opened: map[framework.Kind][]string{}}
	env := pml.Env{Env: s.envOf(choice), Params: choice.Params, Hooks: s.hooks, Modules: below, Cards: s.cards, GiveUp: s.giveUp, Droppable: s.droppablePeer, LateRoutes: s.lateRoutes, NodeBy: nodeBy}
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
			n.SatisfiedBy = below.opened[need.Kind]
		} else if err := s.openNode(ctx, choice.Verdict.Name, need.By); err == nil {
			m = compose.New(env, m, s.node.Module, need.By)
			n.SatisfiedBy = []string{s.node.Name}
		} else if n.Reason = err.Error(); !errors.Is(err, framework.ErrUnsupported) { // the network has those processes too
			return nil, errors.Join(fmt.Errorf("pml %s: for %s: %w", choice.Verdict.Name, need.For, err), m.Close())
		}
		needs = append(needs, n)
	}
	s.needs = append(s.needs, needs...)
	return m, nil
}

// opener opens what one PML requires.
type opener struct {
	*Stack
	ctx    context.Context // of the PML's Open
	opened map[framework.Kind][]string
}

// Open implements framework.Opener.
func (o *opener) Open(kind framework.Kind, up func(name string) any) (all []framework.Opened[any], err error) {
	s := o.Stack
	selection := s.selections[kind]
	if selection == nil {
		return nil, fmt.Errorf("%w: this program has no %s component", framework.ErrUnsupported, kind)
	}
	for _, choice := range slices.Clone(selection.Chosen) {
		name := choice.Verdict.Name
		m, err := s.openMover(o.ctx, choice, up(name))
		if err != nil {
			if bound := selection.Fail(name, err); bound != nil {
				return nil, bound
			}
			s.env.Logger.Warn(string(kind)+" failed to open", string(kind), name, "err", err)
			continue
		}
		s.movers, s.carry = append(s.movers, m), append(s.carry, framework.ComponentName(kind, name))
		s.env.Engine.Add(m)
		o.opened[kind] = append(o.opened[kind], name)
		all = append(all, framework.Opened[any]{Name: name, Module: m})
		if kind == framework.MTL {
			_, err := selection.One()
			return all, err
		}
	}
	return all, selection.Empty()
}

// openMover opens a BTL or an MTL.
func (s *Stack) openMover(ctx context.Context, choice framework.Choice, up any) (transport, error) {
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
			m, err := c.Open(ctx, mtl.Env{Env: s.envOf(choice), Params: choice.Params, Upcall: up, Fabric: s.fabric})
			if err != nil {
				return nil, err
			}
			return mtl.CheckedModule(choice.Verdict.Name, m)
		}
	}
	return nil, wrongContract(choice)
}

// envOf is the environment of a component, with a logger of its own.
func (s *Stack) envOf(choice framework.Choice) progress.Env {
	env := s.env
	env.Logger = logger(s.env.Logger, choice.Verdict.Kind, choice.Verdict.Name)
	return env
}

// NotOpen implements framework.Opener. The selection does not change any more once
// modules are in use.
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

// openNode opens the PML for processes of this node that components.yaml names for
// another one: the module that is open already, or will be one of those that selection
// allows, or one of its own. The parameter `by` asks for it.
func (s *Stack) openNode(ctx context.Context, of, by string) error {
	name := s.registry.Node(framework.PML, of)
	component, ok := s.registry.Lookup(framework.PML, name)
	switch {
	case !ok:
		return fmt.Errorf("%w: this program has no pml for the processes of a node beside %s", framework.ErrUnsupported, of)
	case s.node.Module != nil && s.node.Name != name:
		return fmt.Errorf("%w: pml %s serves the processes of this node already, and %s wants %s", framework.ErrConfig, s.node.Name, of, name)
	case s.node.Module != nil:
		return nil
	}
	if i := slices.IndexFunc(s.pmls, func(m PML) bool { return m.Name == name }); i >= 0 {
		s.node = s.pmls[i]
		return nil
	}
	choice := framework.Choice{Component: component, Params: component.Params(), Verdict: framework.Verdict{Kind: framework.PML, Name: name}}
	if choice.Params != nil {
		if err := s.values.Decode(framework.ComponentName(framework.PML, name), choice.Params); err != nil {
			return err
		}
	}
	before := len(s.movers)
	m, err := s.openPML(ctx, choice, by)
	if err != nil { // the network goes on without: nothing of it stays open
		return errors.Join(err, s.closeMovers(before))
	}
	s.node = PML{name, m}
	return nil
}

// closeNode closes the PML for processes of this node, unless it is a module of its
// own. Those that have asked for it are closed.
func (s *Stack) closeNode() error {
	m := s.node.Module
	s.node = PML{}
	if m == nil || slices.ContainsFunc(s.pmls, func(x PML) bool { return x.Module == m }) {
		return nil
	}
	return m.Close()
}

// Env returns what every module was opened with.
func (s *Stack) Env() *progress.Env { return &s.env }

// PMLs returns the open PMLs, by preference.
func (s *Stack) PMLs() []PML { return s.pmls }

// Upper returns the PMLs that no other one uses: what they say of themselves has
// what the node's PML does for them in it.
func (s *Stack) Upper() []PML {
	return slices.DeleteFunc(slices.Clone(s.pmls), func(m PML) bool { return m.Module == s.node.Module })
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

// Close closes everything that is open: first those that use others.
func (s *Stack) Close() error {
	if s.env.Engine == nil {
		return nil
	}
	for _, m := range s.movers {
		s.env.Engine.Remove(m)
	}
	var errs []error
	for _, m := range s.Upper() {
		errs = append(errs, m.Close())
	}
	if s.node.Module != nil {
		errs = append(errs, s.node.Close())
	}
	errs = append(errs, s.closeMovers(0))
	s.env.Engine.Close()
	return errors.Join(errs...)
}

// closeMovers closes the transports from the given one on, the last one first.
func (s *Stack) closeMovers(from int) error {
	var errs []error
	for _, m := range slices.Backward(s.movers[from:]) {
		s.env.Engine.Remove(m) // does nothing if that was done
		errs = append(errs, m.Close())
	}
	s.movers, s.carry = s.movers[:from], s.carry[:from]
	return errors.Join(errs...)
}
