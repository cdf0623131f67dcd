package pmltest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework/kittest"
)

// Metamorphic runs the plans of a seed, one of a single process and one of several, over each variant. The error
// has the seed, the variant, and the smallest plan found that fails
// there.
func Metamorphic(ctx context.Context, seed uint64, variants []Variant) error {
	for _, ranks := range []int{1, 2 + int(seed%3)} {
		for _, v := range variants {
			if v.Ranks != 0 && ranks > v.Ranks {
				continue
			}
			if err := v.play(ctx, NewPlan(seed, ranks)); err != nil {
				return err
			}
		}
	}
	return nil
}

// play runs a plan. Its error has the first failure and that of the smallest failing plan.
func (v Variant) play(ctx context.Context, p Plan) error {
	err := runPlan(ctx, p, v, cmp.Or(v.Limit, planLimit))
	if err == nil {
		return nil
	}
	small, smallErr := shrink(ctx, p, v)
	if smallErr == nil {
		return fmt.Errorf("seed %d, %s: %w\nit did not fail again, when tried to be made smaller:\n%v", p.Seed, v.Name, err, p)
	}
	return fmt.Errorf("seed %d, %s: %w\nas it failed at first: %w\n%v", p.Seed, v.Name, smallErr, err, small)
}

func randomCases() claims {
	return claims{
		kittest.New("ProcessReachesItself", 1, (*fixture).randomPlans),
		kittest.New("RandomProgram_AnyStack_HasTheOutcomeOfTheStandard", 3, (*fixture).randomPlans),
	}
}

// plansPerCase is the number of programs in a case.
const plansPerCase = 3

// randomPlans checks that random combinations of messages, probes, truncation, layouts, cancellation and
// communicators have the outcome that the standard requires.
func (f *fixture) randomPlans() {
	v := Variant{Name: "policy " + f.cidPolicy.String(), Stack: f.stack, Policy: f.cidPolicy}
	for range plansPerCase {
		f.Check(v.play(f.Context(), NewPlan(rand.Uint64(), len(f.Procs))))
	}
}

// Limits of the search for a smaller plan. A failure may depend on timing, so that a plan counts as correct only
// after several runs without a failure.
const (
	shrinkTime  = 30 * time.Second
	shrinkTries = 5
	shrinkHang  = 2 * time.Second
)

// shrink removes parts of a failing plan as long as it fails.
func shrink(ctx context.Context, p Plan, v Variant) (Plan, error) {
	end := time.Now().Add(shrinkTime)
	var last error
	fails := func(q Plan) bool {
		for range shrinkTries {
			if time.Now().After(end) || ctx.Err() != nil {
				return false
			}
			if err := runPlan(ctx, q, v, max(shrinkHang, v.Limit/10)); err != nil {
				last = err
				return true
			}
		}
		return false
	}
	if !fails(p) {
		return p, nil
	}
	for smaller := true; smaller; {
		smaller = false
		for _, q := range p.parts() {
			if fails(q) {
				p, smaller = q, true
				break
			}
		}
	}
	return p, last
}

// parts returns plans that lack parts of p, larger parts first. Phases and communicators stay, empty, because
// other parts refer to them by index.
func (p Plan) parts() (all []Plan) {
	with := func(i int, ph PlanPhase) {
		q := p
		q.Phases = slices.Clone(p.Phases)
		q.Phases[i] = ph
		all = append(all, q)
	}
	for i, ph := range p.Phases {
		if len(ph.Classes)+len(ph.Events) > 0 {
			with(i, PlanPhase{Barrier: ph.Barrier})
		}
	}
	for i, ph := range p.Phases {
		for j := range ph.Classes {
			q := ph
			q.Classes = slices.Delete(slices.Clone(ph.Classes), j, j+1)
			with(i, q)
		}
		if len(ph.Events) > 0 {
			q := ph
			q.Events = ph.Events[:len(ph.Events)-1]
			with(i, q)
		}
	}
	for i, ph := range p.Phases {
		for j, k := range ph.Classes {
			for n := range k.Messages {
				if len(k.Messages) == 1 {
					break
				}
				q := ph
				q.Classes = slices.Clone(ph.Classes)
				q.Classes[j].Messages = slices.Delete(slices.Clone(k.Messages), n, n+1)
				with(i, q)
			}
		}
	}
	return all
}
