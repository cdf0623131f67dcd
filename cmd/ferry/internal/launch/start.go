package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"github.com/ferrympi/ferry/internal/cpu"
)

// startAll starts the ranks in order. After an error, the caller ends those that run. A
// signal that ends the job, or the end of ctx, keeps further ranks from being started.
func (s *supervisor) startAll(ctx context.Context) error {
	var early []os.Signal // For all ranks, once all have started.
	defer func() {
		for _, sig := range early {
			s.signal(sig)
		}
	}()
	if used := distinct(s.job.processorsByRank); s.job.CoresPerRank == 0 && used < len(s.job.processorsByRank) {
		s.note(fmt.Sprintf("%d ranks share %d cores: several ranks are bound to the same core", s.job.initialSize, used))
	}
	s.output.open(s.job)
	for i, part := range s.job.allParts {
		for range part.RankCount {
			select {
			case sig := <-s.job.Signals:
				if number, ok := sig.(syscall.Signal); ok && endsJob(number) {
					s.signal(number)
					s.shutdown.killedBy = number // The job is incomplete.
				} else {
					early = append(early, sig)
				}
			default:
			}
			if s.shutdown.interruptedBy != 0 || ctx.Err() != nil {
				return nil
			}
			n := len(s.ranks)
			var binding []int
			if s.job.processorsByRank != nil {
				binding = s.job.processorsByRank[n]
			}
			if err := s.startOne(n, i, binding); err != nil {
				return fmt.Errorf("start rank %d: %w", n, err)
			}
		}
	}
	return nil
}

// startOne starts a rank of a part on the given processors, or without any on all.
func (s *supervisor) startOne(n, index int, binding []int) (err error) {
	part := s.job.allParts[index]
	r := &rank{rankNumber: n, isRunning: true, boundProcessors: binding, traceIndex: len(s.result.Trace.Ranks), cmd: exec.Command(part.Program, part.Args...)}
	r.cmd.Dir, r.cmd.ExtraFiles = part.WorkingDir, s.job.ExtraFiles
	// The last of equal names wins, so that a job inside a job gets its own identity.
	r.cmd.Env = slices.Concat(processors(binding), inherited(part.WorkingDir), part.Env, s.srv.Environ(n))
	if err = s.connectOutput(r); err == nil {
		err = s.connectInput(r)
	}
	fork := cpu.Monotonic()
	if err == nil {
		err = startOn(s.forkThread, r.cmd, binding)
	}
	r.closeChildEnds()
	if err != nil {
		r.abort()
		return notExecutable(part.Program, part.WorkingDir, err)
	}
	s.result.Trace.Ranks = append(s.result.Trace.Ranks, RankTrace{Rank: n, ForkRequestedAt: fork, RunningAt: cpu.Monotonic()})
	r.startCopies()
	s.ranks[n] = r
	if index > 0 {
		s.partOf[n] = index
	}
	s.liveCount++
	go func() { s.rankEnds <- end{r, r.wait()} }()
	return nil
}

// connectInput gives Stdin to rank 0. After an error the caller calls r.abort.
func (s *supervisor) connectInput(r *rank) (err error) {
	if r.rankNumber != 0 || s.job.Stdin == nil {
		return nil
	}
	if !isTerminal(s.job.Stdin) {
		r.cmd.Stdin = s.job.Stdin
		return nil
	}
	var near *os.File
	if r.terminalInput, near, err = newTerminalReader(s.job.Stdin); err != nil {
		return err
	}
	r.cmd.Stdin, r.childEnds = near, append(r.childEnds, near)
	return nil
}
