package pmltest

import (
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Streams opens n further stacks of process 1, one after the other, like the streams of a process. Each exchanges messages
// with process 0, as a peer beside process 1, and ends. Only its transports report the end to process 0. All of them have
// one name and different nonces.
func Streams(t *testing.T, stack Stack, n int) {
	t.Helper()
	run := func(f *fixture) {
		for range n {
			f.exchangeWithStream()
			f.connectAll(f.commsByRank)
		}
	}
	bind(claims{kittest.New("Streams", 2, run)}, stack, cid.PolicyLazy).Run(t)
}

// openStream opens a stack of process 1 beside its first one.
func (f *fixture) openStream() *Process {
	env := f.job.Begin(1, progress.Options{IsStream: true})
	env.Identity.Proc = env.Identity.Proc.Stream(1)
	env.Self.ID = env.Worlds.ID(env.Identity.Proc) // Equal in process 0, because members are.
	f.Procs[0].worlds.ID(env.Identity.Proc)
	stream, err := f.stack.open(1, env)
	f.Check(err)
	return stream
}

func (f *fixture) exchangeWithStream() {
	first, stream := f.Procs[0], f.openStream()
	f.Check(first.Module.Learn(stream.Incarnation, stream.Card()), stream.Module.Learn(first.Incarnation, first.Card()))
	members, id := pml.NewMembers(whole([]framework.Incarnation{first.Incarnation, stream.Incarnation})), f.NextID()
	var comms [2]pml.Comm
	for i, p := range []*Process{first, stream} {
		var err error
		candidates := p.Module.CIDs().WithholdCandidates(cid.PolicyLazy, 2, 1<<15)
		comms[i], err = p.join(pml.CommSpec{ID: id, Members: members, Rank: i}, candidates, cid.Decision{Policy: cid.PolicyLazy})
		f.Check(err)
	}
	f.Each(2, func(i int) {
		for _, size := range []int{4, 100_000} {
			p := f.isend(comms[i], 1-i, 3, data(i, size), pml.Standard)
			f.want(comms[i], 1-i, 3, data(1-i, size), 1-i, 3)
			f.wait(p)
		}
	})
	comms[1].Close()
	comms[0].Close()
	f.Check(stream.Module.Flush(f.Context()), stream.stack.Close())
}
