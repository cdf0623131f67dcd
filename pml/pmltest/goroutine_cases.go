package pmltest

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

// goroutineCases use all goroutine ranks of a stack's processes, Stack.Ranks.
func goroutineCases(ranks []int) claims {
	n := 0
	for _, of := range ranks {
		n += of
	}
	return claims{
		kittest.New("GoroutineRanksExchangeInOrder", n, (*fixture).exchangeAll),
		kittest.New("CanceledReceivesFromAnySourceLoseNothing", n, (*fixture).cancelWild),
		kittest.New("SendsStartedUnderTheLockAreNotOvertaken", n, (*fixture).deferredOrder),
		kittest.New("UnreceivedMessagesOfAllProcessesAreDropped", n, (*fixture).dropAll),
		kittest.New("ProcessFailureEndsItsGoroutineRanks", n, (*fixture).hostFails),
	}
}

// exchangeAll sends from each rank to all ranks, including itself. All first receive from any source, and
// then from known sources, the second tag first.
func (f *fixture) exchangeAll() {
	comms := f.comm()
	start := func(rank int, c pml.Comm, mode pml.Mode) (sends []pending) {
		for i := range perPair {
			for dst := range comms {
				sends = append(sends, f.isend(c, dst, i%2, contents(rank, dst, i), mode))
			}
		}
		return sends
	}
	f.each(comms, func(rank int, c pml.Comm) {
		sends, next := start(rank, c, pml.Standard), make([]int, len(comms))
		buf := make([]byte, 100000)
		for range perPair * len(comms) {
			st, err := c.Recv(f.Context(), buffer(buf), pml.AnySource, pml.AnyTag, p2p)
			f.Check(err)
			i := next[st.Source]
			next[st.Source]++
			f.compare(st, err, buf[:st.Bytes], contents(st.Source, rank, i), st.Source, i%2)
		}
		f.wait(sends...)
	})
	f.each(comms, func(rank int, c pml.Comm) {
		sends := start(rank, c, pml.Synchronous)
		for src := range comms {
			for _, i := range []int{1, 0, 3, 2, 5, 4} {
				f.want(c, src, i%2, contents(src, rank, i), src, i%2)
			}
		}
		f.wait(sends...)
	})
	f.closeFree(comms)
}

// closeFree closes the handles of a communicator, and checks that its indices are free afterwards.
func (f *fixture) closeFree(comms []pml.Comm) {
	for rank, c := range comms {
		if f.Procs[rank] != nil {
			c.Close()
		}
	}
	for _, h := range f.hosts {
		f.Until("free indices", func() bool {
			withheld, live, quarantined := h.Module.CIDs().Counts()
			return withheld == 0 && live == len(h.ranks) && quarantined == 0 // The fixture's own are open.
		})
	}
}

// cancelWild sends to the first rank from all others, which cancels some of its receives while messages
// arrive.
func (f *fixture) cancelWild() {
	const each = 60
	comms := f.comm()
	f.each(comms, func(rank int, c pml.Comm) {
		if rank > 0 {
			for i := range each {
				f.send(c, 0, i, contents(rank, 0, i%perPair))
			}
			return
		}
		next, bufs := make([]int, len(comms)), [3][]byte{}
		for i := range bufs {
			bufs[i] = make([]byte, 100000)
		}
		for received := 0; received < each*(len(comms)-1); {
			_, err := c.Probe(f.Context(), pml.AnySource, pml.AnyTag, p2p) // Makes progress.
			f.Check(err)
			var posted []pending
			for _, buf := range bufs {
				posted = append(posted, f.irecv(c, pml.AnySource, pml.AnyTag, buf))
			}
			f.Check(posted[1].r.Cancel(posted[1].gen))
			if received+len(posted) > each*(len(comms)-1) {
				f.Check(posted[2].r.Cancel(posted[2].gen), posted[0].r.Cancel(posted[0].gen))
			}
			for k, p := range posted {
				st, err := p.wait(f.Context())
				f.Check(err)
				if st.Canceled {
					continue
				}
				i := next[st.Source]
				next[st.Source]++
				received++
				f.compare(st, err, bufs[k][:st.Bytes], contents(st.Source, 0, i%perPair), st.Source, i)
			}
		}
	})
	f.closeFree(comms)
}

// deferredOrder checks that a send that starts under the rank's lock matches before later ones of the same
// goroutine.
func (f *fixture) deferredOrder() {
	const rounds = 200
	comms := f.comm()
	last := len(comms) - 1
	f.each(comms, func(rank int, c pml.Comm) {
		switch rank {
		case 0:
			var ends notes
			started := 0
			for i := range rounds {
				dst := 1 + i%last
				f.locked(0, func() {
					r, err := c.StartSend(buffer(data(i, 8)), dst, 1, p2p, pml.Standard)
					f.Check(err)
					if r.Done() {
						ends.Completed(r)
					} else {
						r.Notify(&ends)
					}
					started++
				})
				f.send(c, dst, 1, data(i+1, 300))
			}
			f.ends(0, &ends, started)
			for _, st := range ends.endStatuses {
				f.Check(st.Err)
			}
		default:
			for i := rank - 1; i < rounds; i += last {
				f.want(c, 0, 1, data(i, 8), 0, 1)
				f.want(c, 0, 1, data(i+1, 300), 0, 1)
			}
		}
	})
	f.closeFree(comms)
}

// dropAll closes the communicator of the first rank while messages of all others are unreceived.
func (f *fixture) dropAll() {
	comms := f.comm()
	var unreceived []pending
	for src := 1; src < len(comms); src++ {
		for _, n := range []int{4, 100000} {
			unreceived = append(unreceived, f.isend(comms[src], 0, 1, data(src, n), pml.Synchronous))
		}
		f.awaitArrival(comms[0], src, 1)
	}
	comms[0].Close()
	for _, p := range unreceived {
		_, err := p.wait(f.Context())
		f.Is("synchronous send of a dropped message", err, framework.ErrCommClosed)
	}
	f.closeFree(comms)
}

// hostFails checks that operations with any rank of a failed process end, with errors that name all of its
// ranks. The other ranks continue.
func (f *fixture) hostFails() {
	if len(f.hosts) < 3 {
		f.Skipf("two processes have to be left")
	}
	comms := f.comm()
	own, dead, other := f.hosts[1].ranks, f.hosts[2].ranks, f.hosts[0].ranks[0]
	incarnation := f.hosts[2].Incarnation
	c, neighbor := comms[own[0]], own[len(own)-1]
	for _, rank := range dead {
		f.send(comms[rank], own[0], 5, nil)
		f.want(c, rank, 5, nil, rank, 5)
	}
	var known []pending
	for _, rank := range dead {
		known = append(known, f.irecv(c, rank, 2, make([]byte, 10)))
	}
	wild := f.irecv(c, pml.AnySource, 2, make([]byte, 10))
	probed := f.Go(func() {
		_, err := c.Probe(f.Context(), pml.AnySource, 3, p2p)
		f.Is("probe for any", err, framework.ErrProcFailedPending)
	})
	buf, local := make([]byte, 10), make([]byte, 10)
	remains := []pending{f.irecv(c, other, 2, buf), f.irecv(c, neighbor, 2, local)}
	f.hosts[1].Module.PeerChanged(framework.FailedEvent(incarnation, "signal: killed"))
	f.hosts[0].Module.PeerChanged(framework.FailedEvent(incarnation, "signal: killed"))
	suspend(c, dead...)
	f.Check(f.Kill(dead[0]))
	all := func(what string, err error) { f.namesAll(what, err, dead) }
	for _, p := range known {
		_, err := p.wait(f.Context())
		all("receive from a rank of the dead process", err)
	}
	err := f.pendingAny(wild)
	f.Is("receive from any", err, framework.ErrProcFailedPending)
	all("receive from any", err)
	probed()
	f.newOperationsFail(c, own[0], dead)
	f.send(comms[other], own[0], 2, data(1, 10))
	f.got(remains[0], buf, data(1, 10), other, 2)
	f.send(comms[neighbor], own[0], 2, data(2, 10))
	f.got(remains[1], local, data(2, 10), neighbor, 2)
	f.send(comms[other], own[0], 4, data(3, 10))
	f.awaitArrival(c, other, 4)
	f.want(c, pml.AnySource, 4, data(3, 10), other, 4)
	c.Suspend(p2p, nil)
	for _, n := range []int{10, 100000} {
		f.receivesAfterSuspension(comms, own[0], other, dead, n)
	}
	if len(own) > 1 {
		f.send(c, neighbor, 6, data(4, 50))
		f.want(comms[neighbor], own[0], 6, data(4, 50), own[0], 6)
	}
	for rank, c := range comms {
		if f.Procs[rank] != nil {
			c.Close()
		}
	}
}

// namesAll checks that err names all ranks of a failed process.
func (f *fixture) namesAll(what string, err error, dead []int) {
	failed, ok := errors.AsType[*framework.ProcFailedError](err)
	if !ok || !slices.Equal(failed.Ranks, dead) {
		f.Fatalf("%s: %v, want a ProcFailedError that names ranks %v", what, err, dead)
	}
}

// newOperationsFail checks new operations of rank own with the ranks of a failed process, and with any source. c is the communicator of own.
func (f *fixture) newOperationsFail(c pml.Comm, own int, dead []int) {
	all := func(what string, err error) { f.namesAll(what, err, dead) }
	for _, rank := range dead {
		all("new send", c.Send(f.Context(), pml.Buffer{}, rank, 9, p2p, pml.Standard))
		_, err := c.Recv(f.Context(), pml.Buffer{}, rank, 9, p2p)
		all("new receive", err)
		_, err = c.Probe(f.Context(), rank, 9, p2p)
		all("new probe", err)
		var ends notes
		f.locked(own, func() {
			r, err := c.StartSend(pml.Buffer{}, rank, 9, p2p, pml.Standard)
			f.Check(err)
			r.Notify(&ends)
		})
		f.ends(own, &ends, 1)
		all("send started under the lock", ends.endStatuses[0].Err)
	}
	_, err := c.Recv(f.Context(), pml.Buffer{}, pml.AnySource, 9, p2p)
	all("new receive from any", err)
}

// receivesAfterSuspension cancels a receive of rank own from any source that is not suspended, and checks that a suspended one still receives
// n bytes from other, which is alive.
func (f *fixture) receivesAfterSuspension(comms []pml.Comm, own, other int, dead []int, n int) {
	c := comms[own]
	p, buf := f.irecv(c, pml.AnySource, 7, make([]byte, n)), make([]byte, n)
	if _, done, err := p.r.Test(p.gen); done || err != nil {
		f.Errorf("test of a receive from any after the failure was settled: %t %v", done, err)
	}
	f.Check(p.r.Cancel(p.gen))
	if st, err := p.wait(f.Context()); err != nil || !st.Canceled {
		f.Errorf("a canceled receive: %+v %v", st, err)
	}
	p = f.irecv(c, pml.AnySource, 7, buf)
	suspend(c, dead...)
	f.isSuspended(p)
	s := f.isend(comms[other], own, 7, data(5, n), pml.Standard)
	f.Until("the match", func() bool {
		_, done, err := p.r.Peek(p.gen)
		return done && err == nil
	})
	f.got(p, buf, data(5, n), other, 7)
	f.wait(s)
	c.Suspend(p2p, nil)
}
