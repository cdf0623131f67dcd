package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Choice is a selected component.
type Choice struct {
	Component Component
	// Filled result of Component.Params, nil if it has no parameters.
	Params  any
	Verdict Verdict
}

// Selection is the result of selection in one framework.
type Selection struct {
	Kind Kind
	// Chosen has the selected components in the order of an include list, otherwise by descending priority.
	Chosen []Choice
	// Verdicts has one verdict for each known component. Those that are compiled in are first, by descending priority, then the others by
	// name.
	Verdicts []Verdict

	requestedList *selectionList
	// Reason why the first of Chosen precedes higher priorities. See PreferNetwork.
	preferredReason string
}

// Select chooses among the components of kind. It selects all usable components that the selection parameter allows, which has the name of kind:
//
//	""           all
//	"shm,self"   these, in this order
//	"^tcp,shm"   all but these
//
// Excluded components are not probed. The probes of the others run concurrently. A probe that panics or does not return within 2 s has failed.
//
// A configured include list is binding. If one of its components is unknown, not built or unusable, Select returns an error with the reason and the
// usable components. A list in components.yaml is only a preference, as is a list of MTLs in a file. Exclude lists may contain components that are
// not built, but no unknown names. All these errors match ErrConfig. If ctx ends during the probes, Select returns its cause.
//
// Chosen may be empty without an error if no component is usable and none was requested. See TakeFirst and CheckChosen.
func (r *Registry) Select(ctx context.Context, kind Kind, vals *Values) (*Selection, error) {
	value, _ := vals.Get(string(kind))
	list, err := parseSelection(kind, value)
	if err != nil {
		return nil, err
	}
	if err := r.checkNames(list); err != nil {
		return nil, err
	}
	probed, err := r.probe(ctx, kind, vals, list.allows)
	if err != nil {
		return nil, err
	}
	s := &Selection{Kind: kind, requestedList: list}
	for _, p := range probed {
		switch {
		case p.Component == nil: // Not built.
		case !list.allows(p.Verdict.Name) && list.isExclusion:
			p.Verdict.Status, p.Verdict.Reason = StatusNotSelected, "excluded by "+list.String()
		case !list.allows(p.Verdict.Name):
			p.Verdict.Status, p.Verdict.Reason = StatusNotSelected, "not in list "+list.String()
		case p.Verdict.Status == StatusUsable:
			p.Verdict.Status = StatusSelected
			s.Chosen = append(s.Chosen, p)
		}
		s.Verdicts = append(s.Verdicts, p.Verdict)
	}
	if len(list.names) > 0 && !list.isExclusion {
		slices.SortStableFunc(s.Chosen, func(a, b Choice) int {
			return cmp.Compare(slices.Index(list.names, a.Verdict.Name), slices.Index(list.names, b.Verdict.Name))
		})
	}
	if len(list.names) == 0 || list.isExclusion {
		s.preferSuited()
	}
	if list.isBinding() {
		if err := r.checkBound(ctx, s, vals); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// preferSuited moves the components that serve this machine's hardware best to the front (Verdict.Suits), and adds the reason to their verdicts.
func (s *Selection) preferSuited() {
	if len(s.Chosen) < 2 {
		return
	}
	for i := range s.Chosen {
		if c := &s.Chosen[i].Verdict; c.Suits {
			c.Reason = fmt.Sprintf("it serves %s of this machine best", c.Network)
			s.verdict(c.Name).Reason = c.Reason
		}
	}
	slices.SortStableFunc(s.Chosen, func(a, b Choice) int {
		switch {
		case a.Verdict.Suits == b.Verdict.Suits:
			return 0
		case a.Verdict.Suits:
			return -1
		}
		return 1
	})
}

// SelectAll selects in every framework of the registry. Requests are binding in all of them, also if the chosen components do not use the framework.
// A request for an MTL or a parameter of one selects a PML that uses it. Unknown names in any list are reported before other errors.
func (r *Registry) SelectAll(ctx context.Context, vals *Values) (map[Kind]*Selection, error) {
	for _, k := range r.kinds {
		value, _ := vals.Get(string(k))
		list, err := parseSelection(k, value)
		if err == nil {
			err = r.checkNames(list)
		}
		if err != nil {
			return nil, err
		}
	}
	vals, err := r.applyMTLRequest(ctx, vals)
	if err != nil {
		return nil, err
	}
	all := make(map[Kind]*Selection, len(r.kinds))
	for _, k := range r.kinds {
		s, err := r.Select(ctx, k, vals)
		if err != nil {
			return nil, err
		}
		all[k] = s
	}
	return all, nil
}

// Survey probes every component of kind, regardless of the selection parameter. It returns the verdicts in the order of Selection.Verdicts, with
// StatusUsable for those that can be selected.
func (r *Registry) Survey(ctx context.Context, kind Kind, vals *Values) ([]Verdict, error) {
	probed, err := r.probe(ctx, kind, vals, func(string) bool { return true })
	if err != nil {
		return nil, err
	}
	var verdicts []Verdict
	for _, p := range probed {
		verdicts = append(verdicts, p.Verdict)
	}
	return verdicts, nil
}

// checkNames returns an error for names that the registry does not have.
func (r *Registry) checkNames(list *selectionList) error {
	var known []string
	for _, e := range r.byPriority(list.kind) {
		known = append(known, e.info.Name)
	}
	for _, name := range list.names {
		if slices.Contains(known, name) {
			continue
		}
		if len(known) == 0 {
			return fmt.Errorf("%w: %s: unknown %s component %q; this program has none", ErrConfig, list, list.kind, name)
		}
		if all := r.suggestions(list.kind, name); len(all) > 0 {
			return fmt.Errorf("%w: %s: unknown %s component %q; did you mean %s? this program has %s (ferry build --with adds those of other modules)",
				ErrConfig, list, list.kind, name, strings.Join(all, ", or "), strings.Join(known, ", "))
		}
		return fmt.Errorf("%w: %s: unknown %s component %q; the nearest known name is %s; this program has %s (ferry build --with adds those of other modules)",
			ErrConfig, list, list.kind, name, Nearest(name, known), strings.Join(known, ", "))
	}
	return nil
}

// checkBound returns an error unless every component in the list was chosen.
func (r *Registry) checkBound(ctx context.Context, s *Selection, vals *Values) error {
	var missing []string
	for _, name := range s.requestedList.names {
		if v := s.verdict(name); v.Status != StatusSelected {
			missing = append(missing, v.describe())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	survey, err := r.Survey(ctx, s.Kind, vals)
	if err != nil {
		return err
	}
	var usable []string
	for _, v := range survey {
		if v.Status == StatusUsable {
			usable = append(usable, v.Name)
		}
	}
	exists := "no " + string(s.Kind) + " component is usable here"
	if len(usable) > 0 {
		exists = "usable here: " + strings.Join(usable, ", ")
	}
	return fmt.Errorf("%w: %s: %s; %s", ErrConfig, s.requestedList, strings.Join(missing, "; "), exists)
}

func (s *Selection) verdict(name string) *Verdict {
	i := slices.IndexFunc(s.Verdicts, func(v Verdict) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Verdicts[i]
}

// Fail removes a component from Chosen because its Open or self-test failed with cause, and records that in its verdict. It returns an error if the
// component was requested by name, which matches ErrConfig and wraps cause. The caller then returns the error. Otherwise it may use the
// remaining components. Fail has no effect for a component that is not in Chosen.
func (s *Selection) Fail(name string, cause error) error {
	i := slices.IndexFunc(s.Chosen, func(c Choice) bool { return c.Verdict.Name == name })
	if i < 0 {
		return nil
	}
	s.Chosen = slices.Delete(s.Chosen, i, i+1)
	v := s.verdict(name)
	v.Status, v.Reason, v.Hint = StatusFailed, withoutOwner(s.Kind, name, cause), ""
	if !s.requestedList.isBinding() {
		return nil
	}
	if inner, ok := errors.AsType[*requestError](cause); ok {
		return inner // A requested component caused the failure.
	}
	return &requestError{listText: s.requestedList.String(), name: name, reason: v.Reason, cause: cause}
}

// requestError is the failure of a component that was requested by name. It matches ErrConfig.
type requestError struct {
	listText, name string
	reason         string // Of the cause.
	cause          error
}

func (e *requestError) Error() string {
	return fmt.Sprintf("%v: %s: %s failed: %s", ErrConfig, e.listText, e.name, e.reason)
}

// Unwrap returns ErrConfig and the cause.
func (e *requestError) Unwrap() []error { return []error{ErrConfig, e.cause} }

// FailedRequest returns the failure of a requested component that has caused err, or nil.
func FailedRequest(err error) error {
	if request, ok := errors.AsType[*requestError](err); ok {
		return request
	}
	return nil
}

// withoutOwner returns the text of a component's error without the component's name at its beginning.
func withoutOwner(kind Kind, name string, cause error) string {
	text := strings.TrimPrefix(cause.Error(), string(kind)+" "+name+": ")
	return strings.TrimPrefix(text, ErrConfig.Error()+": ")
}

// Again returns a copy for opening the chosen components again, with new parameter structs. It does not probe them.
func (s *Selection) Again(vals *Values) (*Selection, error) {
	again := *s
	again.Chosen, again.Verdicts = slices.Clone(s.Chosen), slices.Clone(s.Verdicts)
	for i := range again.Chosen {
		c := &again.Chosen[i]
		if c.Params = c.Component.Params(); c.Params == nil {
			continue
		}
		if err := vals.Decode(ComponentName(s.Kind, c.Verdict.Name), c.Params); err != nil {
			return nil, err
		}
	}
	return &again, nil
}

// Deselect removes unused components from Chosen, and records the reason in their verdicts.
func (s *Selection) Deselect(unused func(name string) bool, why string) {
	s.Chosen = slices.DeleteFunc(s.Chosen, func(c Choice) bool {
		if !unused(c.Verdict.Name) {
			return false
		}
		v := s.verdict(c.Verdict.Name)
		v.Status, v.Reason, v.Hint = StatusNotSelected, why, ""
		return true
	})
}

// TakeFirst keeps the first of Chosen, for frameworks that use one component. It marks the others as not selected, with the reason. It is called after the
// successful Open of the first, so that Fail can still fall back to the next. It returns the error of CheckChosen if there is none.
func (s *Selection) TakeFirst() (Choice, error) {
	if len(s.Chosen) == 0 {
		return Choice{}, s.CheckChosen()
	}
	won := s.Chosen[0].Verdict
	for _, c := range s.Chosen[1:] {
		v := s.verdict(c.Verdict.Name)
		v.Status = StatusNotSelected
		switch {
		case s.preferredReason != "" && s.requestedList.kind == PML && !s.requestedList.allows(won.Name):
			v.Reason = s.preferredReason
		case len(s.requestedList.names) > 0 && !s.requestedList.isExclusion:
			v.Reason = fmt.Sprintf("after %s in list %s", won.Name, s.requestedList)
		case v.Priority < won.Priority:
			v.Reason = fmt.Sprintf("priority %d < %s's %d", v.Priority, won.Name, won.Priority)
		default:
			v.Reason = fmt.Sprintf("priority %d = %s's, whose name comes first", v.Priority, won.Name)
		}
	}
	s.Chosen = s.Chosen[:1]
	return s.Chosen[0], nil
}

// CheckChosen returns nil if Chosen is not empty. Otherwise it returns an error with the reason of each component, which matches ErrConfig if a list
// excludes all, and ErrUnsupported if the machine or the program lacks them.
func (s *Selection) CheckChosen() error {
	if len(s.Chosen) > 0 {
		return nil
	}
	sentinel := ErrUnsupported
	if len(s.requestedList.names) > 0 {
		sentinel = ErrConfig
	}
	if len(s.Verdicts) == 0 {
		return fmt.Errorf("%w: this program has no %s component", sentinel, s.Kind)
	}
	var reasons []string
	for _, v := range s.Verdicts {
		reasons = append(reasons, v.describe())
	}
	return fmt.Errorf("%w: no %s component is usable: %s", sentinel, s.Kind, strings.Join(reasons, "; "))
}
