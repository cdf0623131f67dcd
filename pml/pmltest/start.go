package pmltest

import (
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func startCases() claims {
	return claims{
		kittest.New("WhatStartsUnderTheLockTellsItsEndOnce", 2, (*fixture).startLocked),
		kittest.New("WhoHearsOfAnEndStartsWhatIsNext", 2, (*fixture).chained),
		kittest.New("WatcherGetsWhatNoReceiveMatches", 2, (*fixture).watched),
	}
}

// notes is a Notifier and a Watcher that keeps what it is told. The engine's lock guards it.
type notes struct {
	ends    []pml.Status
	arrived []pml.Claimed
	tags    []int
	changed int
}

func (n *notes) Completed(r *pml.Request) {
	st, _, _ := r.Take(r.Generation())
	n.ends = append(n.ends, st)
}

func (n *notes) Arrived(k pml.Claimed, st pml.Status) {
	n.arrived, n.tags = append(n.arrived, k), append(n.tags, st.Tag)
}

func (n *notes) Changed() { n.changed++ }

// locked calls do with the lock of a rank's engine.
func (f *fixture) locked(rank int, do func()) {
	defer f.hold(rank)()
	do()
}

// ends waits until so many operations have told their end.
func (f *fixture) ends(rank int, n *notes, want int) {
	f.Until("upcalls", func() (came bool) {
		f.locked(rank, func() { came = len(n.ends) >= want })
		return came
	})
}

func (f *fixture) startLocked() {
	for i, size := range []int{0, 100, 100000} {
		b, buf := data(i, size), make([]byte, size)
		var sends, recvs notes
		follow := func(n *notes, r *pml.Request, err error) {
			f.Check(err)
			if r.Done() {
				n.Completed(r)
			} else {
				r.Notify(n)
			}
		}
		f.locked(1, func() { follow(&recvs, f.comms[1].StartRecv(buffer(buf), 0, 1, p2p), nil) })
		f.locked(0, func() {
			r, err := f.comms[0].StartSend(buffer(b), 1, 1, p2p, pml.Synchronous)
			follow(&sends, r, err)
		})
		f.ends(1, &recvs, 1)
		f.ends(0, &sends, 1)
		f.compare(recvs.ends[0], recvs.ends[0].Err, buf, b, 0, 1)
		f.Check(sends.ends[0].Err)
		// A claimed message is started likewise.
		s := f.isend(f.comms[0], 1, 2, b, pml.Standard)
		k, _, err := f.comms[1].Mprobe(f.Context(), 0, 2, p2p)
		f.Check(err)
		clear(buf)
		f.locked(1, func() {
			r, err := k.Start(buffer(buf))
			follow(&recvs, r, err)
			_, err = k.Start(buffer(buf))
			f.Is("a second receive of a claimed message", err, framework.ErrClosed)
		})
		f.ends(1, &recvs, 2)
		f.compare(recvs.ends[1], recvs.ends[1].Err, buf, b, 0, 2)
		f.wait(s)
		// So is the end of what is withdrawn.
		f.locked(1, func() {
			r := f.comms[1].StartRecv(buffer(buf), 0, 3, p2p)
			follow(&recvs, r, nil)
			r.CancelLocked()
		})
		f.ends(1, &recvs, 3)
		if st := recvs.ends[2]; !st.Canceled || len(recvs.ends) != 3 || len(sends.ends) != 1 {
			f.Fatalf("the receive that was withdrawn ended with %+v; %d and %d upcalls", st, len(recvs.ends), len(sends.ends))
		}
	}
}

// chain starts messages one after the other, each when it hears of the end of an earlier
// one. The engine's lock guards it.
type chain struct {
	start    func(i int) (*pml.Request, error)
	next     int
	most     int
	complete int
	err      error
}

// Completed implements pml.Notifier.
func (c *chain) Completed(r *pml.Request) {
	_, _, err := r.Take(r.Generation())
	c.ended(err)
	c.more(1)
}

func (c *chain) ended(err error) {
	c.complete++
	if c.err == nil {
		c.err = err
	}
}

// more starts so many, and one more for each that is complete at once.
func (c *chain) more(n int) {
	for ; n > 0 && c.next < c.most && c.err == nil; n-- {
		c.next++
		r, err := c.start(c.next - 1)
		switch {
		case err != nil:
			c.err = err
		case r.Done():
			_, _, err := r.Take(r.Generation())
			c.ended(err)
			n++
		default:
			r.Notify(c)
		}
	}
}

func (f *fixture) chained() {
	const most, together = 200, 5
	sizes := []int{100_000, 0, 3000, 70_000, 9, 200_000}
	bufs := make([][]byte, most)
	sends := &chain{most: most, start: func(i int) (*pml.Request, error) {
		return f.comms[0].StartSend(buffer(data(i, sizes[i%len(sizes)])), 1, i, p2p, pml.Standard)
	}}
	recvs := &chain{most: most, start: func(i int) (*pml.Request, error) {
		bufs[i] = make([]byte, sizes[i%len(sizes)])
		return f.comms[1].StartRecv(buffer(bufs[i]), 0, i, p2p), nil
	}}
	f.locked(1, func() { recvs.more(together) })
	f.locked(0, func() { sends.more(together) })
	for rank, c := range []*chain{sends, recvs} {
		f.Until("the chain", func() (over bool) {
			f.locked(rank, func() { over = c.complete == most || c.err != nil })
			return over
		})
		f.Check(c.err)
	}
	for i, buf := range bufs {
		f.Same(fmt.Sprintf("message %d", i), buf, data(i, len(buf)))
	}
}

func (f *fixture) watched() {
	if !f.caps().Arrivals {
		f.Skipf("the PML does not know what arrives")
	}
	comms := f.comm()
	c := comms[1]
	w, ok := framework.As[pml.Watchable](c)
	if !ok {
		f.Fatalf("%T is not Watchable", c)
	}
	posted := make([]byte, 4)
	before := f.irecv(c, 0, 1, posted)
	f.send(comms[0], 1, 2, data(2, 4)) // waits
	f.arrived(c, 0, 2)
	blocked := f.Go(func() {
		_, err := c.Probe(f.Context(), 0, 9, p2p)
		f.Is("a probe that was blocked", err, pml.ErrWatched)
	})
	var n notes
	f.locked(1, func() { w.Watch(p2p, &n) })
	blocked()
	f.send(comms[0], 1, 1, data(1, 4)) // for the receive that is posted
	large := f.isend(comms[0], 1, 3, data(3, 100000), pml.Standard)
	f.got(before, posted, data(1, 4), 0, 1)
	_, err := c.Recv(f.Context(), buffer(posted), 0, 1, p2p)
	f.Is("a receive on a watched plane", err, pml.ErrWatched)
	_, _, _, err = c.Improbe(pml.AnySource, pml.AnyTag, p2p)
	f.Is("a probe on a watched plane", err, pml.ErrWatched)
	f.Until("messages", func() (both bool) {
		f.locked(1, func() { both = len(n.arrived) == 2 })
		return both
	})
	if n.tags[0] != 2 || n.tags[1] != 3 {
		f.Fatalf("tags %v arrived", n.tags)
	}
	c.Close()
	for i, size := range []int{4, 100000} { // what was handed over is received, whatever has closed
		buf := make([]byte, size)
		st, err := n.arrived[i].Recv(f.Context(), buffer(buf))
		f.compare(st, err, buf, data(i+2, size), 0, i+2)
	}
	f.wait(large)
	f.send(comms[0], 1, 4, nil) // and so it goes on
	f.Until("a message after the close", func() (came bool) {
		f.locked(1, func() { came = len(n.arrived) == 3 })
		return came
	})
	if f.team != nil {
		c.Abort(p2p, errEnough)
	} else {
		f.Procs[1].Module.PeerFailed(f.Group()[0].Life, "test")
	}
	f.locked(1, func() {
		if err := w.CannotCome(0, p2p); n.changed == 0 || err == nil {
			f.Fatalf("a sender has failed: %d upcalls, %v", n.changed, err)
		}
		if f.team == nil {
			f.Check(w.CannotCome(1, p2p))
		}
		w.Watch(p2p, nil)
	})
	_, err = n.arrived[2].Recv(f.Context(), pml.Buffer{})
	f.Check(err)
}
