package pmltest

import (
	"context"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/threads"
	"github.com/ferrympi/ferry/progress"
)

// openTeam builds a world of n goroutine ranks.
func (w *World) openTeam(n int) {
	env := kittest.NewJob(1, 1).Begin(0, progress.Options{})
	w.process = env.Engine
	w.team = threads.NewTeam(env.Self, env.Engine, n, *w.stack.Threads)
	for rank := range n {
		m := goroutineRank{Rank: w.team.Rank(rank), team: w.team, table: cid.NewTable(cid.IndexBits)}
		w.Procs = append(w.Procs, &Process{Rank: rank, Life: env.Self, Engine: m.Engine(), Module: m})
		w.lives = append(w.lives, env.Self)
	}
}

// goroutineRank is a goroutine rank as the module of a process, as far as the kit uses one.
// Ids of communicators have no meaning, and other processes do not exist.
type goroutineRank struct {
	*threads.Rank
	team  *threads.Team
	table *cid.Table
}

func (m goroutineRank) Offer() pml.Offer                           { return pml.Offer{PML: "threads"} }
func (m goroutineRank) Addresses() []framework.Address             { return nil }
func (m goroutineRank) CIDs() *cid.Table                           { return m.table }
func (m goroutineRank) Caps() pml.Caps                             { return m.team.Caps() }
func (m goroutineRank) Learn(framework.Life, framework.Card) error { return nil }
func (m goroutineRank) PeerFailed(framework.Life, string)          {}
func (m goroutineRank) PeerGone(framework.Life, error)             {}
func (m goroutineRank) Refuse(cid.Span, int)                       {}
func (m goroutineRank) Inquire()                                   {}
func (m goroutineRank) Route(framework.Life) pml.Route             { return m.team.Route() }
func (m goroutineRank) Stats() []pml.PeerStats                     { return []pml.PeerStats{m.Rank.Stats()} }
func (m goroutineRank) Flush(context.Context) error                { return nil }
func (m goroutineRank) Close() error                               { return nil }

// processes skips a case about members that fail or leave one by one, which goroutine ranks
// of one process do not.
func (f *fixture) processes() {
	if f.team != nil {
		f.Skipf("goroutine ranks fail and leave with their process")
	}
}
