package pmi1

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/bootstrap/pmi1/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// openClient returns the mesh client over l, with constructs according to the parameter exchange.
func openClient(ctx context.Context, env bootstrap.Env, l *launcher, how string) (bootstrap.Client, error) {
	switch how {
	case "", "auto", "meet": // docs/launchers.md compares their speed.
		return mesh.Open(ctx, env, l)
	case "groups":
		if !l.proc.wire.HasGroups() {
			return nil, fmt.Errorf("%w: bootstrap pmi1: bootstrap.pmi1.exchange=groups: the launcher speaks PMI 1.1, which has no barriers of groups; use meet, or all",
				framework.ErrUnsupported)
		}
		return mesh.Open(ctx, env, exchangeLauncher{l, false})
	case "all":
		return mesh.Open(ctx, env, exchangeLauncher{l, true})
	}
	return nil, fmt.Errorf("%w: bootstrap.pmi1.exchange=%s: want auto, meet, groups or all", framework.ErrConfig, how)
}

// exchangeLauncher is a launcher with a mesh.Exchange of put, barrier and get. The connection
// serves one request at a time, so a barrier blocks all others, lookups too, and a barrier over the
// client's timeout ends the connection. So the missing members are never known. Values cannot be
// removed.
type exchangeLauncher struct {
	*launcher
	requiresAll bool
}

// RequiresAllProcesses implements mesh.Exchange.
func (x exchangeLauncher) RequiresAllProcesses() bool { return x.requiresAll }

// valueKey returns the key of a process's value. All processes share one key space.
func valueKey(rank uint32, key string) string {
	return "f" + strconv.FormatUint(uint64(rank), 36) + "-" + key
}

// Store implements mesh.Exchange.
func (x exchangeLauncher) Store(ctx context.Context, key string, value []byte) error {
	if err := x.checkUsable("make a communicator", "the launcher"); err != nil {
		return err
	}
	return x.proc.wire.Put(ctx, valueKey(x.proc.id.Proc.Rank, key), base64.RawStdEncoding.EncodeToString(value))
}

// Fetch implements mesh.Exchange. It finds values that were put before a barrier.
func (x exchangeLauncher) Fetch(ctx context.Context, p framework.Proc, key string) ([]byte, bool, error) {
	if err := x.checkUsable("make a communicator", "the launcher"); err != nil {
		return nil, false, err
	}
	text, ok, err := x.proc.wire.Get(ctx, valueKey(p.Rank, key))
	if err != nil || !ok {
		return nil, false, err
	}
	value, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(value) > mesh.MaxContribution {
		return nil, false, &framework.TransportError{
			Component: "bootstrap pmi1", Peer: "the launcher", Op: "get " + valueKey(p.Rank, key),
			Err: fmt.Errorf("%s: it was not put by a ferry program", wire.Quote("value="+text)),
		}
	}
	return value, true, nil
}

// Barrier implements mesh.Exchange. Its limit is that of the connection, which is the timeout of
// the process's first client.
func (x exchangeLauncher) Barrier(group []framework.Proc, _ time.Duration) error {
	if x.requiresAll {
		return x.proc.wire.Barrier(context.Background(), "")
	}
	name := groupName(group, x.proc.id.Size)
	if len(name) > wire.MaxGroup {
		return fmt.Errorf("%w: bootstrap pmi1: a barrier of these %d processes takes %d bytes, and the limit is %d; set bootstrap.pmi1.exchange to meet",
			framework.ErrUnsupported, len(group), len(name), wire.MaxGroup)
	}
	return x.proc.wire.Barrier(context.Background(), name)
}

// groupName returns the name of a group in PMI 1.2, its ranks in order. There is no tag, so
// barriers of a group are distinguished by their order.
func groupName(group []framework.Proc, size int) string {
	var b strings.Builder
	inOrder := len(group) == size
	for i, p := range group {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(uint64(p.Rank), 10))
		inOrder = inOrder && p.Rank == uint32(i)
	}
	if inOrder {
		return "WORLD"
	}
	return b.String()
}
