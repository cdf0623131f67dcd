package pmix

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest/jobtest"
	"github.com/ferrympi/ferry/bootstrap/internal/launched"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

const (
	envKit      = "PMIXTEST_KIT"      // Address of the test.
	envExchange = "PMIXTEST_EXCHANGE" // Parameter exchange.
)

// kit runs the kit's cases with this rank's client.
func kit(ctx context.Context) error {
	return jobtest.Serve(ctx, os.Getenv(envKit), func(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error) {
		env.Params = &Params{Library: pmixc.Soname, Exchange: os.Getenv(envExchange), HandOver: os.Getenv(launched.PMIxHandOver)}
		return Component().Open(ctx, env)
	})
}

// factory makes jobs under the server of these tests.
func factory(t *testing.T, exchange string) bootstraptest.Factory {
	installed(t)
	start := func(_ context.Context, want bootstraptest.Want, address string) (func() error, error) {
		if len(want.Psets) > 0 {
			return nil, fmt.Errorf("the server has one process set, of the odd ranks: %w", bootstraptest.ErrSkip)
		}
		job := pmixtest.Start(t, pmixtest.Server(t, "-n", fmt.Sprint(want.Size)), "kit", envKit+"="+address, envExchange+"="+exchange)
		return func() error {
			if out, err := job.Wait(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}, nil
	}
	if exchange != "meet" { // An exchange has one size.
		return jobtest.Factory(start, true)
	}
	return jobtest.GrowingFactory(start, true)
}

func TestKit(t *testing.T) { bootstraptest.Cases(factory(t, "meet")).Run(t) }

// byFences are the guarantees that fences lack. They have no tags, and a withdrawn one counts as
// entered. So does one that fails because of a death, unless the server ends it too, and the
// process cannot finalize before.
const byFences = bootstraptest.Overlap | bootstraptest.Withdrawal | bootstraptest.Deaths

func TestKitOverGroups(t *testing.T) {
	needs.Time(t)
	bootstraptest.Cases(bootstraptest.Without(byFences, factory(t, "groups"))).Run(t)
}

func TestKitOverAll(t *testing.T) {
	bootstraptest.Cases(bootstraptest.Without(byFences|bootstraptest.Subsets, factory(t, "all"))).Run(t)
}
