package pmltest

import (
	"context"
	"errors"
	"slices"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/threads"
	"github.com/ferrympi/ferry/progress"
)

// openTeam creates a world of n goroutine ranks in one process.
func (w *World) openTeam(n int) {
	env := kittest.NewJob(1, 1).Begin(0, progress.Options{})
	w.processEngine = env.Engine
	w.team = threads.NewTeam(env.Self, env.Engine, n, *w.stack.Threads)
	for rank := range n {
		m := goroutineRank{Rank: w.team.Rank(rank), team: w.team, cidTable: cid.NewTable(cid.IndexBits)}
		w.Procs = append(w.Procs, &Process{Rank: rank, Incarnation: env.Self, Engine: m.Engine(), Module: m})
		w.incarnationsByRank = append(w.incarnationsByRank, env.Self)
	}
}

// goroutineRank is a goroutine rank as the module of a process, as far as the kit uses one.
// Ids of communicators have no meaning, and there are no other processes.
type goroutineRank struct {
	*threads.Rank
	team     *threads.Team
	cidTable *cid.Table
}

func (m goroutineRank) Capabilities() pml.Capabilities                    { return pml.Capabilities{PML: "threads"} }
func (m goroutineRank) Addresses() []framework.Address                    { return nil }
func (m goroutineRank) CIDs() *cid.Table                                  { return m.cidTable }
func (m goroutineRank) Caps() pml.Caps                                    { return m.team.Caps() }
func (m goroutineRank) Learn(framework.Incarnation, framework.Card) error { return nil }
func (m goroutineRank) PeerChanged(framework.PeerEvent)                   {}
func (m goroutineRank) Refuse(cid.Span, int)                              {}
func (m goroutineRank) Inquire(framework.ProcID)                          {}
func (m goroutineRank) Route(framework.Incarnation) pml.Route             { return m.team.Route() }
func (m goroutineRank) Stats() []pml.PeerStats                            { return []pml.PeerStats{m.Rank.Stats()} }
func (m goroutineRank) Flush(context.Context) error                       { return nil }
func (m goroutineRank) Close() error                                      { return nil }

// host is a process with goroutine ranks.
type host struct {
	*Process
	team  *assembly.Team
	ranks []int
}

// deal returns the process and the endpoint of each of n ranks. The first endpoint of each process comes first, then the
// second of those that have two. counts has the number of ranks of each process, nil for one each.
func deal(counts []int, n int) (group []pml.Member) {
	if counts == nil {
		counts = slices.Repeat([]int{1}, n)
	}
	for endpoint := 0; len(group) < n; endpoint++ {
		for proc, most := range counts {
			if endpoint < most && len(group) < n {
				group = append(group, pml.Member{Incarnation: framework.Incarnation{ID: framework.ProcID(proc)}, Endpoint: uint16(endpoint)})
			}
		}
	}
	return group
}

// openHosts creates a world of n goroutine ranks in several processes.
func (w *World) openHosts(n int) error {
	dealt := deal(w.stack.Ranks, n)
	procs, endpoints := 0, map[framework.ProcID]int{}
	for _, m := range dealt {
		endpoints[m.ID]++
		procs = len(endpoints)
	}
	job := kittest.NewJob(procs, max(w.stack.Nodes, 1))
	job.First = w.stack.First
	w.job, w.nextRank = job, procs
	var all []*Process
	for i := range procs {
		p, err := w.stack.open(i, job.Begin(i, progress.Options{}))
		if err != nil {
			return err
		}
		all = append(all, p)
		team := p.stack.NewTeam(p.stack.PMLs()[0], endpoints[framework.ProcID(i)], *w.stack.Threads)
		w.hosts = append(w.hosts, &host{Process: p, team: team})
	}
	for rank, m := range dealt {
		h := w.hosts[m.ID]
		h.ranks = append(h.ranks, rank)
		module := hostedRank{goroutineRank{Rank: h.team.Rank(int(m.Endpoint)), team: h.team.Team, cidTable: cid.NewTable(cid.IndexBits)}, h, int(m.Endpoint)}
		w.Procs = append(w.Procs, &Process{Rank: rank, Incarnation: h.Incarnation, Engine: module.Engine(), Module: module, host: h})
		w.incarnationsByRank = append(w.incarnationsByRank, h.Incarnation)
		w.hostEndpoints = append(w.hostEndpoints, m.Endpoint)
	}
	learnAll(all)
	return nil
}

func (h *host) close() error {
	h.team.Close()
	return h.stack.Close()
}

// hostedRank is a goroutineRank of a world with several processes. It passes calls that concern another process to
// the module of its own process.
type hostedRank struct {
	goroutineRank
	host     *host
	endpoint int
}

func (m hostedRank) AddComm(spec pml.CommSpec) (pml.Comm, error) { return m.host.team.AddComm(spec) }

func (m hostedRank) Caps() pml.Caps { return m.host.team.Caps() }

func (m hostedRank) Learn(peer framework.Incarnation, card framework.Card) error {
	return m.host.Module.Learn(peer, card)
}

func (m hostedRank) PeerChanged(ev framework.PeerEvent)         { m.host.Module.PeerChanged(ev) }
func (m hostedRank) Refuse(s cid.Span, _ int)                   { m.host.Module.Refuse(s, pml.AllEndpoints) }
func (m hostedRank) Inquire(by framework.ProcID)                { m.host.Module.Inquire(by) }
func (m hostedRank) Route(peer framework.Incarnation) pml.Route { return m.host.team.Route(peer) }
func (m hostedRank) Flush(ctx context.Context) error            { return m.host.Module.Flush(ctx) }

func (m hostedRank) Stats() []pml.PeerStats {
	return append(m.host.Module.Stats(), m.Rank.Stats())
}

// Inspect combines the rank's queues with those of its handles in the process's module.
func (m hostedRank) Inspect(ctx context.Context) (pml.Inspection, error) {
	all, err := m.host.team.Inspect(ctx, m.endpoint)
	below, belowErr := m.host.Module.Inspect(ctx)
	all.EarlyArrivals += below.EarlyArrivals
	all.Notes = append(all.Notes, below.Notes...)
	for _, b := range below.Comms {
		i := slices.IndexFunc(all.Comms, func(c pml.CommInspection) bool { return c.ID == b.ID && c.Endpoint == b.Endpoint })
		if i < 0 {
			continue // Of another rank.
		}
		c := &all.Comms[i]
		c.Posted, c.Unexpected, c.Sends = append(c.Posted, b.Posted...), append(c.Unexpected, b.Unexpected...), append(c.Sends, b.Sends...)
	}
	return all, errors.Join(err, belowErr)
}

// processes skips a case with members that fail or leave one by one, if all are goroutine ranks of
// one process.
func (f *fixture) processes() {
	if f.team != nil || slices.ContainsFunc(f.hosts, func(h *host) bool { return len(h.ranks) > 1 }) {
		f.Skipf("goroutine ranks fail and leave with their process")
	}
}
