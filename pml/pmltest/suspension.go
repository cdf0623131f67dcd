package pmltest

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func suspensionCases() claims {
	return claims{
		kittest.New("SuspendedReceive_EveryWaitAndTest_LeavesItActive", 3, (*fixture).suspendedStays),
		kittest.New("SuspendedReceives_MessagesCome_MatchInTheirOrder", 3, (*fixture).suspendedMatch),
		kittest.New("ReceivesPostedBeforeADeath_MessagesCome_MatchInTheirOrder", 3, (*fixture).suspendedOrder),
		kittest.New("ReceivesFromAny_MessagesAreInFlightAtADeath_MatchInTheirOrder", 3, (*fixture).suspendedInFlight),
		kittest.New("ReceivesFromAny_TheDeadHadSent_MatchItsMessages", 3, (*fixture).suspendedLast),
		kittest.New("SuspendedReceive_IsResumed_WaitsAgain", 3, (*fixture).suspendedResumes),
		kittest.New("SuspendedReceive_CanceledOrFreed_Ends", 3, (*fixture).suspendedCanceled),
		kittest.New("BlockingReceiveFromAny_Suspended_IsWithdrawn", 3, (*fixture).suspendedRecv),
		kittest.New("ProbeForAny_Suspended_ReturnsUnlessAMessageIsThere", 3, (*fixture).suspendedProbe),
		kittest.New("ReceiveWithNotifier_Suspended_Waits", 3, (*fixture).suspendedNotify),
		kittest.New("ResumedReceive_NoMemberIsLeft_Ends", 3, (*fixture).suspendedAlone),
	}
}

// suspend suspends the receives from any source after the failure of ranks, as package mpi does.
func suspend(c pml.Comm, ranks ...int) {
	c.Suspend(p2p, fmt.Errorf("%w: %w", framework.ErrProcFailedPending, &framework.ProcFailedError{Ranks: ranks}))
}

// pendingAny returns the error of a receive from any source after the failure of a member, and ends the receive if it is suspended.
func (f *fixture) pendingAny(p pending) error {
	_, err := p.wait(f.Context())
	if p.r.Cancel(p.gen) == nil {
		_, _ = p.wait(f.Context())
	}
	return err
}

// suspended returns the communicator of rank 0 after the failure of rank 1. Receives from any source are suspended.
func (f *fixture) suspended() pml.Comm {
	f.processes()
	c := f.commsByRank[0]
	f.connectAll(f.commsByRank)
	f.died(1)
	return c
}

// died reports the failure of a rank to rank 0.
func (f *fixture) died(rank int) {
	f.Procs[0].Module.PeerChanged(framework.FailedEvent(f.Group()[rank].Incarnation, "signal: killed"))
	suspend(f.commsByRank[0], rank)
}

// isSuspended checks that all calls that wait for a receive or test it return, and leave it active.
func (f *fixture) isSuspended(p pending) {
	_, err := p.wait(f.Context())
	f.Is("wait", err, framework.ErrProcFailedPending)
	_, done, err := p.r.Test(p.gen)
	f.Is("test", err, framework.ErrProcFailedPending)
	_, peeked, err := p.r.Peek(p.gen)
	f.Is("peek", err, framework.ErrProcFailedPending)
	if done || peeked || p.r.Stale(p.gen) {
		f.Fatalf("a suspended receive was consumed")
	}
}

func (f *fixture) suspendedStays() {
	f.processes()
	before, known := f.irecv(f.commsByRank[0], pml.AnySource, 1, make([]byte, 4)), make([]byte, 4)
	waits := f.Go(func() {
		if _, err := before.wait(f.Context()); err == nil {
			f.Errorf("a receive without a message succeeds")
		}
	})
	f.Until("posting", func() bool { return f.posted(0) == 1 })
	c := f.suspended()
	waits()
	after := f.irecv(c, pml.AnySource, 1, make([]byte, 4))
	for range 2 {
		f.isSuspended(before)
		f.isSuspended(after)
	}
	p := f.irecv(c, 2, 2, known)
	if _, done, err := p.r.Test(p.gen); done || err != nil {
		f.Errorf("test of a receive from rank 2: %t %v", done, err)
	}
	f.send(f.commsByRank[2], 0, 2, data(1, 4))
	f.got(p, known, data(1, 4), 2, 2)
	f.pendingAny(before)
	f.pendingAny(after)
}

func (f *fixture) suspendedMatch() {
	c := f.suspended()
	for _, n := range []int{4, 300_000} {
		var all []pending
		var bufs [][]byte
		for range 3 {
			bufs = append(bufs, make([]byte, n))
			all = append(all, f.irecv(c, pml.AnySource, pml.AnyTag, bufs[len(bufs)-1]))
		}
		for i := range all {
			s := f.isend(f.commsByRank[2], 0, i, data(i, n), pml.Synchronous)
			f.Until("the match", func() bool {
				_, done, err := all[i].r.Peek(all[i].gen)
				return done && err == nil
			})
			f.wait(s)
		}
		for i, p := range all {
			f.got(p, bufs[i], data(i, n), 2, i)
		}
	}
}

func (f *fixture) suspendedResumes() {
	c := f.suspended()
	buf := make([]byte, 4)
	p := f.irecv(c, pml.AnySource, 1, buf)
	f.isSuspended(p)
	c.Suspend(p2p, nil)
	if _, done, err := p.r.Test(p.gen); done || err != nil {
		f.Errorf("test of a resumed receive: %t %v", done, err)
	}
	got := f.Go(func() { f.got(p, buf, data(1, 4), 2, 1) })
	f.send(f.commsByRank[2], 0, 1, data(1, 4))
	got()
	later := make([]byte, 4)
	p = f.irecv(c, pml.AnySource, 2, later)
	f.send(f.commsByRank[2], 0, 2, data(2, 4))
	f.got(p, later, data(2, 4), 2, 2)
	suspend(c, 1)
	f.isSuspended(f.irecv(c, pml.AnySource, 3, nil))
}

func (f *fixture) suspendedCanceled() {
	c := f.suspended()
	canceled, freed := f.irecv(c, pml.AnySource, 1, make([]byte, 4)), f.irecv(c, pml.AnySource, 2, make([]byte, 4))
	f.Check(canceled.r.Cancel(canceled.gen), freed.r.Free(freed.gen))
	if st, err := canceled.wait(f.Context()); err != nil || !st.Canceled {
		f.Errorf("wait for a canceled receive: %+v %v", st, err)
	}
	_, err := freed.wait(f.Context())
	f.Is("wait for a freed receive", err, framework.ErrClosed)
	f.send(f.commsByRank[2], 0, 2, data(1, 4))
	f.send(f.commsByRank[2], 0, 1, data(2, 4))
	f.want(c, 2, 1, data(2, 4), 2, 1)
	f.Until("the end of the freed one", func() bool { return f.posted(0) == 0 })
}

func (f *fixture) suspendedRecv() {
	f.processes()
	blocked := make(chan error, 1)
	f.Go(func() {
		_, err := f.commsByRank[0].Recv(f.Context(), buffer(make([]byte, 4)), pml.AnySource, 1, p2p)
		blocked <- err
	})
	f.Until("posting", func() bool { return f.posted(0) == 1 })
	c := f.suspended()
	f.Is("blocked receive", <-blocked, framework.ErrProcFailedPending)
	_, err := c.Recv(f.Context(), buffer(make([]byte, 4)), pml.AnySource, 1, p2p)
	f.Is("later receive", err, framework.ErrProcFailedPending)
	if n := f.posted(0); n != 0 {
		f.Errorf("%d receives are left", n)
	}
	f.send(f.commsByRank[2], 0, 1, data(1, 4))
	f.awaitArrival(c, 2, 1)
	f.want(c, pml.AnySource, 1, data(1, 4), 2, 1)
}

func (f *fixture) suspendedProbe() {
	probed := make(chan error, 1)
	f.Go(func() {
		_, err := f.commsByRank[0].Probe(f.Context(), pml.AnySource, 1, p2p)
		probed <- err
	})
	c := f.suspended()
	f.Is("blocked probe", <-probed, framework.ErrProcFailedPending)
	_, _, err := c.Iprobe(pml.AnySource, 1, p2p)
	f.Is("probe", err, framework.ErrProcFailedPending)
	f.send(f.commsByRank[2], 0, 1, data(1, 4))
	f.awaitArrival(c, 2, 1)
	for range 2 {
		if st, ok, err := c.Iprobe(pml.AnySource, 1, p2p); err != nil || !ok || st.Source != 2 {
			f.Errorf("probe for a message that is there: %+v %t %v", st, ok, err)
		}
	}
	k, _, err := c.Mprobe(f.Context(), pml.AnySource, 1, p2p)
	f.Check(err)
	got := make([]byte, 4)
	st, err := k.Recv(f.Context(), buffer(got))
	f.compare(st, err, got, data(1, 4), 2, 1)
}

func (f *fixture) suspendedNotify() {
	c := f.suspended()
	var ends notes
	f.locked(0, func() { c.StartRecv(buffer(make([]byte, 4)), pml.AnySource, 1, p2p).Notify(&ends) })
	suspend(c, 1)
	f.send(f.commsByRank[2], 0, 1, data(1, 4))
	f.ends(0, &ends, 1)
	if err := ends.endStatuses[0].Err; err != nil {
		f.Errorf("receive with a notifier: %v", err)
	}
}

func (f *fixture) suspendedAlone() {
	c := f.suspended()
	p := f.irecv(c, pml.AnySource, 1, make([]byte, 4))
	f.died(2)
	suspend(c, 1, 2)
	f.isSuspended(p)
	c.Suspend(p2p, nil)
	_, err := p.wait(f.Context())
	f.Is("receive", err, framework.ErrProcFailed)
	_, err = c.Recv(f.Context(), pml.Buffer{}, pml.AnySource, 1, p2p)
	f.Is("later receive", err, framework.ErrProcFailed)
	_, err = c.Probe(f.Context(), pml.AnySource, 1, p2p)
	f.Is("probe", err, framework.ErrProcFailed)
}
