package framework

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// applyMTLRequest applies a request for an MTL. Without a configured PML it returns values that select one over MTLs. It returns ErrConfig if no configured
// PML uses MTLs. A parameter of one MTL requests that MTL.
//
// A request is the parameter mtl, or a parameter of an MTL, from the command line, the environment or the program. Settings in files are for all
// jobs, including those without an MTL, and request nothing. Neither do parameters of an MTL that mtl excludes.
func (r *Registry) applyMTLRequest(ctx context.Context, vals *Values) (*Values, error) {
	asked, of, err := r.requestFor(MTL, vals)
	if err != nil || asked == "" {
		return vals, err
	}
	if len(of) > 0 {
		vals, err = vals.Set(Setting{Name: string(MTL), Value: strings.Join(of, ","), Source: "for " + asked})
		if err != nil {
			return nil, err
		}
	}
	using, err := r.pmlsUsing(MTL, vals)
	if err != nil {
		return nil, err
	}
	value, _ := vals.Get(string(PML))
	list, err := parseSelection(PML, value)
	if err != nil {
		return nil, err
	}
	if value.isSet() && len(list.names) > 0 {
		using = slices.DeleteFunc(using, func(name string) bool { return slices.Contains(list.names, name) == list.isExclusion })
		if len(using) == 0 {
			return nil, fmt.Errorf("%w: %s requests an mtl, and %s leaves no pml that uses one: remove one of them, or choose another pml", ErrConfig, asked, list)
		}
		if !list.isExclusion {
			return vals, nil
		}
	}
	if len(using) == 0 {
		if _, err := r.Select(ctx, MTL, vals); err != nil {
			return nil, err // It has more details.
		}
		return nil, fmt.Errorf("%w: %s requests an mtl, and this program has no pml that uses one", ErrConfig, asked)
	}
	return vals.Set(Setting{Name: string(PML), Value: using[0], Source: "for " + asked})
}

// RequestFor returns the request for components of kind as messages show it, or "" if there is none.
func (r *Registry) RequestFor(kind Kind, vals *Values) (string, error) {
	by, _, err := r.requestFor(kind, vals)
	return by, err
}

// requestFor implements RequestFor. It also returns the components whose parameters form the request, none if the list of kind does.
func (r *Registry) requestFor(kind Kind, vals *Values) (by string, of []string, err error) {
	value, _ := vals.Get(string(kind))
	list, err := parseSelection(kind, value)
	if err != nil {
		return "", nil, err
	}
	if list.isBinding() {
		return list.String(), nil, nil
	}
	for _, name := range vals.Names() {
		rest, ok := strings.CutPrefix(name, string(kind)+".")
		component, _, _ := strings.Cut(rest, ".")
		v, _ := vals.Get(name)
		if !ok || !v.isSet() || v.IsStanding || !list.allows(component) {
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

// pmlsUsing returns the PMLs of the program that require components of kind for all processes, by descending priority.
func (r *Registry) pmlsUsing(kind Kind, vals *Values) ([]string, error) {
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
