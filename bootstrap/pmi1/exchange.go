package pmi1

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/meet"
	"github.com/ferrympi/ferry/bootstrap/pmi1/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// client returns the client that meets others by what l has, and makes constructs as the
// parameter exchange says.
func openClient(ctx context.Context, env bootstrap.Env, l *launcher, how string) (bootstrap.Client, error) {
	switch how {
	case "", "auto", "meet": // see docs/launchers.md for what is faster
		return meet.Open(ctx, env, l)
	case "groups":
		if !l.proc.wire.HasGroups() {
			return nil, fmt.Errorf("%w: bootstrap pmi1: bootstrap.pmi1.exchange=groups: the launcher speaks PMI 1.1, which has no barriers of groups; use meet, or all",
				framework.ErrUnsupported)
		}
		return meet.Open(ctx, env, exchangeLauncher{l, false})
	case "all":
		return meet.Open(ctx, env, exchangeLauncher{l, true})
	}
	return nil, fmt.Errorf("%w: bootstrap.pmi1.exchange=%s: want auto, meet, groups or all", framework.ErrConfig, how)
}

// exchanging is a launcher with a meet.Exchange: put, barrier and get. The conversation
// takes one request at a time, and a barrier is one of them: while it lasts nothing else is
// asked, not even for an address, and one that lasts for longer than the client's
// timeout ends the conversation. So it is never known who has not come. What is put can't be
// taken back.
type exchangeLauncher struct {
	*launcher
	requiresAll bool
}

// Everyone implements meet.Exchange.
func (x exchangeLauncher) RequiresAllProcesses() bool { return x.requiresAll }

// valueKey is where a process's value is. All have one key space.
func valueKey(rank uint32, key string) string {
	return "f" + strconv.FormatUint(uint64(rank), 36) + "-" + key
}

// Store implements meet.Exchange.
func (x exchangeLauncher) Store(ctx context.Context, key string, value []byte) error {
	if err := x.checkUsable("make a communicator", "the launcher"); err != nil {
		return err
	}
	return x.proc.wire.Put(ctx, valueKey(x.proc.id.Proc.Rank, key), base64.RawStdEncoding.EncodeToString(value))
}

// Fetch implements meet.Exchange. It finds what was put before a barrier.
func (x exchangeLauncher) Fetch(ctx context.Context, p framework.Proc, key string) ([]byte, bool, error) {
	if err := x.checkUsable("make a communicator", "the launcher"); err != nil {
		return nil, false, err
	}
	text, ok, err := x.proc.wire.Get(ctx, valueKey(p.Rank, key))
	if err != nil || !ok {
		return nil, false, err
	}
	value, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(value) > meet.MaxContribution {
		return nil, false, &framework.TransportError{
			Component: "bootstrap pmi1", Peer: "the launcher", Op: "get " + valueKey(p.Rank, key),
			Err: fmt.Errorf("%s: no ferry program put it there", wire.Quote("value="+text)),
		}
	}
	return value, true, nil
}

// Barrier implements meet.Exchange. Its limit is the conversation's, which is the timeout of
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

// groupName names a group in PMI 1.2: its ranks in its order. There is no tag: which
// barrier a process means is known by turns.
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
