package launchers

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest/jobtest"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/bootstrap/pmi1"
	"github.com/ferrympi/ferry/bootstrap/pmix"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/mpi"
)

// The kit of package bootstrap under real launchers, and the ways in which constructs are
// made there (parameter exchange).

const (
	envKit      = "LAUNCHERS_KIT"      // the test's address
	envSpeaks   = "LAUNCHERS_SPEAKS"   // Launcher.Speaks
	envExchange = "LAUNCHERS_EXCHANGE" // the parameter
)

// openBootstrap opens this rank's client.
func openBootstrap(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error) {
	if os.Getenv(envSpeaks) == string(Local) { // whose parameters are in the environment
		return local.Dial(ctx, os.Environ(), env)
	}
	one, ok := components.Standard().Lookup("bootstrap", os.Getenv(envSpeaks))
	if !ok {
		return nil, fmt.Errorf("no bootstrap %q", os.Getenv(envSpeaks))
	}
	c := one.(bootstrap.Component)
	params := c.Params()
	framework.FillDefaults(params)
	switch p := params.(type) {
	case *pmi1.Params:
		p.Exchange = os.Getenv(envExchange)
	case *pmix.Params:
		p.Exchange = os.Getenv(envExchange)
	}
	env.Params = params
	return c.Open(ctx, env)
}

func kit(ctx context.Context) error { return jobtest.Serve(ctx, os.Getenv(envKit), openBootstrap) }

// lackingUnder says which guarantees a bootstrap does not give with an exchange; docs/launchers.md
// has the same.
func lackingUnder(s Speaks, exchange string) (lacking bootstraptest.Guarantees) {
	if exchange == "meet" {
		return 0
	}
	lacking = bootstraptest.Overlap | bootstraptest.Withdrawal | bootstraptest.Deaths
	if exchange == "all" {
		lacking |= bootstraptest.Subsets
	}
	if s == PMI1 {
		lacking |= bootstraptest.Names
	}
	return lacking
}

// TestKit: what every launcher's clients promise. No launcher lets a job live on when one of
// its processes was killed: those cases are for bootstrap/pmix and bootstrap/meet.
func TestKit(t *testing.T) {
	needs.Time(t)
	wired(t, func(t *testing.T, l *Started) {
		t.Parallel() // mostly starts and ends
		exchanges := []string{"meet", "groups", "all"}
		if l.Speaks == Local {
			exchanges = exchanges[:1]
		}
		for _, exchange := range exchanges {
			t.Run(exchange, func(t *testing.T) { l.kit(t, exchange) })
		}
	})
}

func (s *Started) kit(t *testing.T, exchange string) {
	if exchange == "groups" && s.Speaks == PMI1 && !s.hasGroups(t) {
		t.Skip("it speaks PMI 1.1, without barriers of groups")
	}
	all := jobtest.Factory(func(_ context.Context, want bootstraptest.Want, address string) (func() error, error) {
		if len(want.Psets) > 0 {
			return nil, fmt.Errorf("its process sets are not named by a test: %w", bootstraptest.ErrSkip)
		}
		r := s.Begin(t, Job{Size: want.Size, Program: "kit", Env: []string{envKit + "=" + address, envSpeaks + "=" + string(s.Speaks), envExchange + "=" + exchange}})
		return func() error {
			res := r.Wait()
			if err := res.Failures("kit"); err != nil {
				return fmt.Errorf("%w\n%v", err, res)
			}
			return nil
		}, nil
	}, false)
	bootstraptest.Cases(bootstraptest.Without(lackingUnder(s.Speaks, exchange), all)).Run(t)
}

// hasGroups reports whether the launcher takes exchange=groups; one that does not says so
// when it is opened.
func (s *Started) hasGroups(t *testing.T) bool {
	t.Helper()
	res := s.Begin(t, Job{Size: 1, Program: "open", Env: []string{envSpeaks + "=" + string(s.Speaks), envExchange + "=groups"}}).Wait()
	if err := res.Ranks[0].Err; err != "" && !strings.Contains(err, "the launcher speaks PMI 1.1") {
		t.Fatal(res)
	}
	return res.Ranks[0].Err == ""
}

func openAndClose(ctx context.Context) error {
	c, err := openBootstrap(ctx, bootstrap.Env{Timeout: time.Minute})
	if err != nil {
		return err
	}
	return c.Close()
}

// TestOutsidersTakePartWhereAllAreNeeded: with exchange=all those outside a group call as
// well, get ErrGroup when all have come, and the members have a communicator.
func TestOutsidersTakePartWhereAllAreNeeded(t *testing.T) {
	wired(t, func(t *testing.T, l *Started) {
		if l.Speaks == Local {
			t.Skip("its bootstrap has one way to make a construct")
		}
		l.ToTheEnd(t, Job{Size: 4, Program: "outsiders", Env: []string{"FERRY_BOOTSTRAP_" + strings.ToUpper(string(l.Speaks)) + "_EXCHANGE=all"}})
	})
}

func outsiders(ctx context.Context) error {
	n, err := Number()
	if err != nil {
		return err
	}
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
	for range 3 {
		c, err := mpi.CommFromGroup(ctx, g, "pair")
		if n%2 == 0 {
			if !strings.Contains(fmt.Sprint(err), "is not in it") {
				return fmt.Errorf("rank %d, which is outside: %w", n, err)
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := talk(ctx, c, n); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return s.Close()
}
