package matrix

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

const (
	// surveyLimit is how long one provider may take to say what it offers. MTLs have
	// limits of their own, which are shorter and say more.
	surveyLimit = 15 * time.Second
	// surveysAtOnce is how many are asked at the same time: each mostly waits.
	surveysAtOnce = 4
)

// Stacks finds the stacks that the registry amounts to: a PML over each BTL, over
// each provider of each MTL, or by itself. One that is not there says why. MTLs are
// asked in processes of their own; where one is lost over it, the stack counts as
// there, and opening it will show what is wrong. The error is that of ctx, or of
// parameters.
func (r *Runner) Stacks(ctx context.Context) ([]report.Stack, error) {
	var all []report.Stack
	verdicts, err := r.Registry.Survey(ctx, framework.PML, r.Values)
	if err != nil {
		return nil, err
	}
	for _, v := range verdicts {
		base := report.Stack{Name: v.Name, PML: v.Name, Set: []string{"pml=" + v.Name}}
		if v.Status != framework.StatusUsable {
			base.Reason = because(v)
			all = append(all, base)
			continue
		}
		c, _ := r.Registry.Lookup(framework.PML, v.Name)
		layered, ok := framework.As[pml.Layered](c)
		if !ok {
			all = append(all, base)
			continue
		}
		var over []report.Stack
		switch layered.Below() {
		case framework.BTL:
			over, err = r.overBTLs(ctx, base)
		case framework.MTL:
			over, err = r.overMTLs(ctx, base, all)
		default:
			err = fmt.Errorf("%w: pml %s is over %s, of which ferry matrix knows nothing", framework.ErrUnsupported, v.Name, layered.Below())
		}
		if err != nil {
			return nil, err
		}
		all = append(all, over...)
	}
	return all, ctx.Err()
}

// because is why a component can't be used.
func because(v framework.Verdict) string {
	if v.Hint == "" {
		return v.Reason
	}
	return v.Reason + " (" + v.Hint + ")"
}

// over is a stack over a component.
func over(s report.Stack, kind framework.Kind, name string, set ...string) report.Stack {
	s.Name += "+" + name
	s.Via = string(kind) + " " + name
	s.Set = slices.Concat(s.Set, set)
	return s
}

func (r *Runner) overBTLs(ctx context.Context, base report.Stack) ([]report.Stack, error) {
	verdicts, err := r.Registry.Survey(ctx, framework.BTL, r.Values)
	if err != nil {
		return nil, err
	}
	var all []report.Stack
	for _, v := range verdicts {
		list := v.Name
		if v.Name != report.SelfBTL {
			list = report.SelfBTL + "," + v.Name
		}
		s := over(base, framework.BTL, v.Name, "btl="+list)
		if v.Status != framework.StatusUsable {
			s.Reason = because(v)
		}
		all = append(all, s)
	}
	return all, nil
}

// overMTLs does not probe: that may load a library, which is not for this process.
// others are the stacks that are known already.
func (r *Runner) overMTLs(ctx context.Context, base report.Stack, others []report.Stack) ([]report.Stack, error) {
	if name := "pml." + base.PML + ".shared_memory"; hasParam(r.Values, name) {
		base.Set = append(base.Set, name+"=false") // the network carries all, on one node too
	}
	var all []report.Stack
	for _, c := range r.Registry.Components(framework.MTL) {
		s := over(base, framework.MTL, c.Info().Name, "mtl="+c.Info().Name)
		if r.Components != nil && !r.Components.May(s.Name, others) {
			continue
		}
		stacks, err := r.overMTL(ctx, s, c)
		if err != nil {
			return nil, err
		}
		all = append(all, stacks...)
	}
	// The machine's own come before those that it lacks.
	slices.SortStableFunc(all, func(a, b report.Stack) int {
		return cmp.Compare(min(len(a.Reason), 1), min(len(b.Reason), 1))
	})
	return all, nil
}

// hasParam says whether there is a parameter of that name.
func hasParam(v *framework.Values, name string) bool {
	_, ok := v.Spec(name)
	return ok
}

// overMTL asks an MTL for its providers, and each of them.
func (r *Runner) overMTL(ctx context.Context, s report.Stack, c framework.Component) ([]report.Stack, error) {
	answer, end := r.ask(ctx, s, taskProviders, nil)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	switch {
	case answer.Status == report.Unavailable:
		s.Reason = answer.Reason
		return []report.Stack{s}, nil
	case end.lost() || len(answer.Providers) == 0:
		return []report.Stack{s}, nil
	}
	asks, ok := framework.As[mtl.Surveyor](c)
	if !ok {
		return []report.Stack{s}, nil
	}
	include := "mtl." + c.Info().Name + ".provider_include="
	all := make([]report.Stack, len(answer.Providers))
	room := make(chan struct{}, surveysAtOnce)
	var wg sync.WaitGroup
	for i, name := range answer.Providers {
		p := &all[i]
		*p = s
		p.Name, p.Provider = s.Name+" "+name, name
		p.Set = append(slices.Clone(s.Set), include+name)
		if !r.Components.Takes(p.Name) {
			continue // it has a name, and that is all that is needed of it
		}
		wg.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			answer, end := r.ask(ctx, *p, taskSurvey, asks.LogEnvironment())
			switch {
			case answer.Status == report.Unavailable:
				p.Reason = answer.Reason
			case !end.lost():
				judge(p, answer.Offer, asks.LogReason(name, end.output))
			}
		})
	}
	wg.Wait()
	return all, ctx.Err()
}

// judge takes over what the provider offers at best; nil: it did not say. log is
// what the library wrote about it.
func judge(s *report.Stack, offer *mtl.Candidate, log string) {
	if offer == nil {
		return
	}
	s.Library = offer.Library
	_, s.Device, _ = strings.Cut(offer.Name, " on ")
	if offer.Refused || offer.Unavailable {
		s.Reason, s.Hangs = offer.Reason, offer.Hangs
	}
	if offer.Unavailable && log != "" {
		s.Reason += ": " + log
	}
}

// ask has a worker survey.
func (r *Runner) ask(ctx context.Context, s report.Stack, what string, env []string) (answer event, end ending) {
	about := s.Provider
	if about == "" {
		about = s.Via
	}
	end = r.work(ctx, assignment{
		task: task{Column: what, Via: s.Via, Cases: []string{about}}, set: s.Set, env: env, limit: surveyLimit,
		hear: func(e event) error {
			if e.Status != "" {
				answer = e
			}
			return nil
		},
	})
	return answer, end
}
