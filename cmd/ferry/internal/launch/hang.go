package launch

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// A hang is explained by what all ranks say that they wait for: who waits for whom is
// seen here only. First a line for each rank, then circles of them, then their queues, and
// the stacks of their goroutines where they were asked for.

// waitsReport is the name of the report in which a rank says what it waits for, and how it
// is asked to (package mpi).
const (
	waitsReport = "waits"
	askWaits    = "report"
	askStacks   = "report,stacks"
)

// hang is one account that is being put together.
type hang struct {
	asked   []int // ranks that are connected
	answers map[int]waiting
	over    <-chan time.Time // when the others need not answer any more
}

// waiting is what a rank reports.
type waiting struct {
	Waits []struct {
		What string `json:"what"`
		On   []int  `json:"on"`
	} `json:"waits"`
	Queues string `json:"queues"`
	Stacks string `json:"stacks"`
}

// askAll asks all ranks to report their blocked calls within dumpGrace.
func (s *supervisor) askAll() {
	how := askWaits
	if s.job.Stacks {
		how = askStacks
	}
	s.hang = hang{asked: s.srv.AskWaits(how), answers: map[int]waiting{}, over: time.After(dumpGrace)}
	s.explainIfComplete()
}

// addWaits adds the report of a rank.
func (s *supervisor) addWaits(r Report) {
	var w waiting
	if s.hang.answers == nil || json.Unmarshal(r.Body, &w) != nil {
		return
	}
	s.hang.answers[r.Rank] = w
	s.explainIfComplete()
}

// explainIfComplete gives the account if all have reported.
func (s *supervisor) explainIfComplete() {
	if len(s.hang.answers) >= len(s.hang.asked) {
		s.explain()
	}
}

// explain gives the account. After a timeout, it then terminates the job.
func (s *supervisor) explain() {
	h := s.hang
	s.hang = hang{}
	for n, r := range s.ranks {
		for _, line := range h.lines(n, r) {
			s.note(line)
		}
	}
	for _, circle := range h.circles() {
		s.note(circle)
	}
	for _, text := range []func(waiting) string{func(w waiting) string { return w.Queues }, func(w waiting) string { return w.Stacks }} {
		for _, n := range slices.Sorted(maps.Keys(h.answers)) {
			s.show(n, text(h.answers[n]))
		}
	}
	if s.isTimedOut {
		s.terminate()
	}
}

// show writes a rank's account of itself to standard error.
func (s *supervisor) show(rank int, text string) {
	if text == "" || s.job.Stderr == nil {
		return
	}
	if strings.HasPrefix(text, "goroutine ") {
		text = fmt.Sprintf("ferry: rank %d: goroutines\n%s", rank, text)
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	s.notes.add(func() { s.stderr.write([]byte(text)) })
}

// lines are what a rank waits for.
func (h hang) lines(n int, r *rank) (all []string) {
	w, answered := h.answers[n]
	switch {
	case r.hasEnded:
		return []string{fmt.Sprintf("rank %d has ended", n)}
	case isStopped(r.cmd.Process.Pid):
		return []string{fmt.Sprintf("rank %d is stopped (SIGCONT to process %d resumes it)", n, r.cmd.Process.Pid)}
	case !slices.Contains(h.asked, n):
		return []string{fmt.Sprintf("rank %d has no session open", n)}
	case !answered:
		return []string{fmt.Sprintf("rank %d does not answer", n)}
	case len(w.Waits) == 0:
		return []string{fmt.Sprintf("rank %d waits for nothing: it computes, or waits elsewhere (--stacks shows where)", n)}
	}
	for _, x := range w.Waits[:min(len(w.Waits), mostListed)] {
		all = append(all, fmt.Sprintf("rank %d %s", n, x.What))
	}
	if more := len(w.Waits) - mostListed; more > 0 {
		all = append(all, fmt.Sprintf("rank %d waits in %d more calls", n, more))
	}
	return all
}

// isStopped reports whether a signal has stopped a process.
func isStopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ") // a name with that in it is nobody's whom ferry knows
	return err == nil && strings.HasPrefix(after, "T")
}

// circles finds ranks that wait for one another: from each rank it goes on to one for which
// that waits, in the order in which it says so, until it comes back. Each circle is said
// once, from its lowest rank on.
func (h hang) circles() (all []string) {
	done := map[int]bool{}
	for _, start := range slices.Sorted(maps.Keys(h.answers)) {
		var path []int
		at := map[int]int{} // position in path
		for n, ok := start, true; ok && !done[n]; n, ok = h.next(n) {
			if i, again := at[n]; again {
				all = append(all, circle(path[i:]))
				break
			}
			at[n] = len(path)
			path = append(path, n)
		}
		for _, n := range path {
			done[n] = true
		}
	}
	return all
}

// next returns a rank for which n waits.
func (h hang) next(n int) (int, bool) {
	for _, w := range h.answers[n].Waits {
		if len(w.On) > 0 {
			return w.On[0], true
		}
	}
	return 0, false
}

func circle(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d waits for itself", ranks[0])
	}
	low := slices.Index(ranks, slices.Min(ranks))
	ranks = append(slices.Clone(ranks[low:]), ranks[:low]...)
	var b strings.Builder
	fmt.Fprintf(&b, "a cycle: rank %d waits for rank %d", ranks[0], ranks[1])
	for _, n := range append(ranks[2:], ranks[0]) {
		fmt.Fprintf(&b, ", which waits for rank %d", n)
	}
	return b.String()
}
