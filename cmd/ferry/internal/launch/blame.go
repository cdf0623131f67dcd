package launch

import (
	"fmt"
	"slices"
	"time"
)

// Which rank failed first is not which process ended first: see docs/decisions/blame.md.

// partWindow is how long a rank that has parted from the others may take to fail, and
// still has failed when it parted: to print what its goroutines did, or to write a core.
// One that goes on for longer has something else to do.
const partWindow = 10 * time.Second

// mostListed is how many ranks a list of failures names.
const mostListed = 16

// blame notes a failure. The others have been told of it.
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

// nameFirst notes which rank has failed, before the others are asked to end because of it.
func (s *supervisor) nameFirst() {
	if len(s.result.Failures) > 0 && s.live > 0 {
		first := s.result.Failures[0]
		first.Last = s.ranks[first.Rank].tail.lines() // it has had time to come
		s.blamed = first.Rank
		s.note(withLast(first))
	}
}

// account notes at the end of the job which rank failed first, and which after it. Ranks
// that were asked to end are no more than counted: they are not what went wrong.
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
		if s.isInterrupted {
			s.note(first.String())
		}
	case len(own) == 1 && s.blamed != own[0].Rank:
		s.note(withLast(own[0]))
	case len(own) > 1:
		s.list(own, len(all)-len(own))
	}
}

// list notes the failures, the cause first.
func (s *supervisor) list(own []Failure, ended int) {
	note := func(format string, args ...any) { s.note(fmt.Sprintf(format, args...)) }
	first := own[0]
	note("rank %d failed first, and %s after it:", first.Rank, plural(len(own)-1, "rank", "ranks"))
	note("  %s", first)
	for _, line := range first.Last {
		note("      %s", line)
	}
	for _, f := range own[1:min(len(own), mostListed)] {
		note("  %s", withLast(f))
	}
	if more := len(own) - mostListed; more > 0 {
		note("  and %d more", more)
	}
	if ended > 0 {
		note("  %s ended because ferry run stopped the job", plural(ended, "rank", "ranks"))
	}
}

// withLast is a failure with the line that says most of what its rank wrote last.
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

// plural is "one rank", "3 ranks".
func plural(n int, one, many string) string {
	if n == 1 {
		return "one " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
