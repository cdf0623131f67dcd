package pmltest

import (
	"slices"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/procstat"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// visit is a further process that joins process 0 and ends.
type visit struct {
	f       *fixture
	dropper pml.PeerDropper // Of process 0.
	guest   *Process
	// Of process 0 and of the guest.
	comms [2]pml.Comm
}

// guestsEnd checks that a process leaves no state after its end and its last communicator.
func (f *fixture) guestsEnd() {
	f.processes()
	for i := range 4 {
		f.visit(i%2 == 0)
	}
	f.connectAll(f.commsByRank)
}

// visit opens a process, exchanges messages, ends it and drops it. The process leaves, or fails while a receive
// from it is pending.
func (f *fixture) visit(leaves bool) {
	v := &visit{f: f}
	var ok bool
	if v.dropper, ok = framework.As[pml.PeerDropper](f.Procs[0].Module); !ok {
		f.Skipf("the PML drops no processes")
	}
	v.open()
	f.Each(2, func(i int) {
		for _, size := range []int{4, 100_000} {
			p := f.isend(v.comms[i], 1-i, 3, data(i, size), pml.Standard)
			f.want(v.comms[i], 1-i, 3, data(1-i, size), 1-i, 3)
			f.wait(p)
		}
	})
	if v.dropper.DropPeer(v.guest.Incarnation) {
		f.Fatalf("a process is dropped that is present")
	}
	if leaves {
		v.leave()
	} else {
		v.die()
	}
	incarnation, m := v.guest.Incarnation, f.Procs[0].Module
	f.Until("the drop", func() bool { return v.dropper.DropPeer(incarnation) })
	for what, report := range map[string]func(){
		"death":     func() { m.PeerChanged(framework.FailedEvent(incarnation, "signal: killed")) },
		"departure": func() { m.PeerChanged(framework.LeftEvent(incarnation)) },
	} {
		report()
		if !v.dropper.DropPeer(incarnation) {
			f.Errorf("a late report of its %s makes the process known again", what)
		}
	}
	if r := m.Route(incarnation); r.Transport != "" || r.Used {
		f.Errorf("the route to a dropped process is %+v", r)
	}
	if i := slices.IndexFunc(m.Stats(), func(s pml.PeerStats) bool { return s.Peer == incarnation }); i >= 0 {
		f.Errorf("a dropped process has statistics: %+v", m.Stats()[i])
	}
}

// open opens the guest and creates a communicator.
func (v *visit) open() {
	f := v.f
	first := f.Procs[0]
	guest, err := f.stack.open(f.nextRank, f.job.Begin(f.nextRank, progress.Options{}))
	f.Check(err)
	f.nextRank++
	v.guest = guest
	f.Check(first.Module.Learn(guest.Incarnation, guest.Card()), guest.Module.Learn(first.Incarnation, first.Card()), guest.Module.Learn(guest.Incarnation, guest.Card()))
	members, id := Members(first.Incarnation, guest.Incarnation), f.NextID()
	for i, p := range []*Process{first, guest} {
		candidates := p.Module.CIDs().WithholdCandidates(cid.PolicyLazy, 2, 1<<15)
		v.comms[i], err = p.join(pml.CommSpec{ID: id, Members: members, Rank: i}, candidates, cid.Decision{Policy: cid.PolicyLazy})
		f.Check(err)
	}
}

// leave closes the guest without a failure.
func (v *visit) leave() {
	f := v.f
	v.comms[0].Close()
	v.comms[1].Close()
	f.Check(v.guest.Module.Flush(f.Context()), v.guest.stack.Close())
	f.Procs[0].Module.PeerChanged(framework.LeftEvent(v.guest.Incarnation))
}

// die ends the guest like a failure.
func (v *visit) die() {
	f, m := v.f, v.f.Procs[0].Module
	pending := f.irecv(v.comms[0], 1, 4, make([]byte, 4))
	m.PeerChanged(framework.FailedEvent(v.guest.Incarnation, "signal: killed"))
	f.Check(v.guest.stack.Close())
	_, err := pending.wait(f.Context())
	f.Is("receive from the dead", err, framework.ErrProcFailed)
	if v.dropper.DropPeer(v.guest.Incarnation) {
		f.Errorf("a process is dropped that a communicator has")
	}
	_, err = v.comms[0].Recv(f.Context(), pml.Buffer{}, 1, 5, p2p)
	f.Is("receive from the dead on a communicator that is open", err, framework.ErrProcFailed)
	v.comms[0].Close()
}

// Visits opens n further processes, one after the other, which join process 0, exchange messages and end. It fails
// the test if memory, descriptors or mappings grow with their number.
func Visits(t *testing.T, stack Stack, n int) {
	t.Helper()
	var half, end procstat.Usage
	run := func(f *fixture) {
		for i := range n {
			if i == n/2 {
				half = procstat.Measure()
			}
			f.visit(i%2 == 0)
		}
		end = procstat.Measure()
	}
	bind(claims{kittest.New("Visits", 2, run)}, stack, cid.PolicyLazy).Run(t)
	t.Logf("after %d visits %+v, after %d %+v", n/2, half, n, end)
	if grown := end.Heap - half.Heap; grown > int64(n-n/2)<<10 {
		t.Errorf("the heap grows by %d bytes", grown)
	}
	if end.Descriptors > half.Descriptors+4 || end.Mappings > half.Mappings+16 {
		t.Error("descriptors or mappings grow")
	}
}
