package framework

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Choice is a component that selection took.
type Choice struct {
	Component Component
	Params    any // what Component.Params returned, filled; nil when it has none
	Verdict   Verdict
}

// Selection is the outcome of selection in one framework.
type Selection struct {
	Kind Kind
	// Chosen holds what was taken: in the order of an include list, otherwise
	// by falling priority.
	Chosen []Choice
	// Verdicts holds one for each component that the registry knows, also those
	// that are not built: compiled in ones by falling priority, then the others
	// by name.
	Verdicts []Verdict

	list      *selectionList
	preferred string // why the first of Chosen is there against the priorities; see Spread
}

// Select chooses among the components of kind. It takes all usable ones that
// the selection parameter (named like the kind) allows:
//
//	""           all
//	"shm,self"   these, in this order
//	"^tcp,shm"   all but these
//
// Components that the parameter rules out are not probed. The probes of the
// others run at the same time; one that panics, or does not return within 2 s,
// has failed.
//
// An include list that someone set binds: if a component in it is unknown, not
// built or unusable, Select fails, and says why and what is usable. A list in
// components.yaml is only a preference, as is one of MTLs in a file. Exclude lists may name what is not
// built, but nothing unknown. All these errors answer ErrConfig. When ctx ends
// during the probes its cause is returned.
//
// Chosen may be empty, without an error, if nothing is usable and nothing was
// asked for: see One and Empty.
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
	s := &Selection{Kind: kind, list: list}
	for _, p := range probed {
		switch {
		case p.Component == nil: // not built, whatever the list says
		case !list.allows(p.Verdict.Name) && list.exclude:
			p.Verdict.Status, p.Verdict.Reason = StatusNotSelected, "excluded by "+list.String()
		case !list.allows(p.Verdict.Name):
			p.Verdict.Status, p.Verdict.Reason = StatusNotSelected, "not in list "+list.String()
		case p.Verdict.Status == StatusUsable:
			p.Verdict.Status = StatusSelected
			s.Chosen = append(s.Chosen, p)
		}
		s.Verdicts = append(s.Verdicts, p.Verdict)
	}
	if len(list.names) > 0 && !list.exclude {
		slices.SortStableFunc(s.Chosen, func(a, b Choice) int {
			return cmp.Compare(slices.Index(list.names, a.Verdict.Name), slices.Index(list.names, b.Verdict.Name))
		})
	}
	if len(list.names) == 0 || list.exclude {
		s.suit()
	}
	if list.binds() {
		if err := r.checkBound(ctx, s, vals); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// suit puts those first that serve this machine's hardware best (Verdict.Suits), and has their
// verdicts say so.
func (s *Selection) suit() {
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

// SelectAll selects in every framework of the registry, also in those that the
// chosen components will not use: so a request binds in all of them. Who asks for an MTL,
// or sets a parameter of one, gets a PML that uses it. An unknown name in any list is reported
// before anything that follows from the lists.
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
	vals, err := r.request(ctx, vals)
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

// Survey probes every component of kind, whatever the selection parameter says,
// and returns the verdicts in the order of Selection.Verdicts, with StatusUsable
// for those that could be selected.
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

// checkNames refuses names that the registry never heard of.
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

// checkBound fails unless every component in the list was chosen.
func (r *Registry) checkBound(ctx context.Context, s *Selection, vals *Values) error {
	var missing []string
	for _, name := range s.list.names {
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
	return fmt.Errorf("%w: %s: %s; %s", ErrConfig, s.list, strings.Join(missing, "; "), exists)
}

func (s *Selection) verdict(name string) *Verdict {
	i := slices.IndexFunc(s.Verdicts, func(v Verdict) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Verdicts[i]
}

// Fail takes a chosen component out of Chosen, because its Open or self-test
// failed with cause, and records that in its verdict. The return value is not
// nil if the component was asked for by name: then it is an ErrConfig that also
// wraps cause, and the caller must give up. Otherwise it may use what is left in
// Chosen. Fail of a component that is not in Chosen changes nothing.
func (s *Selection) Fail(name string, cause error) error {
	i := slices.IndexFunc(s.Chosen, func(c Choice) bool { return c.Verdict.Name == name })
	if i < 0 {
		return nil
	}
	s.Chosen = slices.Delete(s.Chosen, i, i+1)
	v := s.verdict(name)
	v.Status, v.Reason, v.Hint = StatusFailed, withoutOwner(s.Kind, name, cause), ""
	if !s.list.binds() {
		return nil
	}
	if inner, ok := errors.AsType[*requestError](cause); ok {
		return inner // The component failed because of one that was asked for.
	}
	return &requestError{list: s.list.String(), name: name, reason: v.Reason, cause: cause}
}

// requestError is the failure of a component that was asked for by name. It is an ErrConfig.
type requestError struct {
	list, name string
	reason     string // Of the cause.
	cause      error
}

func (e *requestError) Error() string {
	return fmt.Sprintf("%v: %s: %s failed: %s", ErrConfig, e.list, e.name, e.reason)
}

// Unwrap returns ErrConfig and the cause.
func (e *requestError) Unwrap() []error { return []error{ErrConfig, e.cause} }

// FailedRequest returns the failure of a component that was asked for by name, if it has caused err, else nil.
func FailedRequest(err error) error {
	if request, ok := errors.AsType[*requestError](err); ok {
		return request
	}
	return nil
}

// withoutOwner returns the text of a component's error without the names that precede it in messages.
func withoutOwner(kind Kind, name string, cause error) string {
	text := strings.TrimPrefix(cause.Error(), string(kind)+" "+name+": ")
	return strings.TrimPrefix(text, ErrConfig.Error()+": ")
}

// Again returns a copy for opening the chosen components once more, with parameters of their own. Components are not probed again.
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

// Leave takes those components out of Chosen that are not used after all, and records
// why in their verdicts.
func (s *Selection) Leave(unused func(name string) bool, why string) {
	s.Chosen = slices.DeleteFunc(s.Chosen, func(c Choice) bool {
		if !unused(c.Verdict.Name) {
			return false
		}
		v := s.verdict(c.Verdict.Name)
		v.Status, v.Reason, v.Hint = StatusNotSelected, why, ""
		return true
	})
}

// One keeps the first of Chosen, for frameworks in which one component wins, and
// marks the others as not selected, with the reason. Call it after the winner's
// Open succeeded, so that Fail can still fall back on the next. It returns
// Empty's error when there is none.
func (s *Selection) One() (Choice, error) {
	if len(s.Chosen) == 0 {
		return Choice{}, s.Empty()
	}
	won := s.Chosen[0].Verdict
	for _, c := range s.Chosen[1:] {
		v := s.verdict(c.Verdict.Name)
		v.Status = StatusNotSelected
		switch {
		case s.preferred != "" && s.list.kind == PML && !s.list.allows(won.Name):
			v.Reason = s.preferred
		case len(s.list.names) > 0 && !s.list.exclude:
			v.Reason = fmt.Sprintf("after %s in list %s", won.Name, s.list)
		case v.Priority < won.Priority:
			v.Reason = fmt.Sprintf("priority %d < %s's %d", v.Priority, won.Name, won.Priority)
		default:
			v.Reason = fmt.Sprintf("priority %d = %s's, whose name comes first", v.Priority, won.Name)
		}
	}
	s.Chosen = s.Chosen[:1]
	return s.Chosen[0], nil
}

// Empty returns nil if Chosen holds something. Otherwise it returns an error that
// gives the reason of each component: ErrConfig if a list left nothing,
// ErrUnsupported if the machine or the program lacks all.
func (s *Selection) Empty() error {
	if len(s.Chosen) > 0 {
		return nil
	}
	sentinel := ErrUnsupported
	if len(s.list.names) > 0 {
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
