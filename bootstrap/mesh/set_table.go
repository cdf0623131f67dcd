package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/sets"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// Rank 0 holds the process sets of the job, and serves the operations on them of all processes.
// The table lasts as long as the process, and endpoint.mu is its lock. While rank 0 has no open
// client, requests wait for the next one. After its end they fail with ErrProcFailed.
//
// No component can end a process of another launcher. An undone change reports the processes that it
// has started as failed, so that they receive the reason, their calls fail, and they end.

// setTable is the table of the process sets of the job.
type setTable = sets.Table[request]

// defaultExitGrace is the time between the integration of a change and the log of leaving processes
// that still have a session.
const defaultExitGrace = 10 * time.Second

// serveChange serves an operation on process sets, or a lookup of an entry.
func (c *client) serveChange(r request, m wire.Message) error {
	b, err := wire.Decode[wire.ChangeBody](m.Body)
	if err != nil {
		return err
	}
	if b.Op == wire.FindEntry {
		find, err := wire.Decode[wire.RankBody](b.Args)
		if err == nil {
			c.serveFind(r, find.Rank)
		}
		return err
	}
	if c.id.Proc.Rank != 0 {
		r.Answer(wire.Failure, wire.EncodeBody(wire.FailureBody{Code: wire.CodeRank, Text: "rank 0 has the process sets"}))
		return nil
	}
	call, err := sets.Parse[request](b)
	if err != nil {
		return err
	}
	c.openSets()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed || r.link.isLost {
		return nil
	}
	if call(c.sets, r, r.link.rank); b.Op == wire.Integrate || b.Op == wire.Query {
		c.scheduleConnectAbsent()
	}
	return nil
}

// setDefinition is how far a client has defined the sets of the launcher.
type setDefinition struct {
	// One request at a time defines them, and others wait for it.
	first sync.Mutex
	// Another try follows. Guarded by endpoint.mu.
	isPending bool
}

// openSets makes the table at the first operation, and adds the sets of the launcher that an earlier
// client could not read. It may wait for these. A client that closes meanwhile makes no table,
// because it may have received only some of the sets.
func (c *client) openSets() {
	c.setDefinition.first.Lock()
	defer c.setDefinition.first.Unlock()
	c.mu.Lock()
	isNeeded := !c.isClosed && !c.hasLauncherSets && !c.setDefinition.isPending
	c.mu.Unlock()
	if isNeeded {
		c.defineLauncherSets(c.timeouts.lookup)
	}
}

// maxDefinitionPause limits the pause between tries to read the sets of the launcher.
const maxDefinitionPause = time.Minute

// defineLauncherSets defines the sets of the launcher in the table, which it makes if there is none.
// After an error, operations do not know the remaining sets before another try, after a pause that
// doubles. A process that has left its launcher does not try again.
func (c *client) defineLauncherSets(pause time.Duration) {
	named, err := c.launcherSets()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return
	}
	if c.sets == nil {
		c.sets = c.newSets()
	}
	for _, info := range named {
		var ranks []uint32
		for _, p := range info.Members.List() {
			ranks = append(ranks, p.Rank)
		}
		c.sets.Define(info.Name, ranks)
	}
	isFirst, isLast := !c.setDefinition.isPending, err == nil || errors.Is(err, ErrLauncherLeft)
	c.hasLauncherSets, c.setDefinition.isPending = isLast, !isLast
	if err == nil {
		return
	}
	level := slog.LevelDebug
	if isFirst {
		level = slog.LevelWarn
	}
	const text = "bootstrap mesh: operations on sets do not know all process sets of the launcher"
	if isLast {
		c.log.Log(c.ctx, level, text, "error", err)
		return
	}
	c.log.Log(c.ctx, level, text, "next try", pause, "error", err)
	c.runAfter(pause, func() { c.defineLauncherSets(min(2*pause, maxDefinitionPause)) })
}

// launcherSets returns the valid sets of the launcher. After an error some are missing.
func (c *client) launcherSets() (all []bootstrap.PsetInfo, err error) {
	source, ok := framework.As[bootstrap.PsetSource](c.launcher)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.timeouts.lookup)
	defer cancel()
	names, err := source.Psets(ctx)
	seen := map[string]bool{}
	for _, name := range names {
		key := bootstrap.PsetKey(name)
		if name == "" || bootstrap.IsReserved(name) || seen[key] || len(name) > bootstrap.MaxName {
			continue
		}
		seen[key] = true
		info, infoErr := source.Pset(ctx, name)
		if infoErr != nil {
			if err == nil || errors.Is(infoErr, ErrLauncherLeft) {
				err = infoErr
			}
			continue
		}
		isForeign := func(p framework.Proc) bool {
			return p.Namespace != c.id.Proc.Namespace || int64(p.Rank) >= int64(c.id.Size)
		}
		if info.Members.Len() <= c.id.Size && !slices.ContainsFunc(info.Members.List(), isForeign) {
			info.Name = name
			all = append(all, info)
		}
	}
	return all, err
}

// newSets returns the table of the job. The caller holds endpoint.mu.
func (c *client) newSets() *setTable {
	opt := sets.Options{Size: c.id.Size, Most: c.growth.most, MostOption: "bootstrap.max_ranks", IsHeldByRank0: true, Launcher: launcherName(c.launcher),
		Order: c.endpoint.carryOut, StartsNone: !c.growth.isPossible}
	switch {
	case c.growth.isPossible:
	case c.exchange != nil:
		opt.Launcher += " with constructs by its barriers"
		opt.Remedy = "use the exchange meet, or start the job with ferry run --max-ranks"
	}
	t := sets.New[request](opt)
	for _, rank := range slices.Sorted(maps.Keys(c.peers)) {
		if c.hasEnded(rank) {
			t.ProcEnded(rank)
		}
	}
	for _, rank := range slices.Sorted(maps.Keys(c.failures)) {
		t.ProcEnded(rank)
	}
	return t
}

// launcherName returns the name of a launcher for errors.
func launcherName(l Launcher) string {
	if n, ok := framework.As[Named](l); ok {
		return n.LauncherName()
	}
	return "the launcher of this job"
}

// carryOut carries out an order of the table. The caller holds p.mu.
func (p *endpoint) carryOut(o sets.Order) {
	c := p.client
	isOpen := c != nil && !c.isClosed
	switch {
	case o.Kind == sets.StartProcs: // Only a request of an open client gives it.
		c.joins.Size = o.First + o.N
		p.rankLimit.Store(int64(c.joins.Size))
		c.wg.Go(func() { c.startProcs(o) })
	case o.Kind == sets.EndProcs && isOpen:
		c.wg.Go(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.refuseProcs(o)
		})
	case o.Kind == sets.EndProcs:
		p.recordRefused(o)
	case o.Kind == sets.AwaitExit && isOpen:
		c.runAfter(c.timeouts.exitGrace, func() { c.logRemaining(o.Ranks) })
	}
}

// refuseProcs reports the processes of an undone change as failed. The caller holds endpoint.mu.
func (c *client) refuseProcs(o sets.Order) {
	if c.isClosed {
		c.recordRefused(o)
		return
	}
	for _, rank := range o.Ranks {
		c.reportFailed(refusedEvent(rank, o.Reason), nil)
	}
}

// recordRefused records the processes of an undone change as failed, for the next client. The caller
// holds p.mu.
func (p *endpoint) recordRefused(o sets.Order) {
	for _, rank := range o.Ranks {
		if _, isKnown := p.failures[uint32(rank)]; !isKnown {
			p.failures[uint32(rank)] = refusedEvent(rank, o.Reason)
		}
	}
}

func refusedEvent(rank int, reason string) wire.EventBody {
	return wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Rank: uint32(rank), Reason: wire.TruncateReason(reason)}
}

// logRemaining logs the processes that have left by a change, and still have a session.
func (c *client) logRemaining(ranks []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	remaining := slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool {
		p := c.peers[uint32(rank)]
		return p == nil || p.state != peerConnected || p.hasLeft
	})
	if len(remaining) > 0 {
		c.log.Warn("bootstrap mesh: processes that left by a change still have a session: close it and end", "ranks", remaining, "after", c.timeouts.exitGrace)
	}
}

// recordEndOfLeft records the end of a process that left by a change and has closed its session. The
// caller holds endpoint.mu.
func (c *client) recordEndOfLeft(rank uint32) {
	if c.sets != nil && c.sets.Left(rank) {
		c.sets.ProcEnded(rank)
	}
}

// absentRanks returns the ranks that joins and integrations wait for, and members without a
// connection of the sets with pending queries. The caller holds endpoint.mu.
func (c *client) absentRanks() []uint32 {
	absent := c.joins.Absent()
	if c.sets != nil {
		absent = append(absent, c.sets.Awaited()...)
		absent = append(absent, slices.DeleteFunc(c.sets.Watched(), func(rank uint32) bool {
			p := c.peers[rank]
			return p != nil && len(p.links) > 0
		})...)
		slices.Sort(absent)
		absent = slices.Compact(absent)
	}
	return absent
}

// withdrawRequests withdraws all requests of a connection that ends. The sets give its process again
// the changes that may have been lost. The caller holds endpoint.mu.
func (c *client) withdrawRequests(l *link) {
	l.withdrawRequests()
	if c.sets == nil {
		return
	}
	c.sets.Disconnected(l.rank)
	if !c.isClosed {
		c.scheduleConnectAbsent()
	}
}

// startProcs orders processes from the launcher.
func (c *client) startProcs(o sets.Order) {
	limit := c.timeouts.call - min(c.timeouts.call/10, time.Second) // The requester's own deadline passes later.
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	reason := ""
	if err := c.spawn(ctx, o); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer of %s within %v: %w", launcherName(c.launcher), limit, err)
		}
		reason = cmp.Or(wire.TruncateReason(err.Error()), "the launcher gives no reason")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed && reason == "" { // The requester receives no answer, and repeats its request.
		reason = "rank 0 has closed its session"
	}
	c.sets.Started(o.First, 0, reason)
}

// spawn requests the processes of an order, with the program of this process.
func (c *client) spawn(ctx context.Context, o sets.Order) error {
	spawner, ok := framework.As[Spawner](c.launcher)
	if !ok {
		return fmt.Errorf("%w: %s starts no processes", framework.ErrUnsupported, launcherName(c.launcher))
	}
	handOver, err := HandOver{
		Namespace: c.id.Proc.Namespace, FirstRank: o.First, Size: o.N, MaxSize: max(c.id.MaxSize, o.N), Entry: c.ownEntry.encode(),
	}.Encode()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("the program of rank 0: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("the working directory of rank 0: %w", err)
	}
	return spawner.Spawn(ctx, SpawnRequest{N: o.N, Program: program, Args: os.Args[1:], Dir: dir, Env: parameters(os.Environ()), HandOver: handOver})
}

// parameters returns the variables with parameters of ferry.
func parameters(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool { return !strings.HasPrefix(v, "FERRY_") })
}
