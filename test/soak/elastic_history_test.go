package soak

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// firstObserved is a turn with the first rank that observed it.
type firstObserved struct {
	turn
	by string
}

// compareHistories checks that all ranks have observed the same changes. It returns the members of the last
// sets.
func (j *elasticJob) compareHistories() (final []uint32) {
	t := j.t
	for _, name := range matchingFiles(j.dir, "wrong-*") {
		text, _ := os.ReadFile(name)
		t.Errorf("%s: %s", filepath.Base(name), text)
	}
	// By the previous set.
	next := map[string]firstObserved{}
	// By delta.
	deltas := map[string]firstObserved{}
	turns := 0
	for _, name := range matchingFiles(j.dir, "history-*") {
		team := ""
		for _, x := range turnsOf(j, name) {
			turns++
			here := firstObserved{x, filepath.Base(name)}
			if old, ok := deltas[x.Delta]; !ok {
				deltas[x.Delta] = here
			} else if old.To != x.To {
				t.Errorf("%s observed %+v, and %s %+v", old.by, old.turn, here.by, here.turn)
			}
			if x.To == "" {
				continue
			}
			if old, ok := next[x.From]; x.From != "" && ok && (old.To != x.To || old.Type != x.Type || !slices.Equal(old.Ranks, x.Ranks) && len(old.Ranks)*len(x.Ranks) > 0) {
				t.Errorf("%s observed %+v, and %s %+v", old.by, old.turn, here.by, here.turn)
			} else if x.From != "" && !ok {
				next[x.From] = here
			}
			if team != "" && x.From != team {
				t.Errorf("%s observed a change of %q to %q, and then %+v", here.by, x.From, team, x)
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

// matchingFiles returns the files in dir that match a pattern.
func matchingFiles(dir, pattern string) []string {
	names, _ := filepath.Glob(filepath.Join(dir, pattern))
	slices.Sort(names)
	return names
}
