package launch

import (
	"fmt"
	"slices"
	"time"
)

// The rank that failed first may end last (docs/decisions/blame.md).

// leaveWindow is the longest time between the leaving of a rank and the end
// of its process for which the leaving counts as the time of its failure. Meanwhile it
// prints the stacks of its goroutines, or writes a core.
const leaveWindow = 10 * time.Second

// maxListed is the number of lines of a list of failures.
const maxListed = 16

// blame records a failure. The server has notified the other ranks.
func (s *supervisor) blame(f Failure) {
	f.FailedAt, f.WasAskedToEnd = time.Now(), s.shutdown.isAsked
	if at, ok := s.srv.WithdrawnAt(f.Rank); ok && !f.WasAskedToEnd && f.FailedAt.Sub(at) < leaveWindow {
		f.FailedAt = at
	}
	s.result.Failures = append(s.result.Failures, f)
	slices.SortStableFunc(s.result.Failures, func(a, b Failure) int { return a.FailedAt.Compare(b.FailedAt) })
	switch {
	case s.shutdown.stage != running:
	case s.job.ContinuesOnFailure:
		s.note(f.String())
	default:
		s.shutdown.enter(failing)
	}
}

// nameFirst reports the rank that failed first, before the others get SIGTERM.
func (s *supervisor) nameFirst() {
	if len(s.result.Failures) > 0 && s.liveCount > 0 {
		first := s.result.Failures[0]
		first.LastLines = s.ranks[first.Rank].tail.lines() // Grace has passed since it ended.
		s.blamedRank = first.Rank
		s.note(withLast(first))
	}
}

// account reports the failures at the end of the job, with those that a change excuses. Ranks
// that were asked to end are only counted.
func (s *supervisor) account() {
	all := s.result.Failures
	for i := range all {
		all[i].LastLines = s.ranks[all[i].Rank].tail.lines()
	}
	own := slices.DeleteFunc(slices.Clone(all), func(f Failure) bool { return f.WasAskedToEnd })
	switch {
	case len(all) == 0:
	case len(own) == 0:
		if s.shutdown.interruptedBy != 0 {
			s.note(all[0].String())
		}
	case s.job.ContinuesOnFailure:
		s.listDeaths(own)
		s.countEnded(len(all) - len(own))
	case len(own) == 1 && s.blamedRank != own[0].Rank:
		if s.isJustPrinted(own[0]) {
			s.note(own[0].String())
		} else {
			s.note(withLast(own[0]))
		}
	case len(own) > 1:
		s.listFailures(own)
		s.countEnded(len(all) - len(own))
	}
}

// isJustPrinted reports whether the last line of a failed rank is the last output of the job on standard error. Stacks
// may follow the first line of a panic.
func (s *supervisor) isJustPrinted(f Failure) bool {
	return s.job.OutputDir == "" && s.output.stderr.lastWriter.Load() == &s.ranks[f.Rank].tail && len(f.LastLines) > 0 && !isPanic(f.LastLines[0])
}

// listFailures reports the failures of a job that they ended, the cause first.
func (s *supervisor) listFailures(own []Failure) {
	first := own[0]
	if all := fold(own, withoutTime); len(all) == 1 && s.blamedRank != first.Rank {
		s.note(fmt.Sprintf("%s; rank %d was the first", all[0], first.Rank))
		return
	}
	s.note(fmt.Sprintf("rank %d failed first, and %s after it:", first.Rank, plural(len(own)-1, "rank", "ranks")))
	s.note("  " + first.String())
	if s.blamedRank != first.Rank { // Else they are above already.
		for _, line := range first.LastLines {
			s.note("      " + line)
		}
	}
	var lines []string
	for _, g := range fold(own[1:], withoutTime) {
		lines = append(lines, g.String())
	}
	s.listLines(lines)
}

// listDeaths reports the failures of a job that continued, in the order of time.
func (s *supervisor) listDeaths(own []Failure) {
	limit := ""
	if s.job.ToleratedFailures > 0 {
		limit = fmt.Sprintf("; the job tolerates %d", s.job.ToleratedFailures)
	}
	s.note(fmt.Sprintf("%d of %s failed%s:", len(own), plural(len(s.result.Trace.Ranks), "rank", "ranks"), limit))
	var lines []string
	for _, g := range fold(own, func(f Failure) string {
		text := withoutTime(f)
		if s.srv.IsExcused(f.Rank) {
			text += " (removed by a change of the job)"
		}
		return text
	}) {
		first, last := s.sinceStart(g.failures[0]), s.sinceStart(g.failures[len(g.failures)-1])
		when := first.String()
		if last > first {
			when += fmt.Sprintf(" to %v", last)
		}
		lines = append(lines, fmt.Sprintf("%s after the start, %s", when, g))
	}
	s.listLines(lines)
}

// sinceStart returns the time of a failure.
func (s *supervisor) sinceStart(f Failure) time.Duration {
	return f.FailedAt.Sub(s.startedAt).Round(time.Millisecond)
}

// listLines reports lines up to the limit of the list.
func (s *supervisor) listLines(lines []string) {
	for _, line := range lines[:min(len(lines), maxListed)] {
		s.note("  " + line)
	}
	if more := len(lines) - maxListed; more > 0 {
		s.note(fmt.Sprintf("  and %d more", more))
	}
}

// countEnded reports the number of ranks that failed because they were asked to end.
func (s *supervisor) countEnded(n int) {
	if n > 0 {
		s.note(fmt.Sprintf("  %s ended because ferry run stopped the job", plural(n, "rank", "ranks")))
	}
}

// areTolerated reports whether the failures leave the status of the job 0. Ranks that were asked
// to end have not failed by themselves, so that an interrupted job does not succeed.
func (s *supervisor) areTolerated() bool {
	all := s.result.Failures
	return len(all) <= s.job.ToleratedFailures && !slices.ContainsFunc(all, func(f Failure) bool { return f.WasAskedToEnd })
}

// withLast describes a failure with the most informative of its rank's last lines.
func withLast(f Failure) string {
	if line := lastLine(f); line != "" {
		return fmt.Sprintf("%s: %s", f, line)
	}
	return f.String()
}

// lastLine returns the most informative of the last lines, or "".
func lastLine(f Failure) string {
	switch {
	case len(f.LastLines) == 0:
		return ""
	case isPanic(f.LastLines[0]):
		return f.LastLines[0]
	}
	return f.LastLines[len(f.LastLines)-1]
}

// plural returns, for example, "one rank" or "3 ranks".
func plural(n int, one, many string) string {
	if n == 1 {
		return "one " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
