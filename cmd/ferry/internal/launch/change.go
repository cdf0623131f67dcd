package launch

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/internal/limits"
)

// carryOut carries out an order of the server.
func (s *supervisor) carryOut(o server.Order) {
	switch o.Kind {
	case server.StartProcs:
		fit, err := s.startMore(o)
		s.srv.Started(o.First, fit, err)
	case server.EndProcs:
		s.depart(o.Ranks, 0)
	case server.AwaitExit:
		grace := s.job.LeaveGrace
		if grace == 0 {
			grace = DefaultLeaveGrace
		}
		s.depart(o.Ranks, grace)
	}
}

// startMore starts all ranks of an order. If it can't, it returns the number of ranks that can be
// started, and the reason.
func (s *supervisor) startMore(o server.Order) (fit int, err error) {
	if s.shutdown.hasBegun() {
		return 0, errEnding
	}
	if fit, err = s.room(o.N); err != nil {
		return fit, err
	}
	bindings := make([][]int, o.N)
	for i := range o.N {
		n := o.First + i
		if s.job.processorsByRank != nil {
			if bindings[i], err = s.leastUsedCores(); err != nil {
				return 0, err
			}
		}
		if err := s.startOne(n, s.partOf[o.Like], bindings[i]); err != nil {
			s.kick(o.First, n)
			return i, fmt.Errorf("start rank %d: %w", n, err)
		}
	}
	if s.job.processorsByRank != nil {
		notStarted := make([][]int, o.First-len(s.job.processorsByRank)) // Ranks of orders that failed.
		s.job.processorsByRank = append(append(s.job.processorsByRank, notStarted...), bindings...)
	}
	return o.N, nil
}

// room returns the number of further ranks, up to n, for which there are cores (Job.CoresPerRank) and the
// limits of this process have room. The error is the reason if there are fewer than n.
func (s *supervisor) room(n int) (int, error) {
	withCores, err := s.ranksWithCores(n)
	fit, limitErr := fitting(withCores, limits.Need.Check)
	if limitErr != nil {
		err = limitErr
	}
	return fit, err
}

// fitting returns the number of further ranks, up to n, whose needs pass a check, and the error of
// the check if there are fewer. Needs exclude running processes, which count as used.
func fitting(n int, check func(limits.Need) error) (int, error) {
	fails := func(n int) error { return check(limits.Need{Threads: n * rankThreads}) }
	err := fails(n)
	if err == nil {
		return n, nil
	}
	low, high := 0, n // low fits, and high does not.
	for high-low > 1 {
		if mid := (low + high) / 2; fails(mid) == nil {
			low = mid
		} else {
			high = mid
		}
	}
	return low, err
}

// ranksWithCores returns the number of further ranks, up to n, that can have cores of their own,
// and an error if there are fewer. Without Job.CoresPerRank, ranks share cores.
func (s *supervisor) ranksWithCores(n int) (int, error) {
	each := s.job.CoresPerRank
	if each == 0 {
		return n, nil
	}
	order, err := cores()
	if err != nil {
		return 0, err
	}
	use := s.coreUse()
	free := 0
	for _, core := range order {
		if use[core] < usedByRank {
			free++
		}
	}
	if fit := free / each; fit < n {
		return fit, fmt.Errorf("%d of %d cores are free, and each rank gets %d of its own (--cores-per-rank)", free, len(order), each)
	}
	return n, nil
}

// usedByRank is the use of a core by one rank. That of a rank that is about to end is 1.
const usedByRank = 2

// coreUse returns the use of each core by running ranks.
func (s *supervisor) coreUse() map[int]int {
	use := map[int]int{}
	for _, r := range s.ranks {
		for _, core := range r.boundProcessors {
			switch {
			case r.hasEnded:
			case s.leaving.has(r.rankNumber):
				use[core]++
			default:
				use[core] += usedByRank
			}
		}
	}
	return use
}

// leastUsedCores returns as many cores as each rank gets, those with the fewest running ranks.
func (s *supervisor) leastUsedCores() ([]int, error) {
	order, err := cores()
	if err != nil {
		return nil, err
	}
	use := s.coreUse()
	slices.SortStableFunc(order, func(a, b int) int { return use[a] - use[b] })
	return order[:min(max(1, s.job.CoresPerRank), len(order))], nil
}

// kick kills the ranks from first to end-1 of an order that failed.
func (s *supervisor) kick(first, end int) {
	for n := first; n < end; n++ {
		s.leaving.rankSteps = append(s.leaving.rankSteps, leavingRank{rank: s.ranks[n], stepGrace: Grace, stepEnd: time.Now().Add(Grace), isTerminating: true})
		s.ranks[n].signal(syscall.SIGKILL)
	}
	s.leaving.set()
}

// excuse drops a rank whose exit status the job ignores, when its output is written.
func (s *supervisor) excuse(r *rank) {
	go func() {
		r.drain()
		s.leaving.drainedRanks.Add(r)
	}()
}

// leavingRanks are the ranks that must end while the job continues. A rank gets SIGTERM after its
// grace, and SIGKILL after another Grace.
type leavingRanks struct {
	rankSteps []leavingRank
	// Set to the first deadline.
	deadlineTimer *time.Timer
	// Ranks that have left, after their output is written.
	drainedRanks *server.Queue[*rank]
}

type leavingRank struct {
	rank      *rank
	stepGrace time.Duration
	stepEnd   time.Time
	// The rank got SIGTERM.
	isTerminating bool
}

// depart expects the ranks to end within a time.
func (s *supervisor) depart(ranks []int, grace time.Duration) {
	for _, n := range ranks {
		if r := s.ranks[n]; r != nil && !r.hasEnded && !s.leaving.has(n) {
			s.leaving.rankSteps = append(s.leaving.rankSteps, leavingRank{rank: r, stepGrace: grace, stepEnd: time.Now().Add(grace)})
		}
	}
	s.endLeaving()
}

// endLeaving signals the ranks with an expired grace, and sets the timer for the others.
func (s *supervisor) endLeaving() {
	now := time.Now()
	for i := range s.leaving.rankSteps {
		d := &s.leaving.rankSteps[i]
		switch {
		case d.stepEnd.After(now):
			continue
		case d.isTerminating:
			d.rank.signal(syscall.SIGKILL)
		default:
			if d.stepGrace > 0 {
				s.note(fmt.Sprintf("rank %d (pid %d) left the job %v ago and is still running: terminating it", d.rank.rankNumber, d.rank.cmd.Process.Pid, d.stepGrace))
			}
			d.rank.signal(syscall.SIGTERM)
			d.isTerminating = true
		}
		d.stepGrace, d.stepEnd = Grace, now.Add(Grace)
	}
	s.leaving.set()
}

// has reports whether a rank is to end.
func (d *leavingRanks) has(n int) bool {
	return slices.ContainsFunc(d.rankSteps, func(x leavingRank) bool { return x.rank.rankNumber == n })
}

// remove removes a rank that has ended. It reports whether the rank got a signal.
func (d *leavingRanks) remove(r *rank) (wasSignaled bool) {
	d.rankSteps = slices.DeleteFunc(d.rankSteps, func(x leavingRank) bool {
		wasSignaled = wasSignaled || x.rank == r && x.isTerminating
		return x.rank == r
	})
	d.set()
	return wasSignaled
}

// restart begins the present steps again, after a stop of the job.
func (d *leavingRanks) restart() {
	for i := range d.rankSteps {
		d.rankSteps[i].stepEnd = time.Now().Add(d.rankSteps[i].stepGrace)
	}
	d.set()
}

func (d *leavingRanks) set() {
	d.deadlineTimer.Stop()
	if len(d.rankSteps) > 0 {
		first := slices.MinFunc(d.rankSteps, func(a, b leavingRank) int { return a.stepEnd.Compare(b.stepEnd) })
		d.deadlineTimer.Reset(time.Until(first.stepEnd))
	}
}
