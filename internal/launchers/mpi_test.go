package launchers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
)

// The cases of whole jobs. Each runs under every launcher for which there is a bootstrap.

// wired runs f under each launcher whose ranks can meet.
func wired(t *testing.T, f func(t *testing.T, l *Started)) {
	Each(t, All(), func(t *testing.T, l *Started) {
		if _, built := components.Standard().Lookup("bootstrap", string(l.Speaks)); !built {
			t.Skipf("there is no bootstrap %s yet", l.Speaks)
		}
		f(t, l)
	})
}

// TestConform: what the MPI standard asks, by `ferry conform` as the program.
func TestConform(t *testing.T) {
	wired(t, func(t *testing.T, l *Started) {
		l.ToTheEnd(t, Job{Size: 4, Program: Ferry, Args: []string{"conform"}, Timeout: 3 * time.Minute})
	})
}

// TestPairAmongSleepers: ranks 1 and 3 of 4 make a communicator while the others have no
// session yet, and are asleep.
func TestPairAmongSleepers(t *testing.T) {
	needs.Time(t)
	wired(t, func(t *testing.T, l *Started) {
		t.Parallel() // mostly asleep
		for i, rank := range l.ToTheEnd(t, Job{Size: 4, Program: "pair"}).Ranks {
			t.Logf("rank %d: %s", i, rank.Output)
		}
	})
}

const (
	asleep = 5 * time.Second
	// awake is what the pair has at most: they need no one who sleeps.
	awake = asleep - time.Second
)

func pair(ctx context.Context) error {
	n, err := Number()
	if err != nil {
		return err
	}
	if n%2 == 0 {
		time.Sleep(asleep)
		s, err := mpi.OpenSession(ctx) // mpirun fails a job of which some never call its library
		if err != nil {
			return err
		}
		return s.Close()
	}
	start := time.Now()
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	w, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	g, err := w.Incl(1, 3)
	if err != nil {
		return err
	}
	c, err := mpi.CommFromGroup(ctx, g, "pair")
	if err != nil {
		return err
	}
	took := time.Since(start)
	fmt.Printf("a communicator of two after %v", took)
	if took > awake {
		return fmt.Errorf("it took %v", took)
	}
	return errors.Join(talk(ctx, c, n), c.Close(), s.Close())
}

// talk exchanges a byte with the other one of two.
func talk(ctx context.Context, c *mpi.Comm, i int) error {
	buf := make([]byte, 8)
	other := 1 - c.Rank()
	st, err := c.Sendrecv(ctx, []byte{byte(i + c.Rank())}, other, 1, buf, other, 1)
	if err == nil && st.Bytes != 1 {
		err = fmt.Errorf("%+v, %v", st, buf)
	}
	return err
}

// TestRoots_OneMachine_IsRankZero under each launcher, which has a map of the nodes.
func TestRoots_OneMachine_IsRankZero(t *testing.T) {
	wired(t, func(t *testing.T, l *Started) { l.ToTheEnd(t, Job{Size: 4, Program: "roots"}) })
}

func roots(ctx context.Context) error {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	names, err := s.Psets(ctx)
	if err == nil && !slices.Contains(names, "mpix://ROOTS") {
		err = fmt.Errorf("the sets are %q", names)
	}
	if err == nil {
		var g *mpi.Group
		if g, err = s.Group(ctx, "mpix://ROOTS"); err == nil && (g.Size() != 1 || g.Members()[0].Rank != 0) {
			err = fmt.Errorf("the roots are %v", g.Members())
		}
	}
	return errors.Join(err, s.Close())
}

// TestReopen: 1,000 times open, communicate and close, with nothing that grows.
func TestReopen(t *testing.T) {
	needs.Time(t)
	wired(t, func(t *testing.T, l *Started) {
		res := l.ToTheEnd(t, Job{Size: 2, Program: "reopen", Timeout: 5 * time.Minute})
		t.Logf("%v\n%s%s", res.Time, res.Ranks[0].Output, res.Ranks[1].Output)
	})
}

func reopen(ctx context.Context) error {
	return Steady(ctx, 1000, func(ctx context.Context, i int) error {
		s, c, err := world(ctx, "reopen")
		if err != nil {
			return err
		}
		return errors.Join(talk(ctx, c, i), c.Close(), s.Close())
	})
}

func world(ctx context.Context, tag string) (*mpi.Session, *mpi.Comm, error) {
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		return nil, nil, err
	}
	g, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		return nil, nil, err
	}
	c, err := mpi.CommFromGroup(ctx, g, tag)
	return s, c, err
}

// TestLauncherKilledDuringAConstruct: ranks that make communicators, one after the other,
// end within bootstrap.timeout when their launcher is killed: with an error, or killed with it.
func TestLauncherKilledDuringAConstruct(t *testing.T) {
	needs.Time(t)
	const timeout = 2 * time.Second // bootstrap.timeout
	wired(t, func(t *testing.T, l *Started) {
		t.Parallel() // mostly waits
		kills := 20
		switch {
		case *full:
		case strings.HasPrefix(l.Name, "srun"):
			kills = 3 // for almost 3 s after each the node takes no job
		case l.Name == "mpirun":
			kills = 5 // whose ranks live on, for bootstrap.timeout
		}
		env := []string{"FERRY_BOOTSTRAP_TIMEOUT=" + timeout.String(), "FERRY_BOOTSTRAP_ON_LOSS=end"}
		l.killOften(t, kills, timeout, env)
		if l.Speaks == Local {
			return
		}
		// In a barrier of the launcher's own, out of which it lets nobody any more.
		l.killOften(t, 3, timeout, append(env, "FERRY_BOOTSTRAP_"+strings.ToUpper(string(l.Speaks))+"_EXCHANGE=all"))
	})
}

func (s *Started) killOften(t *testing.T, kills int, timeout time.Duration, env []string) {
	t.Helper()
	var worst time.Duration
	errs := 0
	for range kills {
		res := s.KillLauncher(t, Job{Size: 4, Program: "wire-up", Env: env}, timeout+prompt)
		worst = max(worst, res.Time)
		for i, rank := range res.Ranks {
			if rank.Ended && rank.Err == "" {
				t.Errorf("rank %d ended well: %s", i, rank.Output)
			}
			if rank.Ended {
				errs++
			}
		}
	}
	t.Logf("no process is left after %v at the latest; %d of %d ranks ended with an error, the others were killed", worst, errs, 4*kills)
}

// wireUp makes communicators from groups until that fails.
func wireUp(ctx context.Context) error {
	s, c, err := world(ctx, "first")
	if err != nil {
		return err
	}
	defer s.Close()
	defer c.Close()
	if err := Ready(); err != nil {
		return err
	}
	for {
		next, err := mpi.CommFromGroup(ctx, c.Group(), "next")
		if err != nil {
			return err
		}
		if err := next.Close(); err != nil {
			return err
		}
	}
}

// TestRanksWithNoWayToMeet: that is an error that names the variable which says so, and
// never a job of singletons; unless the user says that it is to be.
func TestRanksWithNoWayToMeet(t *testing.T) {
	l := SlurmNone.Start(t)
	for i, rank := range l.Begin(t, Job{Size: 2, Program: "alone"}).Wait().Ranks {
		for _, want := range []string{"SLURM_STEP_NUM_TASKS", "ferry run", "srun --mpi=pmix", "srun --mpi=pmi2", byItself} {
			if !rank.Ended || !strings.Contains(rank.Err, want) {
				t.Errorf("rank %d has not %q: %+v", i, want, rank)
			}
		}
	}
	others := slices.DeleteFunc(everyone(), func(l Launcher) bool { return l.Speaks == Local }) // which sets the variable itself
	Each(t, others, func(t *testing.T, l *Started) {
		l.ToTheEnd(t, Job{Size: 2, Program: "alone", Env: []string{byItself}})
	})
}

const byItself = "FERRY_BOOTSTRAP_LOCAL_SINGLETON=true"

// alone is an error if there is anybody else.
func alone(ctx context.Context) error {
	s, c, err := world(ctx, "alone")
	if err != nil {
		return err
	}
	if c.Size() != 1 {
		err = fmt.Errorf("%d processes", c.Size())
	}
	return errors.Join(err, c.Close(), s.Close())
}
