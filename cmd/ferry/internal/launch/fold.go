package launch

import (
	"fmt"
	"regexp"
	"strings"

	columns "github.com/ferrympi/ferry/internal/text"
)

// folded are failures with equal descriptions, in the order of time.
type folded struct {
	failures    []Failure
	description string
}

// fold joins failures with equal descriptions, in the order of the first of each.
func fold(failures []Failure, describe func(Failure) string) (all []*folded) {
	byText := map[string]*folded{}
	for _, f := range failures {
		description := describe(f)
		g := byText[description]
		if g == nil {
			g = &folded{description: description}
			byText[description] = g
			all = append(all, g)
		}
		g.failures = append(g.failures, f)
	}
	return all
}

// String names the ranks, and the process if there is only one.
func (g *folded) String() string {
	first := g.failures[0]
	if len(g.failures) == 1 {
		return fmt.Sprintf("rank %d (pid %d) %s", first.Rank, first.PID, g.description)
	}
	var ranks []int
	for _, f := range g.failures {
		ranks = append(ranks, f.Rank)
	}
	return fmt.Sprintf("ranks %s %s", columns.Numbers(ranks), g.description)
}

// stamp is the time at the start of a line of package log or slog.
var stamp = regexp.MustCompile(`^(\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d\S*|time=\S+) `)

// withoutTime describes a failure with the most informative of its rank's last lines, without the time at the start of
// the line, and without the name of the rank.
func withoutTime(f Failure) string {
	line := lastLine(f)
	if line == "" {
		return f.HowEnded
	}
	line = stamp.ReplaceAllString(line, "")
	line = strings.TrimPrefix(line, fmt.Sprintf("rank %d: ", f.Rank))
	return f.HowEnded + ": " + line
}
