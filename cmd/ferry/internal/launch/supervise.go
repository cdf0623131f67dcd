package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/fork"
)

// supervisor is the state of one running job. Its methods run on the goroutine of Run. It never
// writes output, so that it cannot block on a reader.
type supervisor struct {
	job        *Job
	srv        *server.Server
	forkThread *fork.Thread
	// Without those that left by a change, once their output is written.
	ranks     map[int]*rank
	liveCount int
	rankEnds  chan end
	// Closed at the end of supervise.
	loopDone chan struct{}

	events
	// The account of events.waitReports.
	hang hang
	// Ranks still running LossGrace after a disconnect.
	overdueRanks chan *rank
	// Part of each rank that is not of the first part.
	partOf  map[int]int
	leaving leavingRanks

	output    jobOutput
	orphans   orphanReaper
	shutdown  shutdown
	timeLimit limit

	startedAt time.Time
	startErr  error
	// Named as the first to fail; -1 for none.
	blamedRank int
	result     Result
}

// events come from the server of the job.
type events struct {
	serverLog <-chan string
	// Ranks that count as failed and may be running.
	lostRanks *server.Queue[server.Lost]
	// Reports of blocked calls.
	waitReports  <-chan Report
	serverOrders *server.Queue[server.Order]
	// Closed when the job begins to end.
	jobEnding chan struct{}
}

// end is the end of a rank's process.
type end struct {
	rank         *rank
	processState *os.ProcessState
}

// supervise starts the ranks, and returns when all have ended and their output is written.
//
// SIGUSR2 requests the blocked calls of all ranks. SIGTSTP stops the ranks and
// this process, and SIGCONT resumes them. Other signals go to every rank's process group. The second
// SIGINT or SIGTERM kills the job, because ranks may ignore both.
//
// The reader of the output may pause for any time, unless such a
// signal, the time limit or ctx ends the job. Then the reader has Grace; the second signal ends the wait.
func supervise(ctx context.Context, j *Job, srv *server.Server, from events) (Result, error) {
	s := &supervisor{
		job: j, srv: srv, forkThread: newForker(), ranks: map[int]*rank{}, rankEnds: make(chan end), loopDone: make(chan struct{}),
		events: from, overdueRanks: make(chan *rank), partOf: map[int]int{}, leaving: leavingRanks{drainedRanks: server.NewQueue[*rank]()},
		output: newJobOutput(), shutdown: shutdown{stageEnd: time.NewTimer(Grace)}, startedAt: time.Now(), blamedRank: -1,
	}
	defer close(s.loopDone)
	s.leaving.deadlineTimer = time.NewTimer(Grace)
	s.leaving.deadlineTimer.Stop()
	defer s.leaving.deadlineTimer.Stop()
	s.shutdown.stageEnd.Stop()
	defer s.shutdown.stageEnd.Stop()
	defer s.forkThread.Close()

	if j.SweepsDescendants {
		childEnded := make(chan os.Signal, 1)
		signal.Notify(childEnded, syscall.SIGCHLD)
		defer signal.Stop(childEnded)
		s.adopt(childEnded)
	}
	s.startErr = s.startAll(ctx)
	if s.startErr != nil {
		s.shutdown.cut()
		s.kill()
	} else if j.Timeout > 0 {
		s.timeLimit.begin(j.Timeout)
		defer s.timeLimit.pause()
	}
	if s.liveCount == 0 {
		s.drain()
	}
	s.loop(ctx)
	return s.result, s.conclude(ctx)
}

// loop handles events until the job has ended.
func (s *supervisor) loop(ctx context.Context) {
	done, drained := ctx.Done(), s.output.allDrained
	for isAnnounced := false; s.shutdown.stage != ended; {
		if s.shutdown.hasBegun() && !isAnnounced {
			close(s.jobEnding)
			isAnnounced = true
		}
		select {
		case e := <-s.rankEnds:
			s.recordEnd(e)
		case sig := <-s.job.Signals:
			s.signal(sig)
		case <-s.orphans.childEnded:
			s.orphans.schedule()
		case <-s.orphans.reapAt:
			s.orphans.reapAt = nil
			reap(s.notOrphans())
		case <-s.timeLimit.up():
			s.timeOut()
		case <-s.shutdown.stageEnd.C:
			s.advance()
		case line := <-s.serverLog:
			s.note(line)
		case <-s.lostRanks.Ready():
			for _, l := range s.lostRanks.Take() {
				s.lose(s.ranks[l.Rank], l)
			}
		case <-s.serverOrders.Ready():
			for _, o := range s.serverOrders.Take() {
				s.carryOut(o)
			}
		case <-s.leaving.deadlineTimer.C:
			s.endLeaving()
		case <-s.leaving.drainedRanks.Ready():
			for _, r := range s.leaving.drainedRanks.Take() {
				delete(s.ranks, r.rankNumber) // An order may name its part later.
			}
		case r := <-s.waitReports:
			s.addWaits(r)
		case <-s.hang.deadline:
			s.explain()
		case r := <-s.overdueRanks:
			s.endOverdue(r)
		case <-s.output.sinkErrors.Ready():
			s.failOutputs()
		case <-done:
			done = nil
			s.shutdown.cut()
			s.terminate()
		case <-drained:
			drained = nil
			s.finishNotes()
		case <-s.output.notesDelivered:
			s.shutdown.stage = ended
		}
	}
}

// conclude sets the status of the job.
func (s *supervisor) conclude(ctx context.Context) error {
	if s.job.ContinuesOnFailure {
		s.result.Failures = slices.DeleteFunc(s.result.Failures, func(f Failure) bool { return s.srv.IsExcused(f.Rank) })
	}
	all := s.result.Failures
	if s.areTolerated() {
		all = nil
	}
	own := slices.IndexFunc(all, func(f Failure) bool { return !f.WasAskedToEnd })
	switch {
	case s.startErr != nil:
		return s.startErr
	case ctx.Err() != nil:
		return fmt.Errorf("job canceled: %w", context.Cause(ctx))
	case s.shutdown.isTimedOut:
		s.result.Status = StatusTimeout
	case s.shutdown.killedBy != 0:
		s.result.Status = 128 + int(s.shutdown.killedBy)
	case s.output.isUnread:
		s.result.Status = 128 + int(syscall.SIGPIPE)
	case own >= 0:
		s.result.Status = all[own].Status
	case s.output.firstError != nil:
		s.result.Status = StatusOutput
	case len(all) > 0:
		s.result.Status = all[0].Status
	case s.result.IsOutputLost:
		s.result.Status = 128 + int(s.shutdown.interruptedBy)
	}
	return nil
}

// note queues a line for the user.
func (s *supervisor) note(line string) { s.output.noteQueue.add(func() { s.job.Note(line) }) }

// adopt prepares for orphans of the ranks. If it fails, orphans outlive the job.
func (s *supervisor) adopt(childEnded <-chan os.Signal) {
	others, err := adopt()
	if err != nil {
		s.note(err.Error())
	}
	s.orphans.excludedPIDs, s.orphans.childEnded = others, childEnded
}

// notOrphans returns the children that are not orphans of ranks.
func (s *supervisor) notOrphans() []int {
	pids := slices.Clone(s.orphans.excludedPIDs)
	for _, r := range s.ranks {
		if !r.hasEnded {
			pids = append(pids, r.cmd.Process.Pid)
		}
	}
	return pids
}

// sweep ends the processes that the ranks left behind. All ranks have ended.
func (s *supervisor) sweep() {
	if s.orphans.childEnded == nil {
		return
	}
	if left := sweep(s.orphans.excludedPIDs, Grace); len(left) > 0 {
		s.note(fmt.Sprintf("can't kill processes %v, which ranks started", left))
	}
}

// drain begins the end of the output. All ranks have ended.
func (s *supervisor) drain() {
	s.result.Trace.RanksEndedAt = cpu.Monotonic()
	s.sweep()
	s.shutdown.drain()
	s.output.drain(slices.Collect(maps.Values(s.ranks)))
}

// finishNotes adds the last notes, once. The output is written, or abandoned.
func (s *supervisor) finishNotes() {
	if s.output.notesDelivered != nil {
		return
	}
	s.failOutputs()
	if s.output.moreErrors > 0 {
		s.note(fmt.Sprintf("%s could not be written either", plural(s.output.moreErrors, "output", "outputs")))
	}
	if !s.output.isUnread {
		s.account()
	}
	for len(s.serverLog) > 0 {
		s.note(<-s.serverLog)
	}
	s.output.closeNotes()
}

// abandonOutput ends the wait for the reader of the output, if any of it is left.
func (s *supervisor) abandonOutput() {
	if s.output.notesDelivered != nil { // Only notes are left.
		s.result.IsOutputLost = true
		s.shutdown.stage = ended
		return
	}
	select {
	case <-s.output.allDrained:
	default:
		s.result.IsOutputLost = true
		s.note("output is incomplete: it was not read in time")
		if s.startErr != nil {
			s.note(s.startErr.Error()) // The caller may be unable to write it.
		}
	}
	s.finishNotes()
	s.shutdown.stageEnd.Reset(drainGrace)
}

// failOutputs handles the failures of sinks since the last time.
func (s *supervisor) failOutputs() {
	for _, err := range s.output.sinkErrors.Take() {
		s.failOutput(err)
	}
}

// failOutput handles the failure of a sink.
func (s *supervisor) failOutput(err error) {
	switch {
	case errors.Is(err, syscall.EPIPE):
		s.output.isUnread = true
	case s.output.firstError != nil:
		s.output.moreErrors++
	default:
		s.output.firstError = err
		consequence := "terminating the job"
		if s.shutdown.stage >= draining {
			consequence = "output is incomplete"
		}
		s.note(fmt.Sprintf("%v: %s", err, consequence))
	}
	s.terminate()
}

// recordEnd records the end of a rank.
func (s *supervisor) recordEnd(e end) {
	s.liveCount--
	e.rank.hasEnded = true
	s.result.Trace.Ranks[e.rank.traceIndex].EndSeenAt = cpu.Monotonic()
	isExcused := s.srv.IsExcused(e.rank.rankNumber)
	f, failed := e.rank.failure(e.processState)
	if failed {
		s.srv.ProcExited(e.rank.rankNumber, e.processState.String())
	} else {
		s.srv.ProcExited(e.rank.rankNumber, "")
	}
	wasSignaled := s.leaving.remove(e.rank)
	switch {
	case isExcused:
		s.excuse(e.rank)
		if failed && !wasSignaled && !s.shutdown.isAsked {
			s.note(f.String() + ", which does not end the job: it had left, or its change was not complete")
		}
	case failed:
		s.blame(f)
	}
	if s.liveCount == 0 {
		s.drain()
	}
}

// lose records that a rank counts as failed without having ended. The server has notified the others
// of its failure.
func (s *supervisor) lose(r *rank, l server.Lost) {
	if r == nil || r.hasEnded || s.shutdown.stage != running || s.srv.IsExcused(r.rankNumber) {
		return
	}
	how := "has lost its connection to the launcher"
	if r.isSilent = l.Unanswered > 0; r.isSilent {
		how = fmt.Sprintf("has answered no query for %v (bootstrap.process_timeout)", l.Unanswered)
	}
	s.note(fmt.Sprintf("rank %d (pid %d) %s: it counts as failed", r.rankNumber, r.cmd.Process.Pid, how))
	if !s.job.ContinuesOnFailure || r.isSilent {
		time.AfterFunc(cmp.Or(s.job.LossGrace, bootstrap.DefaultTimeout), func() {
			select {
			case s.overdueRanks <- r:
			case <-s.loopDone:
			}
		})
	}
}

// endOverdue ends the job if a rank is still running that counts as failed. With ContinuesOnFailure it kills a
// silent rank instead, because that would keep the job from ending.
func (s *supervisor) endOverdue(r *rank) {
	switch {
	case r.hasEnded || s.shutdown.stage != running:
	case s.job.ContinuesOnFailure:
		s.note(fmt.Sprintf("rank %d (pid %d) is still running and counts as failed: killing it", r.rankNumber, r.cmd.Process.Pid))
		r.signal(syscall.SIGKILL)
	case r.isSilent:
		s.note(fmt.Sprintf("rank %d (pid %d) is still running and counts as failed: terminating the job", r.rankNumber, r.cmd.Process.Pid))
		s.blamedRank = r.rankNumber
		s.shutdown.enter(failing)
	default:
		s.note(fmt.Sprintf("rank %d (pid %d) is still running without a launcher connection: terminating the job", r.rankNumber, r.cmd.Process.Pid))
		s.blamedRank = r.rankNumber
		s.shutdown.enter(failing)
	}
}

// signal handles a signal to the launcher.
func (s *supervisor) signal(sig os.Signal) {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return
	}
	switch number {
	case syscall.SIGUSR2:
		s.askAll()
		return
	case syscall.SIGTSTP:
		s.suspend()
		return
	case syscall.SIGCONT:
		s.signalAll(syscall.SIGCONT)
		s.timeLimit.resume()
		s.shutdown.resume()
		s.leaving.restart()
		return
	case syscall.SIGINT, syscall.SIGTERM:
		if s.shutdown.interruptCount++; s.shutdown.interruptCount > 1 {
			s.shutdown.killedBy = number
			s.shutdown.cut()
			s.kill()
			return
		}
	}
	if !endsJob(number) {
		s.signalAll(number)
		return
	}
	s.shutdown.interruptedBy = number
	s.shutdown.cut()
	s.endWith(number)
}

// endsJob reports whether a signal that is forwarded ends a job. USR1 has the program's own
// meaning.
func endsJob(sig syscall.Signal) bool {
	return !slices.Contains([]syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGCONT}, sig)
}

// timeOut begins the end of the job at its time limit. The ranks first report their blocked
// calls.
func (s *supervisor) timeOut() {
	if s.shutdown.stage == terminating || s.shutdown.stage == killed {
		return
	}
	s.shutdown.isTimedOut = true
	s.shutdown.cut()
	s.note(fmt.Sprintf("time is up after %v: terminating the job", s.job.Timeout))
	s.askAll()
}

// advance enters the next stage at the end of one.
func (s *supervisor) advance() {
	switch s.shutdown.stage {
	case failing:
		s.nameFirst()
		s.terminate()
	case terminating:
		s.kill()
	case draining:
		s.abandonOutput()
	}
}

// terminate sends SIGTERM, unless the job has passed that stage.
func (s *supervisor) terminate() {
	if s.shutdown.stage < terminating {
		s.shutdown.enter(terminating)
		s.endWith(syscall.SIGTERM)
	}
}

// kill sends SIGKILL. If only output is left, it shortens the time for that.
func (s *supervisor) kill() {
	if s.shutdown.stage >= draining {
		s.shutdown.stageEnd.Reset(drainGrace)
		return
	}
	s.shutdown.stage = killed
	s.endWith(syscall.SIGKILL)
}

// endWith sends the ranks a signal that ends programs.
func (s *supervisor) endWith(sig syscall.Signal) {
	s.shutdown.isAsked = true
	s.signalAll(sig)
}

func (s *supervisor) signalAll(sig syscall.Signal) {
	for _, r := range s.ranks {
		r.signal(sig)
	}
}
