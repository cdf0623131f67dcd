package coll

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// Force is the content of parameter coll.force, by operation.
type Force [Operations]Forced

// Forced is a component and one of its algorithms. An empty Algorithm allows all.
type Forced struct{ Component, Algorithm string }

// probeShapes are shapes for which components are queried to list their algorithms. An algorithm may be
// limited to certain numbers of ranks or nodes.
var probeShapes = []Shape{{Size: 2}, {Size: 3}, {Size: 8}, {Size: 4, Nodes: PlacementOf(0, 0, 1, 1)}}

// ParseForce parses entries such as allreduce=tuned:ring and bcast=shm, and checks them against the
// selected components. It returns ErrConfig for an unknown name and for a component that is not
// selected. Without entries it returns nil.
func ParseForce(entries []string, s *framework.Selection) (*Force, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	var f Force
	for _, entry := range entries {
		if err := f.addEntry(entry, s); err != nil {
			return nil, fmt.Errorf("%w: parameter coll.force: %s: %w", framework.ErrConfig, entry, err)
		}
	}
	return &f, nil
}

func (f *Force) addEntry(entry string, s *framework.Selection) error {
	left, right, ok := strings.Cut(entry, "=")
	if !ok {
		return errors.New("want OPERATION=COMPONENT or OPERATION=COMPONENT:ALGORITHM")
	}
	left = strings.TrimSpace(left)
	component, algorithm, named := strings.Cut(strings.TrimSpace(right), ":")
	op := slices.Index(operationNames[:Operations], left)
	if op < 0 {
		return unknownNameError("there is no operation", left, operationNames[:Operations])
	}
	if f[op] != (Forced{}) {
		return fmt.Errorf("%s appears twice in the list", left)
	}
	var have []string
	for _, v := range s.Verdicts {
		if have = append(have, v.Name); v.Name == component && v.Status != framework.StatusSelected {
			return fmt.Errorf("coll %s is %v: %s", component, v.Status, v.Reason)
		}
	}
	i := slices.IndexFunc(s.Chosen, func(c framework.Choice) bool { return c.Verdict.Name == component })
	if i < 0 {
		return unknownNameError("there is no coll component", component, have)
	}
	known := algorithmNames(s.Chosen[i], Operation(op))
	if len(known) == 0 {
		return fmt.Errorf("coll %s has no %s", component, left)
	}
	if named && !slices.Contains(known, algorithm) {
		return unknownNameError(fmt.Sprintf("coll %s has no algorithm for %s named", component, left), algorithm, known)
	}
	f[op] = Forced{component, algorithm}
	return nil
}

// unknownNameError returns an error that lists the known names.
func unknownNameError(what, name string, known []string) error {
	return fmt.Errorf("%s %q; the nearest is %q, of %s", what, name, framework.Nearest(name, known), strings.Join(known, ", "))
}

// algorithmNames returns the names of a component's algorithms for an operation.
func algorithmNames(c framework.Choice, op Operation) (known []string) {
	component, ok := c.Component.(Component)
	if !ok {
		return nil
	}
	for _, shape := range probeShapes {
		o := component.Query(c.Params, shape)
		if o == nil {
			continue
		}
		for _, a := range o.Algorithms {
			if a.Op == op && !slices.Contains(known, a.Name) {
				known = append(known, a.Name)
			}
		}
	}
	return known
}

// forcedChoices returns the choices of an operation with a forced algorithm, or nil if no component offers
// that here.
func forcedChoices(offers []ComponentOffer, op Operation, f Forced) []Choice {
	for _, o := range offers {
		if o.Component != f.Component {
			continue
		}
		if f.Algorithm == "" {
			return bestChoices([]ComponentOffer{o}, op, nearestAlgorithm)
		}
		for i := range o.Algorithms {
			if a := &o.Algorithms[i]; a.Op == op && a.Name == f.Algorithm {
				return []Choice{{Component: o.Component, Algorithm: a}}
			}
		}
	}
	return nil
}

// nearestAlgorithm is bestAlgorithm with a result at each size. It falls back to the algorithm for the next
// larger size, or else for the next smaller one.
func nearestAlgorithm(offers []ComponentOffer, op Operation, size int) Choice {
	best := bestAlgorithm(offers, op, size)
	if best.Algorithm != nil {
		return best
	}
	distance := func(a *Algorithm) int {
		switch {
		case a.From == Never:
			return Never
		case a.From > size:
			return a.From - size
		}
		return Never/2 + size - a.Below
	}
	for _, o := range offers {
		for i := range o.Algorithms {
			if a := &o.Algorithms[i]; a.Op == op && (best.Algorithm == nil || distance(a) < distance(best.Algorithm)) {
				best.Component, best.Algorithm = o.Component, a
			}
		}
	}
	return best
}
