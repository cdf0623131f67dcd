package plan

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/framework"
)

// Components chooses stacks by their names: those that match one of some patterns,
// or all others.
type Components struct {
	patterns []string
	exclude  bool
}

// ParseComponents reads a list such as "ob1+shm,cm+ofi*" or "^cm*". Patterns are as
// for path.Match. An empty list is nil.
func ParseComponents(list string) (*Components, error) {
	text, exclude := strings.CutPrefix(strings.TrimSpace(list), "^")
	c := &Components{exclude: exclude}
	for p := range strings.SplitSeq(text, ",") {
		p = strings.TrimSpace(p)
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return nil, fmt.Errorf("%w: %q: %q is neither the name of a stack nor a pattern", framework.ErrConfig, list, p)
		}
		c.patterns = append(c.patterns, p)
	}
	return c, nil
}

func matches(pattern, name string) bool {
	ok, _ := path.Match(pattern, name) // ParseComponents has tried it
	return ok || pattern == name
}

// choose takes the stacks that are meant, in their order. A pattern that no stack
// matches is an error that names the nearest.
func (c *Components) choose(stacks []report.Stack) ([]report.Stack, error) {
	var names []string
	for _, s := range stacks {
		names = append(names, s.Name)
	}
	for _, p := range c.patterns {
		if !slices.ContainsFunc(names, func(n string) bool { return matches(p, n) }) {
			return nil, fmt.Errorf("%w: no stack is called %q; the nearest is %q; there are %s", framework.ErrConfig, p, framework.Nearest(p, names), strings.Join(names, ", "))
		}
	}
	chosen := slices.DeleteFunc(slices.Clone(stacks), func(s report.Stack) bool { return !c.Takes(s.Name) })
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w: every stack is excluded: %s", framework.ErrConfig, strings.Join(names, ", "))
	}
	return chosen, nil
}

// Takes says whether a stack of that name is meant. A nil *Components takes all.
func (c *Components) Takes(name string) bool {
	return c == nil || slices.ContainsFunc(c.patterns, func(p string) bool { return matches(p, name) }) != c.exclude
}

// Part returns what a report says of the stacks that are meant.
func (c *Components) Part(r *report.Report) *report.Report {
	part := *r
	part.Stacks = slices.DeleteFunc(slices.Clone(r.Stacks), func(s report.Stack) bool { return !c.Takes(s.Name) })
	part.Rows = slices.DeleteFunc(slices.Clone(r.Rows), func(row report.Row) bool { return !c.Takes(row.Stack) })
	return &part
}

// may says whether a stack whose name begins so could be meant, or the nearest to
// what is, given the stacks that are known already. To ask what there is takes time.
func (c *Components) may(begin string, known []report.Stack) bool {
	return c.exclude || slices.ContainsFunc(c.patterns, func(p string) bool {
		plain := p
		if i := strings.IndexAny(p, `*?[\`); i >= 0 {
			plain = p[:i]
		}
		return strings.HasPrefix(plain, begin) || strings.HasPrefix(begin, plain) && plain != p ||
			!slices.ContainsFunc(known, func(s report.Stack) bool { return matches(p, s.Name) })
	})
}
