package pmix

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest"
	"github.com/ferrympi/ferry/bootstrap/bootstraptest/jobtest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

const (
	envKit      = "PMIXTEST_KIT"      // the test's address
	envExchange = "PMIXTEST_EXCHANGE" // the parameter
)

// kit has the kit's cases made with this rank's client.
func kit(ctx context.Context) error {
	return jobtest.Serve(ctx, os.Getenv(envKit), func(ctx context.Context, env bootstrap.Env) (bootstrap.Client, error) {
		env.Params = &Params{Library: pmixc.Soname, Exchange: os.Getenv(envExchange)}
		return Component().Open(ctx, env)
	})
}

// factory makes jobs under the server of these tests.
func factory(t *testing.T, exchange string) bootstraptest.Factory {
	installed(t)
	return jobtest.Factory(func(_ context.Context, want bootstraptest.Want, address string) (func() error, error) {
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
	}, true)
}

func TestKit(t *testing.T) { bootstraptest.Cases(factory(t, "meet")).Run(t) }

// byFences is what fences can't give: they have no tags, and one that is given up stays
// entered. So does one that a death has ended for its caller, unless the server ends it too:
// until then the process can't say goodbye.
const byFences = bootstraptest.Overlap | bootstraptest.Withdrawal | bootstraptest.Deaths

func TestKitOverGroups(t *testing.T) {
	needs.Time(t)
	bootstraptest.Cases(bootstraptest.Without(byFences, factory(t, "groups"))).Run(t)
}

func TestKitOverAll(t *testing.T) {
	bootstraptest.Cases(bootstraptest.Without(byFences|bootstraptest.Subsets, factory(t, "all"))).Run(t)
}
