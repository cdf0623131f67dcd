package framework

import (
	"fmt"
	"slices"
	"strings"
)

// selectionList is a parsed selection parameter, with names to include in order, or names to exclude. It is empty without either.
type selectionList struct {
	kind        Kind
	names       []string
	isExclusion bool
	value       Value
}

// isBinding reports whether the components were requested by name. The order in components.yaml is a preference and not binding, nor is a list of MTLs
// in a file, which also applies to jobs without an MTL.
func (l *selectionList) isBinding() bool {
	return !l.isExclusion && len(l.names) > 0 && l.value.isSet() && !(l.kind == MTL && l.value.IsStanding)
}

// allows reports whether the list does not exclude a component.
func (l *selectionList) allows(name string) bool {
	return len(l.names) == 0 || slices.Contains(l.names, name) != l.isExclusion
}

// String returns the list for messages, for example `btl=^tcp (environment FERRY_BTL)`.
func (l *selectionList) String() string {
	return fmt.Sprintf("%s=%s (%s)", l.kind, l.value.Text, l.value.Source)
}

func parseSelection(kind Kind, value Value) (*selectionList, error) {
	l := &selectionList{kind: kind, value: value}
	text := strings.TrimSpace(value.Text)
	if text == "" {
		return l, nil
	}
	text, l.isExclusion = strings.CutPrefix(text, "^")
	l.names = strings.Split(text, ",")
	for i, name := range l.names {
		name = strings.TrimSpace(name)
		l.names[i] = name
		switch {
		case name == "":
			return nil, fmt.Errorf("%w: %s: a name is missing in the list", ErrConfig, l)
		case name[0] == '^':
			return nil, fmt.Errorf("%w: %s: one ^ at the start excludes the whole list; it cannot appear elsewhere", ErrConfig, l)
		case slices.Contains(l.names[:i], name):
			return nil, fmt.Errorf("%w: %s: %s appears twice in the list", ErrConfig, l, name)
		}
	}
	return l, nil
}
