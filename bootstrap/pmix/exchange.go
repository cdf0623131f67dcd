package pmix

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
)

// openClient returns the mesh client over l, with constructs according to the parameter exchange.
func openClient(ctx context.Context, env bootstrap.Env, l *launcher, how string) (bootstrap.Client, error) {
	switch how {
	case "", "auto", "meet": // docs/launchers.md compares their speed.
		return mesh.Open(ctx, env, l)
	case "groups":
		return mesh.Open(ctx, env, exchangeLauncher{l, false})
	case "all":
		return mesh.Open(ctx, env, exchangeLauncher{l, true})
	}
	return nil, fmt.Errorf("%w: bootstrap.pmix.exchange=%s: want auto, meet, groups or all", framework.ErrConfig, how)
}

// exchangeLauncher is a launcher with a mesh.Exchange of put, fence and get. A fence includes
// exactly the processes that it names, but has no tag. Values are visible at once on their node, so
// the missing members are known. libpmix counts in seconds, so a deadline may pass up to a second
// late. There are up to pmixc.MaxCalls calls at a time.
//
// PMIx's groups are not used (docs/decisions/exchange.md). Most servers have none, and that of
// 4.2.2 crashes when the limit of one passes, and waits forever without a limit.
type exchangeLauncher struct {
	*launcher
	requiresAll bool
}

// RequiresAllProcesses implements mesh.Exchange.
func (x exchangeLauncher) RequiresAllProcesses() bool { return x.requiresAll }

// Store implements mesh.Exchange.
func (x exchangeLauncher) Store(ctx context.Context, key string, value []byte) error {
	const op = "put"
	if err := x.checkUsable(op); err != nil {
		return err
	}
	limited, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	err := x.lib.Put(limited, contributionPrefix+key, value)
	if err == nil {
		err = x.lib.Commit(limited)
	}
	if err != nil {
		return callError(ctx, op, err)
	}
	return nil
}

// contributionPrefix is the prefix of the keys of contributions.
const contributionPrefix = "ferry.part."

// Fetch implements mesh.Exchange. Values of other nodes are requested from their servers.
func (x exchangeLauncher) Fetch(ctx context.Context, p framework.Proc, key string) ([]byte, bool, error) {
	op := fmt.Sprintf("get the value of %v", p)
	if err := x.checkUsable(op); err != nil {
		return nil, false, err
	}
	limited, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	of := pmixc.Proc{Namespace: p.Namespace, Rank: p.Rank}
	v, err := x.lib.Get(limited, of, contributionPrefix+key, 0)
	if isNotFound(err) && !x.isHere(p) {
		v, err = x.lib.Get(limited, of, contributionPrefix+key, searchTimeout)
	}
	switch {
	case isNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, callError(ctx, op, err)
	case v.Kind != pmixc.KindText || len(v.Bytes) > mesh.MaxContribution:
		return nil, false, callError(ctx, op, fmt.Errorf("not a contribution: type %d, %d bytes", v.Type, len(v.Bytes)))
	}
	return v.Bytes, true, nil
}

// Barrier implements mesh.Exchange.
func (x exchangeLauncher) Barrier(group []framework.Proc, most time.Duration) error {
	const op = "wait for the members"
	if err := x.checkUsable(op); err != nil {
		return err
	}
	// libpmix ends the fence, unless its server hangs.
	ctx, cancel := withTimeout(context.Background(), most+callTimeout)
	defer cancel()
	ranks := make([]uint32, len(group))
	for i, p := range group {
		ranks[i] = p.Rank
	}
	err := x.lib.Fence(ctx, x.id.Proc.Namespace, ranks, most)
	switch {
	case pmixc.Is(err, pmixc.Timeout):
		return callError(ctx, op, fmt.Errorf("%w: %w", framework.ErrTimeout, err))
	case pmixc.Is(err, pmixc.PartialSuccess):
		return callError(ctx, op, fmt.Errorf("%w: %w", framework.ErrProcFailed, err))
	case err != nil:
		return callError(ctx, op, err)
	}
	return nil
}
