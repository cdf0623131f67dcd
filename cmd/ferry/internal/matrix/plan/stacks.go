package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// Columns of a survey; their one cell is what is asked about.
const (
	Providers = "providers" // what could the stack's transport use?
	Survey    = "survey"    // what does the stack's provider offer?
	Reaches   = "reaches"   // whom does the stack's BTL reach?
)

// SurveyLimit is how long one provider may take to say what it offers. MTLs have
// limits of their own, which are shorter and say more.
const SurveyLimit = 15 * time.Second

// ReachesLimit is how long a BTL may take to be opened and asked. One that takes longer counts
// as one for other processes; opening it shows what is wrong.
const ReachesLimit = 5 * time.Second

// surveysAtOnce is how many are asked at the same time: each mostly waits.
const maxParallelSurveys = 4

// An Answer is what a survey has found.
type SurveyResult struct {
	Providers    []string       `json:",omitempty"` // to Providers
	Offer        *mtl.Candidate `json:",omitempty"` // to Survey: the best, if it said
	Alone        bool           `json:",omitempty"` // to Reaches: only the process itself
	AbsentReason string         `json:"-"`          // why there is no such transport; empty: there is
	Log          string         `json:"-"`          // what the library below wrote
}

// Ask has a process survey a stack with more variables in its environment. ok is
// false if the process was lost.
type SurveyFunc func(ctx context.Context, s report.Stack, c Column, env []string) (a SurveyResult, ok bool)

// stacks finds the stacks that the registry amounts to: a PML over each BTL, over
// each provider of each MTL, or by itself. One that is not there says why. MTLs are
// asked in processes of their own; where one is lost over it, the stack counts as
// there, and opening it will show what is wrong. The error is that of ctx, or of
// parameters.
func (r *Request) findStacks(ctx context.Context, ask SurveyFunc) ([]report.Stack, error) {
	var all []report.Stack
	verdicts, err := r.Registry.Survey(ctx, framework.PML, r.Values)
	if err != nil {
		return nil, err
	}
	for _, v := range verdicts {
		base := report.Stack{Name: v.Name, PML: v.Name, Set: []string{"pml=" + v.Name}}
		c, _ := r.Registry.Lookup(framework.PML, v.Name)
		over := []report.Stack{base}
		if v.Status != framework.StatusUsable {
			over[0].Reason = v.Why()
			all = append(all, over...)
			continue
		}
		transport, err := r.transportKind(c)
		if err != nil {
			return nil, err
		}
		switch transport {
		case "":
		case framework.BTL:
			over, err = r.stacksOverBTLs(ctx, base, ask)
		case framework.MTL:
			over, err = r.stacksOverMTLs(ctx, base, all, ask)
		default:
			err = fmt.Errorf("%w: pml %s is over %s, which ferry matrix does not know", framework.ErrUnsupported, v.Name, transport)
		}
		if err == nil && transport != framework.MTL {
			err = r.disableMTLs(over)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, over...)
	}
	return all, ctx.Err()
}

// withoutMTL has stacks that use no MTL rule them out where a parameter of one is set: it
// is for other stacks, and would be refused beside these.
func (r *Request) disableMTLs(stacks []report.Stack) error {
	isSet, err := r.Registry.Asked(framework.MTL, r.Values)
	if err != nil || isSet == "" {
		return err
	}
	var names []string
	for _, c := range r.Registry.Components(framework.MTL) {
		names = append(names, c.Info().Name)
	}
	for i := range stacks {
		stacks[i].Set = append(stacks[i].Set, "mtl=^"+strings.Join(names, ","))
	}
	return nil
}

// below is the framework whose components move a PML's messages; empty if it moves
// them itself.
func (r *Request) transportKind(c framework.Component) (framework.Kind, error) {
	params := c.Params()
	if params != nil {
		if err := r.Values.Decode(string(framework.PML)+"."+c.Info().Name, params); err != nil {
			return "", err
		}
	}
	for _, need := range framework.Requires(c, params) {
		if !need.Node {
			return need.Kind, nil
		}
	}
	return "", nil
}

// over is a stack over a component.
func stackOver(s report.Stack, kind framework.Kind, name string, set string) report.Stack {
	s.Name += "+" + name
	s.Via = string(kind) + " " + name
	s.Set = append(slices.Clone(s.Set), set)
	return s
}

// overBTLs asks those BTLs that are chosen whom they reach: what applies to them depends on it.
func (r *Request) stacksOverBTLs(ctx context.Context, base report.Stack, ask SurveyFunc) ([]report.Stack, error) {
	verdicts, err := r.Registry.Survey(ctx, framework.BTL, r.Values)
	var all []report.Stack
	for _, v := range verdicts {
		list := v.Name
		if v.Name != report.SelfBTL {
			list = report.SelfBTL + "," + v.Name
		}
		s := stackOver(base, framework.BTL, v.Name, "btl="+list)
		if v.Status != framework.StatusUsable {
			s.Reason = v.Why()
		}
		all = append(all, s)
	}
	var g errgroup.Group
	g.SetLimit(maxParallelSurveys)
	for i := range all {
		s := &all[i]
		if s.Reason != "" || s.Alone() || !r.Components.Includes(s.Name) {
			continue
		}
		g.Go(func() error {
			_, name := s.Transport()
			if a, ok := ask(ctx, *s, Column{Name: Reaches, Cells: []string{s.Via}}, nil); ok && a.Alone {
				s.Self, s.Set = true, append(slices.Clone(base.Set), "btl="+name) // self would carry all
			}
			return nil
		})
	}
	_ = g.Wait() // none of them gives one
	return all, err
}

// sharedMemory is the parameter by which a PML leaves the processes of a node to
// another one.
func sharedMemoryParam(pml string) string {
	return string(framework.PML) + "." + pml + ".shared_memory"
}

// Overridden returns the first of Set that every stack sets anew, because it is made so;
// empty: there is none.
func (r *Request) FixedParam() string {
	fixed := []string{string(framework.PML), string(framework.BTL), string(framework.MTL)}
	for _, c := range r.Registry.Components(framework.PML) {
		fixed = append(fixed, sharedMemoryParam(c.Info().Name))
	}
	for _, set := range r.Set {
		if name, _, _ := strings.Cut(set, "="); slices.Contains(fixed, name) {
			return set
		}
	}
	return ""
}

// overMTLs does not probe: that may load a library, which is not for this process.
// others are the stacks that are known already.
func (r *Request) stacksOverMTLs(ctx context.Context, base report.Stack, others []report.Stack, ask SurveyFunc) ([]report.Stack, error) {
	name := sharedMemoryParam(base.PML)
	if _, ok := r.Values.Spec(name); ok {
		base.Set = append(base.Set, name+"=false") // the network carries all, on one node too
	}
	var all []report.Stack
	for _, c := range r.Registry.Components(framework.MTL) {
		s := stackOver(base, framework.MTL, c.Info().Name, "mtl="+c.Info().Name)
		if r.Components != nil && !r.Components.canMatch(s.Name, others) {
			continue
		}
		all = append(all, r.stacksOverMTL(ctx, s, c, ask)...)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	// The machine's own come before those that it lacks.
	slices.SortStableFunc(all, func(a, b report.Stack) int {
		return cmp.Compare(min(len(a.Reason), 1), min(len(b.Reason), 1))
	})
	return all, nil
}

// overMTL asks an MTL for its providers, and each of them.
func (r *Request) stacksOverMTL(ctx context.Context, s report.Stack, c framework.Component, ask SurveyFunc) []report.Stack {
	a, ok := ask(ctx, s, Column{Name: Providers, Cells: []string{s.Via}}, nil)
	s.Reason = a.AbsentReason
	surveyor, canSurvey := framework.As[mtl.Surveyor](c)
	with := func(provider string) report.Stack {
		p := s
		p.Name, p.Provider = s.Name+" "+provider, provider
		p.Set = append(slices.Clone(s.Set), "mtl."+c.Info().Name+".provider_include="+provider)
		return p
	}
	all := []report.Stack{s}
	if (!ok || a.AbsentReason != "") && canSurvey { // those that somebody has named say what is wrong
		for _, name := range slices.Concat(r.Components.providersOf(s.Name), r.Require.providersOf(s.Name)) {
			if p := with(name); !slices.ContainsFunc(all, func(x report.Stack) bool { return x.Name == p.Name }) {
				all = append(all, p)
			}
		}
	}
	if !ok || !canSurvey || len(a.Providers) == 0 {
		return all
	}
	all = make([]report.Stack, len(a.Providers))
	var g errgroup.Group
	g.SetLimit(maxParallelSurveys)
	for i, name := range a.Providers {
		p := &all[i]
		*p = with(name)
		if !r.Components.Includes(p.Name) {
			continue // it has a name, and that is all that is needed of it
		}
		g.Go(func() error {
			if a, ok := ask(ctx, *p, Column{Name: Survey, Cells: []string{name}}, surveyor.LogEnvironment()); ok {
				applyCandidate(p, a, surveyor.LogReason(name, a.Log))
			}
			return nil
		})
	}
	_ = g.Wait() // none of them gives one
	return all
}

// judge takes over what a provider answers. log is what the library wrote about why
// it offers nothing.
func applyCandidate(s *report.Stack, a SurveyResult, log string) {
	s.Reason = a.AbsentReason
	offer := a.Offer
	if offer == nil {
		return
	}
	s.Library = offer.Library
	_, s.Device, _ = strings.Cut(offer.Name, " on ")
	if offer.Refused || offer.Unavailable {
		s.Reason, s.Hangs, s.Refused = offer.Reason, offer.Hangs, offer.Defect
	}
	if offer.Unavailable && log != "" {
		s.Reason += ": " + log
	}
}
