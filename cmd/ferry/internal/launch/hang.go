package launch

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/internal/text"
)

// The account of a hang is made from reports of all ranks, since only the launcher sees
// which rank waits for which. It has a line for each rank, then cycles of waiting ranks,
// then the queues of each rank, and with Job.ReportsStacks the stacks of their goroutines.

// Name of a rank's report of its blocked calls, and the requests for it (package mpi).
const (
	waitsReport = "waits"
	askWaits    = "report"
	askStacks   = "report,stacks"
)

// hang collects the reports for one account.
type hang struct {
	askedRanks   []int // The connected ones.
	reportByRank map[int]blockedCalls
	// Nil if no account is being made.
	deadline <-chan time.Time
}

// blockedCalls is the report of a rank.
type blockedCalls struct {
	Waits []struct {
		What string `json:"what"`
		On   []int  `json:"on"`
	} `json:"waits"`
	// Calls that are not in Waits.
	MoreCalls int    `json:"more"`
	Queues    string `json:"queues"`
	Stacks    string `json:"stacks"`
}

// askAll asks all ranks to report their blocked calls within dumpGrace.
func (s *supervisor) askAll() {
	how := askWaits
	if s.job.ReportsStacks {
		how = askStacks
	}
	s.hang = hang{askedRanks: s.srv.RequestDump(how), reportByRank: map[int]blockedCalls{}, deadline: time.After(dumpGrace)}
	s.explainIfComplete()
}

// addWaits adds the report of a rank.
func (s *supervisor) addWaits(r Report) {
	var w blockedCalls
	if s.hang.reportByRank == nil || json.Unmarshal(r.Body, &w) != nil {
		return
	}
	s.hang.reportByRank[r.Rank] = w
	s.explainIfComplete()
}

// explainIfComplete gives the account if all have reported.
func (s *supervisor) explainIfComplete() {
	if len(s.hang.reportByRank) >= len(s.hang.askedRanks) {
		s.explain()
	}
}

// explain gives the account. After a timeout, it then terminates the job.
func (s *supervisor) explain() {
	h := s.hang
	s.hang = hang{}
	for _, n := range slices.Sorted(maps.Keys(s.ranks)) {
		for _, line := range h.lines(n, s.ranks[n]) {
			s.note(text.Printable(line, ""))
		}
	}
	for _, cycle := range h.cycles() {
		s.note(text.Printable(cycle, ""))
	}
	for _, part := range []func(blockedCalls) string{func(w blockedCalls) string { return w.Queues }, func(w blockedCalls) string { return w.Stacks }} {
		for _, n := range slices.Sorted(maps.Keys(h.reportByRank)) {
			s.show(n, part(h.reportByRank[n]))
		}
	}
	if s.shutdown.isTimedOut {
		s.terminate()
	}
}

// show writes a part of a rank's report to standard error.
func (s *supervisor) show(rank int, report string) {
	if report == "" || s.job.Stderr == nil {
		return
	}
	if strings.HasPrefix(report, "goroutine ") {
		report = fmt.Sprintf("ferry: rank %d: goroutines\n%s", rank, report)
	}
	if !strings.HasSuffix(report, "\n") {
		report += "\n"
	}
	report = text.Printable(report, "\n\t")
	s.output.noteQueue.add(func() { s.output.stderr.write([]byte(report)) })
}

// lines describes the blocked calls of a rank.
func (h hang) lines(n int, r *rank) (all []string) {
	w, hasReported := h.reportByRank[n]
	switch {
	case r.hasEnded:
		return []string{fmt.Sprintf("rank %d has ended", n)}
	case isStopped(r.cmd.Process.Pid):
		return []string{fmt.Sprintf("rank %d is stopped (SIGCONT to process %d resumes it)", n, r.cmd.Process.Pid)}
	case !slices.Contains(h.askedRanks, n):
		return []string{fmt.Sprintf("rank %d has no session open", n)}
	case !hasReported:
		return []string{fmt.Sprintf("rank %d does not respond", n)}
	case len(w.Waits) == 0:
		return []string{fmt.Sprintf("rank %d waits for nothing: it computes, or waits elsewhere (--stacks shows where)", n)}
	}
	for _, x := range w.Waits[:min(len(w.Waits), maxListed)] {
		all = append(all, fmt.Sprintf("rank %d %s", n, x.What))
	}
	if more := w.MoreCalls + max(len(w.Waits)-maxListed, 0); more > 0 {
		all = append(all, fmt.Sprintf("rank %d waits in %d more calls", n, more))
	}
	return all
}

// isStopped reports whether a signal has stopped a process.
func isStopped(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(b), ") ") // The program's name is in parentheses.
	return err == nil && strings.HasPrefix(after, "T")
}

// cycles finds ranks that wait for one another. From each rank, it follows the first rank
// that a blocked call waits for. It reports each cycle once, from its lowest rank.
func (h hang) cycles() (all []string) {
	visited := map[int]bool{}
	for _, start := range slices.Sorted(maps.Keys(h.reportByRank)) {
		var path []int
		index := map[int]int{} // In path.
		for n, ok := start, true; ok && !visited[n]; n, ok = h.next(n) {
			if i, isCycle := index[n]; isCycle {
				all = append(all, describeCycle(path[i:]))
				break
			}
			index[n] = len(path)
			path = append(path, n)
		}
		for _, n := range path {
			visited[n] = true
		}
	}
	return all
}

// next returns the first rank that n waits for.
func (h hang) next(n int) (int, bool) {
	for _, w := range h.reportByRank[n].Waits {
		if len(w.On) > 0 {
			return w.On[0], true
		}
	}
	return 0, false
}

func describeCycle(ranks []int) string {
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
