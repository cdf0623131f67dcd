package launch

import (
	"fmt"
	"slices"
	"time"
)

// The rank that failed first may end last (docs/decisions/blame.md).

// partWindow is the longest time between the departure of a rank from the others and the end
// of its process for which the departure counts as the time of its failure. Meanwhile it
// prints the stacks of its goroutines, or writes a core.
const partWindow = 10 * time.Second

// maxListed is the number of ranks that a list of failures names.
const maxListed = 16

// blame records a failure. The server has notified the other ranks.
func (s *supervisor) blame(f Failure) {
	f.At, f.Ended = time.Now(), s.isAsked
	if at, ok := s.srv.Parted(f.Rank); ok && !f.Ended && f.At.Sub(at) < partWindow {
		f.At = at
	}
	s.result.Failures = append(s.result.Failures, f)
	slices.SortStableFunc(s.result.Failures, func(a, b Failure) int { return a.At.Compare(b.At) })
	switch {
	case s.stage != running:
	case s.job.Continue:
		s.note(f.String())
	default:
		s.enter(failing)
	}
}

// nameFirst reports the rank that failed first, before the others get SIGTERM.
func (s *supervisor) nameFirst() {
	if len(s.result.Failures) > 0 && s.live > 0 {
		first := s.result.Failures[0]
		first.Last = s.ranks[first.Rank].tail.lines() // Grace has passed since it ended.
		s.blamed = first.Rank
		s.note(withLast(first))
	}
}

// account reports, at the end of the job, the rank that failed first and those that failed
// after it. Ranks that were asked to end are only counted.
func (s *supervisor) account() {
	all := s.result.Failures
	for i := range all {
		all[i].Last = s.ranks[all[i].Rank].tail.lines()
	}
	if len(all) == 0 || s.job.Continue {
		return
	}
	own := slices.DeleteFunc(slices.Clone(all), func(f Failure) bool { return f.Ended })
	switch first := all[0]; {
	case len(own) == 0:
		if s.interruptedBy != 0 {
			s.note(first.String())
		}
	case len(own) == 1 && s.blamed != own[0].Rank:
		s.note(withLast(own[0]))
	case len(own) > 1:
		s.list(own, len(all)-len(own))
	}
}

// list reports the failures, the cause first.
func (s *supervisor) list(own []Failure, ended int) {
	note := func(format string, args ...any) { s.note(fmt.Sprintf(format, args...)) }
	first := own[0]
	note("rank %d failed first, and %s after it:", first.Rank, plural(len(own)-1, "rank", "ranks"))
	note("  %s", first)
	for _, line := range first.Last {
		note("      %s", line)
	}
	for _, f := range own[1:min(len(own), maxListed)] {
		note("  %s", withLast(f))
	}
	if more := len(own) - maxListed; more > 0 {
		note("  and %d more", more)
	}
	if ended > 0 {
		note("  %s ended because ferry run stopped the job", plural(ended, "rank", "ranks"))
	}
}

// withLast describes a failure with the most informative of its rank's last lines.
func withLast(f Failure) string {
	if len(f.Last) == 0 {
		return f.String()
	}
	line := f.Last[len(f.Last)-1]
	if isPanic(f.Last[0]) {
		line = f.Last[0]
	}
	return fmt.Sprintf("%s: %s", f, line)
}

// plural returns, for example, "one rank" or "3 ranks".
func plural(n int, one, many string) string {
	if n == 1 {
		return "one " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
