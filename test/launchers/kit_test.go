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

// The kit of package bootstrap under real launchers with each exchange.

const (
	envKit      = "LAUNCHERS_KIT"      // Address of the test.
	envSpeaks   = "LAUNCHERS_SPEAKS"   // Launcher.Interface.
	envExchange = "LAUNCHERS_EXCHANGE" // Parameter exchange.
)

// openBootstrap opens the client of this rank.
func openBootstrap(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error) {
	if os.Getenv(envSpeaks) == string(Local) { // Its parameters are in the environment.
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
		p.Exchange, p.HandOver = os.Getenv(envExchange), os.Getenv(framework.EnvName("bootstrap.pmix.hand_over"))
	}
	env.Params = params
	return c.Open(ctx, env)
}

func kit(ctx context.Context) error { return jobtest.Serve(ctx, os.Getenv(envKit), openBootstrap) }

// lackingUnder returns the guarantees that a bootstrap lacks with an exchange, as listed in
// docs/launchers.md.
func lackingUnder(s Interface, exchange string) (lacking bootstraptest.Guarantees) {
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

// The test runs the kit over the clients of every launcher. Without flags, all launchers end a job
// after the death of a process. Those cases run in bootstrap/pmix and bootstrap/mesh.
func TestKit(t *testing.T) {
	needs.Time(t)
	eachConnected(t, func(t *testing.T, l *Started) {
		t.Parallel() // Mostly starts and ends.
		exchanges := []string{"meet", "groups", "all"}
		if l.Interface == Local {
			exchanges = exchanges[:1]
		}
		for _, exchange := range exchanges {
			t.Run(exchange, func(t *testing.T) { l.kit(t, exchange) })
		}
	})
}

func (s *Started) kit(t *testing.T, exchange string) {
	if exchange == "groups" && s.Interface == PMI1 && !s.hasGroups(t) {
		t.Skip("the launcher has PMI 1.1, without group barriers")
	}
	factory := jobtest.Factory
	if exchange == "meet" && s.CanSpawn && s.Name != SlurmPMI2.Name { // Slurm's allocation has no room for added processes.
		factory = jobtest.GrowingFactory
	}
	all := factory(func(_ context.Context, want bootstraptest.Want, address string) (func() error, error) {
		if len(want.Psets) > 0 {
			return nil, fmt.Errorf("the job cannot have named process sets: %w", bootstraptest.ErrSkip)
		}
		r := s.Begin(t, Job{Size: want.Size, Program: "kit", ExtraEnv: []string{envKit + "=" + address, envSpeaks + "=" + string(s.Interface), envExchange + "=" + exchange}})
		return func() error {
			res := r.Wait()
			if err := res.Failures("kit"); err != nil {
				return fmt.Errorf("%w\n%v", err, res)
			}
			return nil
		}, nil
	}, false)
	bootstraptest.Cases(bootstraptest.Without(lackingUnder(s.Interface, exchange), all)).Run(t)
}

// hasGroups reports whether the launcher supports exchange=groups, which the client checks when it
// opens.
func (s *Started) hasGroups(t *testing.T) bool {
	t.Helper()
	res := s.Begin(t, Job{Size: 1, Program: "open", ExtraEnv: []string{envSpeaks + "=" + string(s.Interface), envExchange + "=groups"}}).Wait()
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

// With exchange=all, processes outside of the group take part as well. They get ErrGroup when all
// have called, and the members get a communicator.
func TestExchangeAll_Outsiders_TakePart(t *testing.T) {
	eachConnected(t, func(t *testing.T, l *Started) {
		if l.Interface == Local {
			t.Skip("its bootstrap has no parameter exchange")
		}
		l.RunToEnd(t, Job{Size: 4, Program: "outsiders", ExtraEnv: []string{"FERRY_BOOTSTRAP_" + strings.ToUpper(string(l.Interface)) + "_EXCHANGE=all"}})
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
				return fmt.Errorf("rank %d outside of the group: %w", n, err)
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := exchangeByte(ctx, c, n); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
	}
	return s.Close()
}
