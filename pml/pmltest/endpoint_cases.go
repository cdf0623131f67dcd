package pmltest

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func endpointCases() claims {
	return claims{
		kittest.New("EndpointsOf2ProcessesExchangeInOrder", 2, func(f *fixture) { f.exchange(2, 2) }),
		kittest.New("EndpointsOf3ProcessesExchangeInOrder", 3, func(f *fixture) { f.exchange(1, 2, 5) }),
		kittest.New("ManyEndpointsExchangeInOrder", 2, func(f *fixture) { f.farApart(300) }),
		kittest.New("MessagesWaitForTheirEndpoint", 2, (*fixture).earlyEndpoint),
		kittest.New("MessagesForAClosedEndpointAreDropped", 2, (*fixture).closedEndpoint),
		kittest.New("ProcessFailureEndsAllOfItsEndpoints", 3, (*fixture).endpointsFail),
		kittest.New("EndpointThatRefusesIsNotWaitedFor", 2, (*fixture).refusedEndpoint),
	}
}

// contents returns the message between two ranks. Some are large.
func contents(src, dst, i int) []byte {
	n := 8 + 31*i
	if i == 4 {
		n = 100000
	}
	return data(1000*src+10*dst+i, n)
}

const perPair = 6

// exchange sends from each rank to all ranks of other processes, with two tags. All first receive from any source
// with any tag, and then from known sources, the second tag first.
func (f *fixture) exchange(counts ...int) {
	e := f.endpoints(counts...)
	f.joinRest(e)
	start := func(rank int, c pml.Comm, mode pml.Mode) (sends []pending) {
		for i := range perPair {
			for _, dst := range e.others(rank) {
				sends = append(sends, f.isend(c, dst, i%2, contents(rank, dst, i), mode))
			}
		}
		return sends
	}
	f.each(e.Comms, func(rank int, c pml.Comm) {
		others, sends := e.others(rank), start(rank, c, pml.Standard)
		next := make([]int, len(e.Members))
		for range perPair * len(others) {
			buf := make([]byte, 100000)
			st, err := c.Recv(f.Context(), buffer(buf), pml.AnySource, pml.AnyTag, p2p)
			f.Check(err)
			if !slices.Contains(others, st.Source) {
				f.Fatalf("rank %d got a message of rank %d of its process", rank, st.Source)
			}
			i := next[st.Source]
			next[st.Source]++
			f.compare(st, err, buf[:st.Bytes], contents(st.Source, rank, i), st.Source, i%2)
		}
		f.wait(sends...)
	})
	f.each(e.Comms, func(rank int, c pml.Comm) {
		sends := start(rank, c, pml.Synchronous)
		for _, src := range slices.Backward(e.others(rank)) {
			for _, i := range []int{1, 0, 3, 2, 5, 4} {
				f.want(c, src, i%2, contents(src, rank, i), src, i%2)
			}
		}
		f.wait(sends...)
	})
	f.closeAll(e)
}

// farApart uses two processes with more ranks than a flat table has. Each exchanges messages with
// one rank.
func (f *fixture) farApart(n int) {
	e := f.endpoints(n, n)
	f.joinRest(e)
	for i := range n {
		a, b := e.Rank(0, i), e.Rank(1, n-1-i)
		f.send(e.Comms[a], b, 1, data(i, 20))
		f.send(e.Comms[a], b, 2, data(i+1, 20))
		f.want(e.Comms[b], pml.AnySource, 1, data(i, 20), a, 1)
		f.want(e.Comms[b], a, pml.AnyTag, data(i+1, 20), a, 2)
		f.send(e.Comms[b], a, 3, data(i+2, 20))
		f.want(e.Comms[a], b, 3, data(i+2, 20), b, 3)
	}
	f.closeAll(e)
}

// earlyEndpoint sends to an endpoint that has joined, and to one that joins later.
func (f *fixture) earlyEndpoint() {
	for range 10 {
		e := f.endpoints(2, 2)
		there, later := e.Rank(1, 0), e.Rank(1, 1)
		f.Check(e.Join(e.Rank(0, 1)), e.Join(there))
		var sends []pending
		sizes := []int{0, 10, 100000, 20}
		for i, n := range sizes {
			for endpoint := range 2 {
				for _, dst := range []int{there, later} {
					sends = append(sends, f.isend(e.Comms[e.Rank(0, endpoint)], dst, i, data(i+endpoint, n), pml.Standard))
				}
			}
		}
		check := func(dst int) {
			for endpoint := range 2 {
				src := e.Rank(0, endpoint)
				for i, n := range sizes {
					f.want(e.Comms[dst], src, pml.AnyTag, data(i+endpoint, n), src, i)
				}
			}
		}
		check(there)
		f.Until("messages for an endpoint that is not there", func() bool {
			if f.caps().Arrivals {
				return f.earlyArrivals(1) == 2*len(sizes)
			}
			return f.earlyArrivals(1) > 0
		})
		f.Check(e.Join(later))
		check(later)
		f.wait(sends...)
		if n := f.earlyArrivals(1); n != 0 {
			f.Fatalf("%d messages are still kept for an endpoint", n)
		}
		f.closeAll(e)
	}
}

// closedEndpoint closes one endpoint of a process. Messages to it are dropped. Messages to the other endpoints,
// including one that joins later, are not.
func (f *fixture) closedEndpoint() {
	e := f.endpoints(2, 3)
	closed, open, later := e.Rank(1, 0), e.Rank(1, 1), e.Rank(1, 2)
	met, unmet := e.Comms[e.Rank(0, 0)], e.Rank(0, 1)
	f.Check(e.Join(unmet), e.Join(closed), e.Join(open))
	for _, rank := range []int{closed, open} {
		f.send(met, rank, 1, data(1, 10))
		f.want(e.Comms[rank], pml.AnySource, 1, data(1, 10), 0, 1)
		f.send(e.Comms[rank], 0, 2, data(2, 10))
		f.want(met, rank, 2, data(2, 10), rank, 2)
	}
	before := f.dropped(1)
	e.Comms[closed].Close()
	f.send(met, closed, 1, data(0, 10))
	f.Is("a message that an endpoint drops", met.Send(f.Context(), buffer(data(0, 100000)), closed, 1, p2p, pml.Synchronous), framework.ErrCommClosed)
	f.Is("a message of an endpoint that it has not met", e.Comms[unmet].Send(f.Context(), buffer(data(0, 100000)), closed, 1, p2p, pml.Synchronous), framework.ErrCommClosed)
	early := f.isend(e.Comms[unmet], later, 1, data(7, 30), pml.Standard)
	f.Until("three dropped messages", func() bool {
		n := f.dropped(1) - before
		return n == 3 || n > 3 && !f.caps().Arrivals // A request for an id counts too.
	})
	for _, src := range []int{0, unmet} {
		f.send(e.Comms[src], open, 3, data(src, 40))
		f.want(e.Comms[open], src, 3, data(src, 40), src, 3)
	}
	f.Check(e.Join(later))
	f.want(e.Comms[later], pml.AnySource, pml.AnyTag, data(7, 30), unmet, 1)
	f.wait(early)
	f.closeAll(e)
}

// endpointsFail checks that pending operations with any rank of a failed process end, with errors that name all of
// its ranks. Ranks of other processes continue.
func (f *fixture) endpointsFail() {
	e := f.endpoints(2, 2, 2)
	f.joinRest(e)
	dead := []int{e.Rank(1, 0), e.Rank(1, 1)}
	var known, wild []pending
	for endpoint := range 2 {
		c := e.Comms[e.Rank(0, endpoint)]
		for _, rank := range dead {
			f.send(e.Comms[rank], e.Rank(0, endpoint), 5, nil)
			f.want(c, rank, 5, nil, rank, 5)
			known = append(known, f.irecv(c, rank, 2, make([]byte, 10)))
		}
		wild = append(wild, f.irecv(c, pml.AnySource, 2, make([]byte, 10)))
	}
	third := e.Rank(2, 1)
	buf := make([]byte, 10)
	other := f.irecv(e.Comms[0], third, 2, buf)
	incarnation := f.Group()[1].Incarnation
	f.Procs[0].Module.PeerChanged(framework.FailedEvent(incarnation, "signal: killed"))
	for endpoint := range 2 {
		suspend(e.Comms[e.Rank(0, endpoint)], dead...)
	}
	f.Check(f.Kill(1))
	all := func(what string, err error) {
		failed, ok := errors.AsType[*framework.ProcFailedError](err)
		if !ok || !slices.Equal(failed.Ranks, dead) {
			f.Fatalf("%s: %v, want a ProcFailedError that names ranks %v", what, err, dead)
		}
	}
	for _, p := range known {
		_, err := p.wait(f.Context())
		all("receive from a rank of the dead process", err)
	}
	for _, p := range wild {
		err := f.pendingAny(p)
		f.Is("receive from any", err, framework.ErrProcFailedPending)
		all("receive from any", err)
	}
	for endpoint := range 2 {
		c := e.Comms[e.Rank(0, endpoint)]
		for _, rank := range dead {
			all("new send", c.Send(f.Context(), pml.Buffer{}, rank, 9, p2p, pml.Standard))
			_, err := c.Recv(f.Context(), pml.Buffer{}, rank, 9, p2p)
			all("new receive", err)
		}
		_, err := c.Recv(f.Context(), pml.Buffer{}, pml.AnySource, 9, p2p)
		all("new receive from any", err)
	}
	f.send(e.Comms[third], 0, 2, data(1, 10))
	f.got(other, buf, data(1, 10), third, 2)
	f.Procs[2].Module.PeerChanged(framework.FailedEvent(incarnation, "signal: killed"))
	f.closeAll(e)
}

// refusedEndpoint fails the creation at one endpoint of a process, and not at
// another one.
func (f *fixture) refusedEndpoint() {
	for _, asked := range []bool{false, true} {
		e := f.endpoints(2, 2)
		without, with := e.Rank(1, 0), e.Rank(1, 1)
		f.Check(e.Join(e.Rank(0, 1)))
		refuse := func() { f.Procs[1].Module.Refuse(cid.Descendants(e.ID), 0) }
		if !asked {
			refuse()
		}
		var receives, sends []pending
		for endpoint := range 2 {
			c := e.Comms[e.Rank(0, endpoint)]
			receives = append(receives, f.irecv(c, without, 1, make([]byte, 4)))
			sends = append(sends, f.isend(c, with, 1, data(endpoint, 40), pml.Standard))
			lost := f.isend(c, without, 1, data(endpoint, 4), pml.Standard)
			f.Check(lost.r.Free(lost.gen)) // It is dropped, or fails.
		}
		f.Procs[0].Module.Inquire(f.Group()[1].ID)
		if asked {
			f.connectAll(f.commsByRank) // The inquiries have arrived, unless a network delivers them later.
			refuse()
		}
		f.Check(e.Join(with))
		for endpoint, p := range receives {
			_, err := p.wait(f.Context())
			f.Is("receive from an endpoint that is not in the communicator", err, framework.ErrNotMember)
			f.want(e.Comms[with], e.Rank(0, endpoint), 1, data(endpoint, 40), e.Rank(0, endpoint), 1)
		}
		f.wait(sends...)
		f.closeAll(e)
	}
}
