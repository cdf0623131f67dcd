package soak

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// seen is a turn, and the first rank that saw it.
type seen struct {
	turn
	by string
}

// compare checks that all ranks have seen the same changes. It returns the members of the last sets.
func (j *elasticJob) compare() (final []uint32) {
	t := j.t
	for _, name := range globbed(j.dir, "wrong-*") {
		text, _ := os.ReadFile(name)
		t.Errorf("%s: %s", filepath.Base(name), text)
	}
	next := map[string]seen{}   // By the set before.
	deltas := map[string]seen{} // By delta.
	turns := 0
	for _, name := range globbed(j.dir, "history-*") {
		team := ""
		for _, x := range turnsOf(j, name) {
			turns++
			here := seen{x, filepath.Base(name)}
			if old, ok := deltas[x.Delta]; !ok {
				deltas[x.Delta] = here
			} else if old.To != x.To {
				t.Errorf("%s has seen %+v, and %s %+v", old.by, old.turn, here.by, here.turn)
			}
			if x.To == "" {
				continue
			}
			if old, ok := next[x.From]; x.From != "" && ok && (old.To != x.To || old.Type != x.Type || !slices.Equal(old.Ranks, x.Ranks) && len(old.Ranks)*len(x.Ranks) > 0) {
				t.Errorf("%s has seen %+v, and %s %+v", old.by, old.turn, here.by, here.turn)
			} else if x.From != "" && !ok {
				next[x.From] = here
			}
			if team != "" && x.From != team {
				t.Errorf("%s has seen a change of %q to %q, and then %+v", here.by, x.From, team, x)
			}
			team = x.To
		}
	}
	t.Logf("%d integrations of %d changes have been seen", turns, len(deltas))
	for _, x := range deltas {
		if _, changed := next[x.To]; x.To != "" && !changed {
			final = append(final, x.Ranks...)
		}
	}
	return final
}

// turnsOf reads the history of a rank. The last line of a rank that was killed may be incomplete.
func turnsOf(j *elasticJob, name string) (all []turn) {
	text, err := os.ReadFile(name)
	if err != nil {
		j.t.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		var x turn
		if !strings.HasSuffix(line, "\n") {
			continue
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			j.t.Errorf("%s: %v: %q", name, err, line)
		}
		all = append(all, x)
	}
	return all
}

// globbed returns the files in dir that match a pattern.
func globbed(dir, pattern string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, pattern))
	slices.Sort(names)
	return names
}
