package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// request has an MTL that somebody asked for be used: where no PML was chosen, values are
// returned in which one is that uses MTLs. It is ErrConfig if the chosen ones use none. Whoever
// sets a parameter of one MTL gets that one, and not another that is there as well.
//
// A request is the parameter mtl, or one of an MTL, from the command line, the
// environment or the program. What stands in a file is for all jobs, also for those that
// use no MTL. Parameters of an MTL that mtl rules out ask for nothing.
func (r *Registry) request(ctx context.Context, vals *Values) (*Values, error) {
	asked, of, err := r.asked(MTL, vals)
	if err != nil || asked == "" {
		return vals, err
	}
	if len(of) > 0 {
		vals, err = vals.Set(Setting{Name: string(MTL), Value: strings.Join(of, ","), Source: "for " + asked})
		if err != nil {
			return nil, err
		}
	}
	using, err := r.using(MTL, vals)
	if err != nil {
		return nil, err
	}
	value, _ := vals.Get(string(PML))
	list, err := parseSelection(PML, value)
	if err != nil {
		return nil, err
	}
	if value.set() && len(list.names) > 0 {
		using = slices.DeleteFunc(using, func(name string) bool { return slices.Contains(list.names, name) == list.exclude })
		if len(using) == 0 {
			return nil, fmt.Errorf("%w: %s asks for an mtl, and %s leaves no pml that uses one: leave out one of them, or choose another pml", ErrConfig, asked, list)
		}
		if !list.exclude {
			return vals, nil
		}
	}
	if len(using) == 0 {
		if _, err := r.Select(ctx, MTL, vals); err != nil {
			return nil, err // that says more
		}
		return nil, fmt.Errorf("%w: %s asks for an mtl, and this program has no pml that uses one", ErrConfig, asked)
	}
	return vals.Set(Setting{Name: string(PML), Value: using[0], Source: "for " + asked})
}

// Asked returns what asks for a component of kind, as messages show it, or "" if nothing
// does.
func (r *Registry) Asked(kind Kind, vals *Values) (string, error) {
	by, _, err := r.asked(kind, vals)
	return by, err
}

// asked is Asked, with the components whose parameters ask; none if the list of kind does.
func (r *Registry) asked(kind Kind, vals *Values) (by string, of []string, err error) {
	value, _ := vals.Get(string(kind))
	list, err := parseSelection(kind, value)
	if err != nil {
		return "", nil, err
	}
	if list.binds() {
		return list.String(), nil, nil
	}
	for _, name := range vals.Names() {
		rest, ok := strings.CutPrefix(name, string(kind)+".")
		component, _, _ := strings.Cut(rest, ".")
		v, _ := vals.Get(name)
		if !ok || !v.set() || v.Standing || !list.allows(component) {
			continue
		}
		if by == "" {
			spec, _ := vals.Spec(name)
			by = fmt.Sprintf("%s=%s (%s)", name, spec.Redact(v.Text), v.Source)
		}
		if !slices.Contains(of, component) {
			of = append(of, component)
		}
	}
	return by, of, nil
}

// using returns the PMLs that are compiled in and require components of kind for all
// processes, by falling priority.
func (r *Registry) using(kind Kind, vals *Values) ([]string, error) {
	var names []string
	for _, e := range r.byPriority(PML) {
		if e.component == nil {
			continue
		}
		params := e.component.Params()
		if err := vals.Decode(ComponentName(PML, e.info.Name), params); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(Requires(e.component, params), func(q Requirement) bool { return q.Kind == kind && !q.Node }) {
			names = append(names, e.info.Name)
		}
	}
	return names, nil
}
