package framework

import (
	"fmt"
	"slices"
	"strings"
)

// selectionList is what a selection parameter says: names to use, in order; or
// names not to use; or, when empty, nothing.
type selectionList struct {
	kind    Kind
	names   []string
	exclude bool
	value   Value
}

// binds reports whether someone asked for the components by name. The order in
// components.yaml is a preference among what may be there, and does not bind; nor does
// one of MTLs in a file, which is there for jobs that use no MTL too.
func (l *selectionList) binds() bool {
	return !l.exclude && len(l.names) > 0 && l.value.set() && !(l.kind == MTL && l.value.Standing)
}

// allows reports whether the list leaves a component.
func (l *selectionList) allows(name string) bool {
	return len(l.names) == 0 || slices.Contains(l.names, name) != l.exclude
}

// String returns the list as messages show it: `btl=^tcp (environment FERRY_BTL)`.
func (l *selectionList) String() string {
	return fmt.Sprintf("%s=%s (%s)", l.kind, l.value.Text, l.value.Source)
}

func parseSelection(kind Kind, value Value) (*selectionList, error) {
	l := &selectionList{kind: kind, value: value}
	text := strings.TrimSpace(value.Text)
	if text == "" {
		return l, nil
	}
	text, l.exclude = strings.CutPrefix(text, "^")
	l.names = strings.Split(text, ",")
	for i, name := range l.names {
		name = strings.TrimSpace(name)
		l.names[i] = name
		switch {
		case name == "":
			return nil, fmt.Errorf("%w: %s: a name is missing in the list", ErrConfig, l)
		case name[0] == '^':
			return nil, fmt.Errorf("%w: %s: one ^ at the start excludes the whole list; it can't appear elsewhere", ErrConfig, l)
		case slices.Contains(l.names[:i], name):
			return nil, fmt.Errorf("%w: %s: %s appears twice in the list", ErrConfig, l, name)
		}
	}
	return l, nil
}
