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

// Cases of whole jobs. Each runs under every launcher with a bootstrap.

// eachConnected runs f under each launcher whose ranks can communicate.
func eachConnected(t *testing.T, f func(t *testing.T, l *Started)) {
	Each(t, All(), func(t *testing.T, l *Started) {
		if _, built := components.Standard().Lookup("bootstrap", string(l.Interface)); !built {
			t.Skipf("no bootstrap %s in this build", l.Interface)
		}
		f(t, l)
	})
}

// The program is `ferry conform`, which checks the requirements of the MPI standard.
func TestConform(t *testing.T) {
	eachConnected(t, func(t *testing.T, l *Started) {
		l.RunToEnd(t, Job{Size: 4, Program: Ferry, ProgramArgs: []string{"conform"}, Timeout: 3 * time.Minute})
	})
}

// Ranks 1 and 3 of 4 create a communicator while the others sleep without a session.
func TestCommFromGroup_OthersSleep_Succeeds(t *testing.T) {
	needs.Time(t)
	eachConnected(t, func(t *testing.T, l *Started) {
		t.Parallel() // Mostly sleeps.
		for i, rank := range l.RunToEnd(t, Job{Size: 4, Program: "pair"}).Ranks {
			t.Logf("rank %d: %s", i, rank.Output)
		}
	})
}

const (
	sleepTime = 5 * time.Second
	// pairTimeout is the timeout of the pair, which does not depend on sleeping ranks.
	pairTimeout = sleepTime - time.Second
)

func pair(ctx context.Context) error {
	n, err := Number()
	if err != nil {
		return err
	}
	if n%2 == 0 {
		time.Sleep(sleepTime)
		s, err := mpi.OpenSession(ctx) // mpirun fails a job in which some ranks never call its library.
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
	if took > pairTimeout {
		return fmt.Errorf("the communicator took %v, want at most %v", took, pairTimeout)
	}
	return errors.Join(exchangeByte(ctx, c, n), c.Close(), s.Close())
}

// exchangeByte exchanges a byte with the other one of two ranks.
func exchangeByte(ctx context.Context, c *mpi.Comm, i int) error {
	buf := make([]byte, 8)
	other := 1 - c.Rank()
	st, err := c.Sendrecv(ctx, []byte{byte(i + c.Rank())}, other, 1, buf, other, 1)
	if err == nil && st.Bytes != 1 {
		err = fmt.Errorf("%+v, %v", st, buf)
	}
	return err
}

// Each launcher has a map of the nodes.
func TestRoots_OneMachine_IsRankZero(t *testing.T) {
	eachConnected(t, func(t *testing.T, l *Started) { l.RunToEnd(t, Job{Size: 4, Program: "roots"}) })
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

// The job opens, communicates and closes 1,000 times without a leak.
func TestSession_ReopenedOften_LeaksNothing(t *testing.T) {
	needs.Time(t)
	eachConnected(t, func(t *testing.T, l *Started) {
		res := l.RunToEnd(t, Job{Size: 2, Program: "reopen", Timeout: 5 * time.Minute})
		t.Logf("%v\n%s%s", res.ElapsedTime, res.Ranks[0].Output, res.Ranks[1].Output)
	})
}

func reopen(ctx context.Context) error {
	return Steady(ctx, 1000, func(ctx context.Context, i int) error {
		s, c, err := world(ctx, "reopen")
		if err != nil {
			return err
		}
		return errors.Join(exchangeByte(ctx, c, i), c.Close(), s.Close())
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

// Ranks that create communicators in a loop end within bootstrap.timeout after their launcher is
// killed, with an error or killed with it.
func TestConstruct_LauncherKilled_RanksEnd(t *testing.T) {
	needs.Time(t)
	const timeout = 2 * time.Second // bootstrap.timeout
	eachConnected(t, func(t *testing.T, l *Started) {
		t.Parallel() // Mostly waits.
		kills := 20
		switch {
		case *full:
		case strings.HasPrefix(l.Name, "srun"):
			kills = 3 // After each kill, the node accepts no job for almost 3 s.
		case l.Name == "mpirun":
			kills = 5 // Its ranks survive for bootstrap.timeout.
		}
		env := []string{"FERRY_BOOTSTRAP_TIMEOUT=" + timeout.String(), "FERRY_BOOTSTRAP_ON_LOSS=end"}
		l.killRepeatedly(t, kills, timeout, env)
		if l.Interface == Local {
			return
		}
		// The ranks are in a barrier of the launcher, which never completes.
		l.killRepeatedly(t, 3, timeout, append(env, "FERRY_BOOTSTRAP_"+strings.ToUpper(string(l.Interface))+"_EXCHANGE=all"))
	})
}

func (s *Started) killRepeatedly(t *testing.T, kills int, timeout time.Duration, env []string) {
	t.Helper()
	var worst time.Duration
	errs := 0
	for range kills {
		res := s.KillLauncher(t, Job{Size: 4, Program: "wire-up", ExtraEnv: env}, timeout+endTimeout)
		worst = max(worst, res.ElapsedTime)
		for i, rank := range res.Ranks {
			if rank.HasReturned && rank.Err == "" {
				t.Errorf("rank %d ended well: %s", i, rank.Output)
			}
			if rank.HasReturned {
				errs++
			}
		}
	}
	t.Logf("all processes ended within %v; %d of %d ranks ended with an error, the others were killed", worst, errs, 4*kills)
}

// wireUp creates communicators from groups until an error.
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

// The error names the variable that proves the existence of other ranks. Without the user's
// permission, the ranks never become singletons.
func TestOpen_NoBootstrap_ErrorNamesVariable(t *testing.T) {
	l := SlurmNone.Start(t)
	for i, rank := range l.Begin(t, Job{Size: 2, Program: "alone"}).Wait().Ranks {
		for _, want := range []string{"SLURM_STEP_NUM_TASKS", "ferry run", "srun --mpi=pmix", "srun --mpi=pmi2", allowSingleton} {
			if !rank.HasReturned || !strings.Contains(rank.Err, want) {
				t.Errorf("rank %d has not %q: %+v", i, want, rank)
			}
		}
	}
	others := slices.DeleteFunc(allLaunchers(), func(l Launcher) bool { return l.Interface == Local }) // ferry run sets the variable itself.
	Each(t, others, func(t *testing.T, l *Started) {
		l.RunToEnd(t, Job{Size: 2, Program: "alone", ExtraEnv: []string{allowSingleton}})
	})
}

const allowSingleton = "FERRY_BOOTSTRAP_LOCAL_SINGLETON=true"

// alone returns an error if there is another rank.
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
