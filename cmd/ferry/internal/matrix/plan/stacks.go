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

// Columns of a survey, with one cell for its subject.
const (
	Providers = "providers" // Providers of the stack's transport.
	Survey    = "survey"    // Candidates of the stack's provider.
	Reaches   = "reaches"   // Whether the stack's BTL reaches other processes.
)

// SurveyLimit is the limit of the survey of one provider. MTLs have shorter limits with more precise errors.
const SurveyLimit = 15 * time.Second

// ReachesLimit is the limit to open a BTL for Reaches. After it, the BTL counts as one for other processes, and
// report.OpenCase reports the problem.
const ReachesLimit = 5 * time.Second

// maxParallelSurveys is the number of concurrent surveys. They mostly wait.
const maxParallelSurveys = 4

// A SurveyResult is the result of a survey.
type SurveyResult struct {
	// Result of Providers.
	Providers []string `json:",omitempty"`
	// Result of Survey, or nil.
	BestCandidate *mtl.Candidate `json:",omitempty"`
	// Set for such a BTL.
	ReachesOnlySelf bool `json:",omitempty"`
	// Reason why the transport is unavailable, or "".
	AbsentReason string `json:"-"`
	// Output of the library.
	LibraryLog string `json:"-"`
}

// A SurveyFunc surveys a stack in another process with additional environment variables. ok is false if the process
// was lost.
type SurveyFunc func(ctx context.Context, s report.Stack, c Column, env []string) (a SurveyResult, ok bool)

// findStacks returns the stacks of the registry: a PML over each BTL, over each provider of each MTL, or alone.
// Unavailable ones have a reason. MTLs are surveyed in separate processes. If one crashes, its stack is included,
// and report.OpenCase reports the problem. It returns the error of ctx or of the parameters.
func (r *Request) findStacks(ctx context.Context, survey SurveyFunc) ([]report.Stack, error) {
	var all []report.Stack
	verdicts, err := r.Registry.Survey(ctx, framework.PML, r.Values)
	if err != nil {
		return nil, err
	}
	for _, v := range verdicts {
		base := report.Stack{Name: v.Name, PML: v.Name, SetParams: []string{"pml=" + v.Name}}
		c, _ := r.Registry.Lookup(framework.PML, v.Name)
		found := []report.Stack{base}
		if v.Status != framework.StatusUsable {
			found[0].AbsentReason = v.Why()
			all = append(all, found...)
			continue
		}
		transport, err := r.transportKind(c)
		if err != nil {
			return nil, err
		}
		switch transport {
		case "":
		case framework.BTL:
			found, err = r.stacksOverBTLs(ctx, base, survey)
		case framework.MTL:
			found, err = r.stacksOverMTLs(ctx, base, all, survey)
		default:
			err = fmt.Errorf("%w: pml %s is over %s, which ferry matrix does not support", framework.ErrUnsupported, v.Name, transport)
		}
		if err == nil && transport != framework.MTL {
			err = r.disableMTLs(found)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, ctx.Err()
}

// disableMTLs excludes the MTLs from stacks without one, if a parameter of an MTL is set. It would be an error for
// these stacks.
func (r *Request) disableMTLs(stacks []report.Stack) error {
	isSet, err := r.Registry.RequestFor(framework.MTL, r.Values)
	if err != nil || isSet == "" {
		return err
	}
	var names []string
	for _, c := range r.Registry.Components(framework.MTL) {
		names = append(names, c.Info().Name)
	}
	for i := range stacks {
		stacks[i].SetParams = append(stacks[i].SetParams, "mtl=^"+strings.Join(names, ","))
	}
	return nil
}

// transportKind returns the framework whose components transfer a PML's messages, or "" if the PML does.
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

// stackOver returns the stack over a component.
func stackOver(s report.Stack, kind framework.Kind, name string, set string) report.Stack {
	s.Name += "+" + name
	s.ViaComponent = string(kind) + " " + name
	s.SetParams = append(slices.Clone(s.SetParams), set)
	return s
}

// stacksOverBTLs surveys the reach of the selected BTLs, on which their cases depend.
func (r *Request) stacksOverBTLs(ctx context.Context, base report.Stack, survey SurveyFunc) ([]report.Stack, error) {
	verdicts, err := r.Registry.Survey(ctx, framework.BTL, r.Values)
	var all []report.Stack
	for _, v := range verdicts {
		list := v.Name
		if v.Name != report.SelfBTL {
			list = report.SelfBTL + "," + v.Name
		}
		s := stackOver(base, framework.BTL, v.Name, "btl="+list)
		if v.Status != framework.StatusUsable {
			s.AbsentReason = v.Why()
		}
		all = append(all, s)
	}
	var g errgroup.Group
	g.SetLimit(maxParallelSurveys)
	for i := range all {
		s := &all[i]
		if s.AbsentReason != "" || s.Alone() || !r.SelectedStacks.Includes(s.Name) {
			continue
		}
		g.Go(func() error {
			_, name := s.Transport()
			if a, ok := survey(ctx, *s, Column{Name: Reaches, CellNames: []string{s.ViaComponent}}, nil); ok && a.ReachesOnlySelf {
				s.ReachesOnlySelf, s.SetParams = true, append(slices.Clone(base.SetParams), "btl="+name) // With self, that would carry all messages.
			}
			return nil
		})
	}
	_ = g.Wait()
	return all, err
}

// sharedMemoryParam is the parameter with which a PML leaves the processes of a node to another PML.
func sharedMemoryParam(pml string) string {
	return string(framework.PML) + "." + pml + ".shared_memory"
}

// FixedParam returns the first parameter in SetParams that every stack overrides, or "".
func (r *Request) FixedParam() string {
	fixed := []string{string(framework.PML), string(framework.BTL), string(framework.MTL)}
	for _, c := range r.Registry.Components(framework.PML) {
		fixed = append(fixed, sharedMemoryParam(c.Info().Name))
	}
	for _, set := range r.SetParams {
		if name, _, _ := strings.Cut(set, "="); slices.Contains(fixed, name) {
			return set
		}
	}
	return ""
}

// stacksOverMTLs does not probe MTLs, because that may load a library into this process. others are the stacks found
// so far.
func (r *Request) stacksOverMTLs(ctx context.Context, base report.Stack, others []report.Stack, survey SurveyFunc) ([]report.Stack, error) {
	name := sharedMemoryParam(base.PML)
	if _, ok := r.Values.Spec(name); ok {
		base.SetParams = append(base.SetParams, name+"=false") // The network carries messages of one node, too.
	}
	var all []report.Stack
	for _, c := range r.Registry.Components(framework.MTL) {
		s := stackOver(base, framework.MTL, c.Info().Name, "mtl="+c.Info().Name)
		if r.SelectedStacks != nil && !r.SelectedStacks.canMatch(s.Name, others) {
			continue
		}
		all = append(all, r.stacksOverMTL(ctx, s, c, survey)...)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	// Available stacks come first.
	slices.SortStableFunc(all, func(a, b report.Stack) int {
		return cmp.Compare(min(len(a.AbsentReason), 1), min(len(b.AbsentReason), 1))
	})
	return all, nil
}

// stacksOverMTL surveys the providers of an MTL.
func (r *Request) stacksOverMTL(ctx context.Context, s report.Stack, c framework.Component, survey SurveyFunc) []report.Stack {
	a, ok := survey(ctx, s, Column{Name: Providers, CellNames: []string{s.ViaComponent}}, nil)
	s.AbsentReason = a.AbsentReason
	surveyor, canSurvey := framework.As[mtl.Surveyor](c)
	with := func(provider string) report.Stack {
		p := s
		p.Name, p.Provider = s.Name+" "+provider, provider
		p.SetParams = append(slices.Clone(s.SetParams), "mtl."+c.Info().Name+".provider_include="+provider)
		return p
	}
	all := []report.Stack{s}
	if (!ok || a.AbsentReason != "") && canSurvey { // Named providers get the reason.
		for _, name := range slices.Concat(r.SelectedStacks.providersOf(s.Name), r.RequiredStacks.providersOf(s.Name)) {
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
		if !r.SelectedStacks.Includes(p.Name) {
			continue // Only its name is needed.
		}
		g.Go(func() error {
			if a, ok := survey(ctx, *p, Column{Name: Survey, CellNames: []string{name}}, surveyor.LogEnvironment()); ok {
				applyCandidate(p, a, surveyor.LogReason(name, a.LibraryLog))
			}
			return nil
		})
	}
	_ = g.Wait()
	return all
}

// applyCandidate sets the fields of a provider's stack from its survey. log is the library's reason for an
// unavailable provider.
func applyCandidate(s *report.Stack, a SurveyResult, log string) {
	s.AbsentReason = a.AbsentReason
	offer := a.BestCandidate
	if offer == nil {
		return
	}
	s.Library = offer.Library
	_, s.Device, _ = strings.Cut(offer.Name, " on ")
	if offer.Refused || offer.Unavailable {
		s.AbsentReason, s.SurveyHangs, s.IsRefused = offer.Reason, offer.Hangs, offer.Defect
	}
	if offer.Unavailable && log != "" {
		s.AbsentReason += ": " + log
	}
}
