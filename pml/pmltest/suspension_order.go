package pmltest

import (
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// resumed waits for a receive that may be suspended, and returns its status.
func (f *fixture) resumed(p pending) (pml.Status, error) {
	for {
		st, err := p.wait(f.Context())
		if !errors.Is(err, framework.ErrProcFailedPending) {
			return st, err
		}
		f.Check(f.Context().Err())
	}
}

// suspendedOrder alternates receives from any source and from rank 2, with and without a tag. Rank 1 fails before or after
// some of the messages come.
func (f *fixture) suspendedOrder() {
	f.processes()
	c := f.commsByRank[0]
	f.connectAll(f.commsByRank)
	sources, tags := []int{2, pml.AnySource, 2, pml.AnySource, 2, 2, pml.AnySource}, []int{1, 1, 1, pml.AnyTag, pml.AnyTag, 1, 1}
	isDead := false
	for _, n := range []int{4, 300_000} {
		for _, before := range []int{0, 3} {
			if isDead && before > 0 {
				continue
			}
			var all []pending
			var bufs [][]byte
			post := func() {
				i := len(all) % len(sources)
				bufs = append(bufs, make([]byte, n))
				all = append(all, f.irecv(c, sources[i], tags[i], bufs[len(bufs)-1]))
			}
			for range sources {
				post()
			}
			var sends []pending
			send := func() { sends = append(sends, f.isend(f.commsByRank[2], 0, 1, data(len(sends), n), pml.Standard)) }
			for range before {
				send()
			}
			if !isDead && before > 0 {
				f.died(1)
				isDead = true
				// A network may have to withdraw receives first.
				_, _, err := c.Iprobe(pml.AnySource, 2, p2p)
				f.Is("probe", err, framework.ErrProcFailedPending)
			}
			for range sources {
				post()
			}
			for len(sends) < len(all) {
				send()
			}
			for i, p := range all {
				st, err := f.resumed(p)
				f.compare(st, err, bufs[i], data(i, n), 2, 1)
			}
			for _, s := range sends {
				f.wait(s)
			}
		}
	}
}

// suspendedInFlight sends from rank 2 while rank 1 fails.
func (f *fixture) suspendedInFlight() {
	f.processes()
	c := f.commsByRank[0]
	f.connectAll(f.commsByRank)
	const messages = 60
	var all []pending
	bufs := make([][]byte, messages)
	size := func(i int) int { return []int{4, 20_000, 200}[i%3] }
	post := func() {
		i := len(all)
		bufs[i] = make([]byte, size(i))
		all = append(all, f.irecv(c, pml.AnySource, 1, bufs[i]))
	}
	for range messages / 2 {
		post()
	}
	sent := f.Go(func() {
		for i := range messages {
			f.send(f.commsByRank[2], 0, 1, data(i, size(i)))
		}
	})
	st, err := f.resumed(all[0])
	f.compare(st, err, bufs[0], data(0, size(0)), 2, 1)
	f.died(1)
	for len(all) < messages {
		post()
	}
	for i, p := range all[1:] {
		st, err := f.resumed(p)
		f.compare(st, err, bufs[i+1], data(i+1, size(i+1)), 2, 1)
	}
	sent()
}

// suspendedLast checks that a message which has arrived before its sender fails is received, whether it matches before or after those of live members.
func (f *fixture) suspendedLast() {
	f.processes()
	c := f.commsByRank[0]
	f.connectAll(f.commsByRank)
	for i := range 2 {
		f.send(f.commsByRank[1], 0, 1, data(i, 4))
	}
	f.send(f.commsByRank[1], 0, 2, nil)
	f.awaitArrival(c, 1, 2)
	f.died(1)
	f.send(f.commsByRank[2], 0, 1, data(2, 4))
	f.awaitArrival(c, 2, 1)
	got := map[int]int{}
	next := []int{1: 0, 2: 2}
	for range 3 {
		buf := make([]byte, 4)
		st, err := f.resumed(f.irecv(c, pml.AnySource, 1, buf))
		f.Check(err)
		f.compare(st, err, buf, data(next[st.Source], 4), st.Source, 1)
		next[st.Source]++
		got[st.Source]++
	}
	if got[1] != 2 || got[2] != 1 {
		f.Errorf("%d messages of the dead and %d of rank 2", got[1], got[2])
	}
	_, ok, err := c.Iprobe(pml.AnySource, 1, p2p)
	f.Is("probe", err, framework.ErrProcFailedPending)
	if ok {
		f.Errorf("a message is left")
	}
}
