package pmltest

import (
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func matchCases() claims {
	return claims{
		kittest.New("BlockedReceiveTakesTheFirstOfMany", 2, (*fixture).firstOfMany),
		kittest.New("Wildcards_SeveralMessages_MatchTheFirstArrival", 3, (*fixture).wildcards),
		kittest.New("ReceivesMatchInTheOrderOfPosting", 2, (*fixture).postingOrder),
		kittest.New("UnexpectedMessagesKeepTheirContents", 2, (*fixture).unexpectedMessages),
		kittest.New("PlanesNeverMatchEachOther", 2, (*fixture).planes),
		kittest.New("ManyGoroutinesDoNotMixTheirMessages", 2, (*fixture).goroutines),
	}
}

// firstOfMany sends messages of all kinds at once while a receive starts. None overtakes
// another.
func (f *fixture) firstOfMany() {
	for round := range 100 {
		comms := f.commsByRank
		if round%2 == 0 { // A communicator without earlier messages.
			comms = f.comm()
		}
		sizes := []int{[]int{10, 20000, 0}[round%3], 30, 15000, 40, 50}
		release := f.stopProgress(1)
		defer release()
		first := f.Go(func() { f.want(comms[1], 0, pml.AnyTag, data(0, sizes[0]), 0, 0) })
		var sends []pending
		for i, n := range sizes {
			sends = append(sends, f.isend(comms[0], 1, i, data(i, n), pml.Standard))
		}
		release()
		first()
		for i, n := range sizes[1:] {
			f.want(comms[1], 0, pml.AnyTag, data(i+1, n), 0, i+1)
		}
		f.wait(sends...)
	}
}

func (f *fixture) wildcards() {
	// A wildcard matches the first arrival, and its status has the source. If arrivals are not known, the first
	// of two senders is not defined.
	sender := func(i int) int { return 1 + i%2 }
	if !f.caps().Arrivals {
		sender = func(int) int { return 1 }
	}
	for i := range 20 {
		f.send(f.commsByRank[sender(i)], 0, i, data(i, 10+i))
		f.awaitArrival(f.commsByRank[0], sender(i), i)
	}
	for i := range 20 {
		src, tag, from := pml.AnySource, pml.AnyTag, sender(i)
		if i%4 == 1 {
			tag = i
		}
		if i%4 == 2 {
			src = from
		}
		f.want(f.commsByRank[0], src, tag, data(i, 10+i), from, i)
	}
}

func (f *fixture) postingOrder() {
	posts := []struct{ src, tag int }{{0, 1}, {pml.AnySource, pml.AnyTag}, {0, 1}, {pml.AnySource, 1}, {0, pml.AnyTag}, {pml.AnySource, 2}}
	// Message k has tag sends[k] and matches receive meets[k].
	sends, meets := []int{1, 2, 2, 1, 1, 2}, []int{0, 1, 4, 2, 3, 5}
	reqs, bufs := make([]pending, len(posts)), make([][]byte, len(posts))
	for i, p := range posts {
		bufs[i] = make([]byte, 8)
		reqs[i] = f.irecv(f.commsByRank[1], p.src, p.tag, bufs[i])
	}
	for k, tag := range sends {
		f.send(f.commsByRank[0], 1, tag, data(k, 8))
	}
	for k, i := range meets {
		f.got(reqs[i], bufs[i], data(k, 8), 0, sends[k])
	}
}

func (f *fixture) unexpectedMessages() {
	sizes := append([]int{0, 1, 63, 64, 65, 1000}, f.caps().Steps...)
	var sends []pending
	for i, n := range sizes {
		sends = append(sends, f.isend(f.commsByRank[0], 1, i, data(i, n), pml.Standard))
	}
	for i := range sizes {
		f.awaitArrival(f.commsByRank[1], 0, i)
	}
	pick := func(i int) { f.want(f.commsByRank[1], []int{pml.AnySource, 0}[i/2%2], i, data(i, sizes[i]), 0, i) }
	for i := 1; i < len(sizes); i += 2 { // By tag, and neither the first nor the last.
		pick(i)
	}
	for i := (len(sizes) - 1) &^ 1; i >= 0; i -= 2 {
		pick(i)
	}
	f.wait(sends...)
}

// planes sends one message on each plane. A receive matches that of its own plane.
func (f *fixture) planes() {
	const all = pml.Plane(pml.Planes)
	for first := range all {
		for _, n := range []int{4, 100000} {
			var sends []pending
			for k := range all {
				s, err := started(f.commsByRank[0].Isend(buffer(data(int(k), n)), 1, 3, k, pml.Standard))
				f.Check(err)
				sends = append(sends, s)
			}
			for k := range all {
				_, err := f.commsByRank[1].Probe(f.Context(), 0, 3, k)
				f.Check(err)
			}
			for i := range all {
				k := (first + i) % all
				got := make([]byte, n)
				st, err := f.commsByRank[1].Recv(f.Context(), buffer(got), pml.AnySource, pml.AnyTag, k)
				f.compare(st, err, got, data(int(k), n), 0, 3)
				if _, ok, err := f.commsByRank[1].Iprobe(pml.AnySource, pml.AnyTag, k); ok || err != nil {
					f.Fatalf("plane %d has a message left: %v", k, err)
				}
			}
			f.wait(sends...)
		}
	}
}

func (f *fixture) goroutines() {
	const many, rounds = 16, 60
	f.Each(2*many, func(k int) {
		rank, g := k%2, k/2
		c := f.commsByRank[rank]
		for i := range rounds {
			n := (g*97 + i*31) % 300
			if g == 0 {
				n = 30000
			}
			b := data(g*rounds+i, n)
			if rank == 0 {
				f.send(c, 1, g, b)
			}
			f.want(c, 1-rank, g, b, 1-rank, g)
			if rank == 1 {
				f.send(c, 0, g, b)
			}
		}
	})
}
