package soak

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// Environment of the ranks of such a job, which has its seed and the number of deaths or 0.
const (
	envSurviveSeed   = "SOAK_SURVIVE_SEED"
	envSurviveDeaths = "SOAK_SURVIVE_DEATHS"
)

// survivor is a rank of a job with deaths of other ranks. All ranks execute the same steps, and
// each step ends with an agreement about its success. After a failure, the survivors continue over
// a Shrink of the communicator.
type survivor struct {
	ctx   context.Context
	plan  *survival
	world *mpi.Comm
	c     *mpi.Comm
	// Rank in world.
	me int
	// Death of this rank. Nil if it has none, or once it is scheduled.
	death *death
	// Number of agreements by communicator.
	calls map[string]int
	// stepComms are the communicators of a step. They are closed after the agreement on its end, because
	// a member that has closed one drops messages of others.
	stepComms []*mpi.Comm
}

// surviveRank is the program of such a job.
func surviveRank(ctx context.Context) error {
	seed, err := strconv.ParseUint(os.Getenv(envSurviveSeed), 10, 64)
	if err != nil {
		return err
	}
	deaths, err := strconv.Atoi(os.Getenv(envSurviveDeaths))
	if err != nil {
		return err
	}
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	c, err := newWorldComm(ctx, session, "survive")
	if err != nil {
		return err
	}
	s := &survivor{ctx: ctx, plan: newSurvival(seed, deaths), world: c, c: c, me: c.Rank(), calls: map[string]int{}}
	if d, dies := s.plan.deathOf(s.me); dies {
		s.death = &d
	}
	for i, kind := range s.plan.steps {
		s.schedule(i, false)
		if err := s.step(session, i, kind); err != nil {
			return fmt.Errorf("step %d (%v): %w", i, kind, err)
		}
	}
	if _, dies := s.plan.deathOf(s.me); dies {
		killSelf()
	}
	if err := s.agreeAndRecover(len(s.plan.steps), nil); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	if members := s.members(s.c); !slices.Equal(members, s.plan.survivors()) {
		return fmt.Errorf("the last communicator has the members %v, want %v", members, s.plan.survivors())
	}
	if s.c != s.world {
		err = s.c.Close()
	}
	if err = errors.Join(err, s.world.Close(), session.Close()); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	fmt.Printf("survived %d\n", s.me)
	return nil
}

// schedule schedules the death of this rank, if it is due at the beginning of a step or of a
// recovery.
func (s *survivor) schedule(step int, inRecovery bool) {
	d := s.death
	if d == nil || inRecovery != d.inRecovery || step < d.step {
		return
	}
	s.death = nil
	go func() {
		time.Sleep(d.after)
		killSelf()
	}()
}

func killSelf() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }

// isLoss reports whether an error is that of an operation that a failure has ended.
func isLoss(err error) bool {
	return slices.ContainsFunc([]error{mpi.ErrProcFailed, mpi.ErrProcFailedPending, mpi.ErrRevoked, mpi.ErrBroken}, func(e error) bool { return errors.Is(err, e) })
}

// step executes a step and recovers from a failure.
func (s *survivor) step(session *mpi.Session, i int, kind stepKind) error {
	rng := rand.New(rand.NewPCG(s.plan.seed, uint64(i)+1)) // The same numbers in all ranks.
	err := map[stepKind]func(*mpi.Session, *rand.Rand) error{
		stepMessages: s.messages, stepCollectives: s.collectives, stepCreation: s.creation,
		stepRevoke: s.revokes, stepShrink: s.shrinks, stepAgree: s.agrees,
	}[kind](session, rng)
	if err != nil && !isLoss(err) {
		return err
	}
	return s.agreeAndRecover(i, err)
}

// agreeAndRecover agrees with the other members on the end of a step, and continues over a smaller communicator until
// no member has failed.
func (s *survivor) agreeAndRecover(step int, failed error) error {
	for {
		if failed != nil {
			s.schedule(step, true)
			if err := s.c.Revoke(); err != nil {
				return fmt.Errorf("revoke: %w", err)
			}
		}
		all, lost, err := s.agree(s.c, failed == nil)
		switch {
		case err != nil:
			return err
		case all && !lost:
			return s.closeUsed()
		case !lost:
			return fmt.Errorf("a step failed without the failure of a rank: %w", failed)
		}
		s.schedule(step, true)
		if err := s.replace(); err != nil {
			return err
		}
		failed = nil
	}
}

// closeUsed closes the communicators of a step.
func (s *survivor) closeUsed() (err error) {
	for _, c := range s.stepComms {
		err = errors.Join(err, c.Close())
	}
	s.stepComms = nil
	return err
}

// replace replaces the communicator by a Shrink of it.
func (s *survivor) replace() error {
	old := s.c
	if err := old.Revoke(); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	next, err := s.shrink(old)
	if err != nil {
		return err
	}
	s.c = next
	if old == s.world {
		return nil
	}
	return old.Close()
}

// nextAgreement returns the name of the next agreement of a communicator.
func (s *survivor) nextAgreement(c *mpi.Comm) string {
	id := c.ID().String()
	s.calls[id]++
	return fmt.Sprintf("%s/%d", id, s.calls[id])
}

// agree returns whether all members pass true, and whether there are failures.
func (s *survivor) agree(c *mpi.Comm, mine bool) (all, lost bool, err error) {
	flags := uint64(1)
	if !mine {
		flags = 0
	}
	got, lost, err := s.agreeOn(c, flags)
	return got == 1, lost, err
}

// agreeOn calls Agree. It prints a line for each outcome, which must be equal in all members.
func (s *survivor) agreeOn(c *mpi.Comm, flags uint64) (got uint64, lost bool, err error) {
	call := s.nextAgreement(c)
	got, err = c.Agree(s.ctx, flags)
	var failed *mpi.ProcFailedError
	switch lost = errors.As(err, &failed); {
	case err != nil && !lost:
		return 0, false, fmt.Errorf("agree: %w", err)
	case got&^flags != 0:
		return 0, false, fmt.Errorf("agree: %#x, with the flags %#x", got, flags)
	case lost:
		fmt.Printf("outcome %s agree %#x failed %v\n", call, got, failed.Ranks)
	default:
		fmt.Printf("outcome %s agree %#x\n", call, got)
	}
	return got, lost, nil
}

// shrink calls Shrink. It checks that the members are those of the communicator in order, without
// dead ones.
func (s *survivor) shrink(c *mpi.Comm) (*mpi.Comm, error) {
	call := s.nextAgreement(c)
	failed := c.Failed()
	next, err := c.Shrink(s.ctx)
	if err != nil {
		return nil, fmt.Errorf("shrink: %w", err)
	}
	before, members := s.members(c), s.members(next)
	fmt.Printf("outcome %s shrink %v %v\n", call, members, next.ID())
	rest := slices.DeleteFunc(slices.Clone(before), func(rank int) bool { return !slices.Contains(members, rank) })
	if !slices.Equal(rest, members) {
		return nil, fmt.Errorf("shrink of %v: %v", before, members)
	}
	for i, rank := range before {
		_, dies := s.plan.deathOf(rank)
		isMember := slices.Contains(members, rank)
		if !isMember && !dies || isMember && slices.Contains(failed, i) {
			return nil, fmt.Errorf("shrink of %v with the failed ranks %v: %v", before, failed, members)
		}
	}
	return next, nil
}

// members returns the members of a communicator by their ranks in the job.
func (s *survivor) members(c *mpi.Comm) (ranks []int) {
	for _, p := range c.Group().Members() {
		ranks = append(ranks, int(p.Rank))
	}
	return ranks
}

// survivePattern returns contents that the sender and the message determine.
func survivePattern(n, rank, message int) []byte {
	h := fnv.New64a()
	fmt.Fprint(h, rank, message)
	b := make([]byte, n)
	for i, x := 0, h.Sum64(); i < n; i++ {
		x = bits.RotateLeft64(x, 7) * 0x9e3779b97f4a7c15
		b[i] = byte(x >> 56)
	}
	return b
}

// wrongValue is the error of an operation with a wrong result.
func wrongValue(format string, args ...any) error {
	return fmt.Errorf("wrong value: %s", strings.TrimSpace(fmt.Sprintf(format, args...)))
}
