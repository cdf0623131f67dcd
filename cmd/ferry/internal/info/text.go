package info

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/cmd/ferry/internal/exit"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/text"
)

// format returns the text in lines of at most width columns. all adds parameters, devices and versions.
func (info *Info) format(all bool, width int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ferry %s\n\n", info.Version)
	rows := [][]string{{"COMPONENT", "STATE", "REASON"}}
	if all {
		rows = [][]string{{"COMPONENT", "PRIORITY", "STATE", "WHAT, OR REASON"}}
	}
	for _, c := range info.Components {
		row := []string{c.Framework + " " + c.Name, c.Status, c.Reason}
		if all {
			row = []string{row[0], fmt.Sprint(c.Priority), c.Status, cmp.Or(c.Reason, c.Summary)}
		}
		rows = append(rows, row)
	}
	text.Table(&b, width, rows)
	for _, n := range info.Networks {
		b.WriteByte('\n')
		n.format(&b, all, width)
	}
	params := info.selectParams(func(p Param) bool {
		return all || p.Source != framework.SourceDefault && p.Source != framework.SourceManifest
	})
	if len(params) > 0 {
		b.WriteString("\nPARAMETERS\n")
	}
	for _, p := range params {
		p.format(&b, all, width)
	}
	if !all {
		b.WriteString("\nferry info --params PATTERN shows parameters, --all shows everything.\n")
		return b.String()
	}
	b.WriteByte('\n')
	rows = [][]string{{"LIBRARY", "VERSION"}}
	for _, l := range info.Libraries {
		rows = append(rows, []string{l.Name, l.Version})
	}
	text.Table(&b, width, rows)
	return b.String()
}

// format lists the devices. Without all, it merges refused devices with the same provider and reason, and only counts
// the unavailable ones.
func (n Network) format(b *strings.Builder, all bool, width int) {
	name := cmp.Or(n.Library, n.Component)
	if n.Reason != "" {
		text.Wrap(b, width, "", name+": "+n.Reason)
		return
	}
	rows := [][]string{{name, "STATE", "REASON"}}
	absent := 0
	for _, d := range n.Devices {
		row := []string{d.Name, d.State, d.Reason}
		if d.State == "refused" && !all {
			row[0] = d.Provider
		}
		switch {
		case d.State == "unavailable" && !all:
			absent++
		case !slices.ContainsFunc(rows, func(r []string) bool { return slices.Equal(r, row) }):
			rows = append(rows, row)
		}
	}
	text.Table(b, width, rows)
	if absent > 0 {
		fmt.Fprintf(b, "%d more providers offer nothing on this machine.\n", absent)
	}
}

// selectParams returns the selected parameters by name.
func (info *Info) selectParams(isSelected func(Param) bool) []Param {
	params := slices.Clone(info.Params)
	for _, c := range info.Components {
		params = append(params, c.Params...)
	}
	params = slices.DeleteFunc(params, func(p Param) bool { return !isSelected(p) })
	slices.SortFunc(params, func(a, b Param) int { return strings.Compare(a.Name, b.Name) })
	return params
}

// formatMatching describes the parameters that match a pattern.
func (info *Info) formatMatching(pattern string, width int) (string, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return "", exit.Usagef("--params %s: %w", pattern, err)
	}
	if !strings.ContainsAny(pattern, "*?[") {
		pattern = "*" + pattern + "*"
	}
	var names []string
	params := info.selectParams(func(p Param) bool {
		names = append(names, p.Name)
		ok, _ := path.Match(pattern, p.Name) // The pattern is valid.
		return ok
	})
	if len(params) == 0 {
		return "", exit.Usagef("--params: no parameter matches%s", suggestParam(strings.Trim(pattern, "*"), names))
	}
	var b strings.Builder
	for _, p := range params {
		p.format(&b, true, width)
	}
	return b.String(), nil
}

// suggestParam suggests the parameter with the nearest name.
func suggestParam(word string, names []string) string {
	for _, name := range names {
		if end := name[strings.LastIndexByte(name, '.')+1:]; framework.Near(word, end) || framework.Near(word, name) {
			return "; did you mean " + name + "?"
		}
	}
	return "; ferry info --all has all of them"
}

func (p Param) format(b *strings.Builder, all bool, width int) {
	fmt.Fprintf(b, "%s = %s\n", p.Name, cmp.Or(p.Value, `""`))
	from := p.Source
	if p.Source != framework.SourceDefault {
		from += fmt.Sprintf("; default %s", cmp.Or(p.Default, `""`))
	}
	if all {
		from += fmt.Sprintf("; level %s", p.Level)
	}
	text.Wrap(b, width, "    ", from)
	if all {
		text.Wrap(b, width, "    ", p.Doc)
	}
}
