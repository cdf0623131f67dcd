package pmltest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/pml"
)

func startCases() claims {
	return claims{
		kittest.New("OperationStartedUnderTheLock_Completes_NotifiesOnce", 2, (*fixture).startLocked),
		kittest.New("Notifier_OperationCompletes_StartsTheNext", 2, (*fixture).chained),
		kittest.New("Watcher_UnmatchedMessages_ArePassed", 2, (*fixture).watched),
		kittest.New("WatcherCopiesEagerMessagesAndReturnsUnmatchedOnes", 2, (*fixture).watchedReturns),
	}
}

// notes is a Notifier and a Watcher that records all calls. The engine's lock guards it.
type notes struct {
	endStatuses []pml.Status
	// Payloads that Eager has copied.
	eagerPayloads [][]byte
	arrivedNotes  []*note
	changedCalls  int
}

// note is a message that was passed to the watcher. It counts as matched if its tag is matchedTag.
type note struct {
	pml.Claimed
	tag int
	// Guarded by the lock of the receiver's engine.
	isReturned bool
}

// Tags of messages that notes takes in Eager, and that it does not return.
const (
	eagerTag   = 50
	matchedTag = 51
)

// Return implements pml.Unmatched.
func (m *note) Return() bool {
	m.isReturned = m.tag != matchedTag
	return m.isReturned
}

func (n *notes) Completed(r *pml.Request) {
	st, _, _ := r.Take(r.Generation())
	n.endStatuses = append(n.endStatuses, st)
}

// Eager implements pml.Watcher.
func (n *notes) Eager(_, tag int, payload []byte) bool {
	if tag != eagerTag {
		return false
	}
	n.eagerPayloads = append(n.eagerPayloads, slices.Clone(payload))
	return true
}

func (n *notes) Arrived(k pml.Claimed, st pml.Status) pml.Unmatched {
	m := &note{Claimed: k, tag: st.Tag}
	n.arrivedNotes = append(n.arrivedNotes, m)
	return m
}

func (n *notes) Changed() { n.changedCalls++ }

// locked calls do with the lock of a rank's engine held.
func (f *fixture) locked(rank int, do func()) {
	defer f.lock(rank)()
	do()
}

// ends waits until n operations have completed.
func (f *fixture) ends(rank int, n *notes, want int) {
	f.Until("upcalls", func() (came bool) {
		f.locked(rank, func() { came = len(n.endStatuses) >= want })
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
		f.locked(1, func() { follow(&recvs, f.commsByRank[1].StartRecv(buffer(buf), 0, 1, p2p), nil) })
		f.locked(0, func() {
			r, err := f.commsByRank[0].StartSend(buffer(b), 1, 1, p2p, pml.Synchronous)
			follow(&sends, r, err)
		})
		f.ends(1, &recvs, 1)
		f.ends(0, &sends, 1)
		f.compare(recvs.endStatuses[0], recvs.endStatuses[0].Err, buf, b, 0, 1)
		f.Check(sends.endStatuses[0].Err)
		// A claimed message is started in the same way.
		s := f.isend(f.commsByRank[0], 1, 2, b, pml.Standard)
		k, _, err := f.commsByRank[1].Mprobe(f.Context(), 0, 2, p2p)
		f.Check(err)
		clear(buf)
		f.locked(1, func() {
			r, err := k.Start(buffer(buf))
			follow(&recvs, r, err)
			_, err = k.Start(buffer(buf))
			f.Is("a second receive of a claimed message", err, framework.ErrClosed)
		})
		f.ends(1, &recvs, 2)
		f.compare(recvs.endStatuses[1], recvs.endStatuses[1].Err, buf, b, 0, 2)
		f.wait(s)
		// So is the completion of a withdrawn operation.
		f.locked(1, func() {
			r := f.commsByRank[1].StartRecv(buffer(buf), 0, 3, p2p)
			follow(&recvs, r, nil)
			r.CancelLocked()
		})
		f.ends(1, &recvs, 3)
		if st := recvs.endStatuses[2]; !st.Canceled || len(recvs.endStatuses) != 3 || len(sends.endStatuses) != 1 {
			f.Fatalf("the receive that was withdrawn ended with %+v; %d and %d upcalls", st, len(recvs.endStatuses), len(sends.endStatuses))
		}
	}
}

// chain starts messages one after the other, each when an earlier one completes. The engine's lock guards
// it.
type chain struct {
	startRequest  func(i int) (*pml.Request, error)
	nextIndex     int
	requestCount  int
	completeCount int
	err           error
}

// Completed implements pml.Notifier.
func (c *chain) Completed(r *pml.Request) {
	_, _, err := r.Take(r.Generation())
	c.ended(err)
	c.more(1)
}

func (c *chain) ended(err error) {
	c.completeCount++
	if c.err == nil {
		c.err = err
	}
}

// more starts n messages, and one more for each that completes at once.
func (c *chain) more(n int) {
	for ; n > 0 && c.nextIndex < c.requestCount && c.err == nil; n-- {
		c.nextIndex++
		r, err := c.startRequest(c.nextIndex - 1)
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
	sends := &chain{requestCount: most, startRequest: func(i int) (*pml.Request, error) {
		return f.commsByRank[0].StartSend(buffer(data(i, sizes[i%len(sizes)])), 1, i, p2p, pml.Standard)
	}}
	recvs := &chain{requestCount: most, startRequest: func(i int) (*pml.Request, error) {
		bufs[i] = make([]byte, sizes[i%len(sizes)])
		return f.commsByRank[1].StartRecv(buffer(bufs[i]), 0, i, p2p), nil
	}}
	f.locked(1, func() { recvs.more(together) })
	f.locked(0, func() { sends.more(together) })
	for rank, c := range []*chain{sends, recvs} {
		f.Until("the chain", func() (isDone bool) {
			f.locked(rank, func() { isDone = c.completeCount == most || c.err != nil })
			return isDone
		})
		f.Check(c.err)
	}
	for i, buf := range bufs {
		f.Same(fmt.Sprintf("message %d", i), buf, data(i, len(buf)))
	}
}

// watchable returns a Comm of a PML that reports arrivals.
func (f *fixture) watchable(c pml.Comm) pml.Watchable {
	if !f.caps().Arrivals {
		f.Skipf("the PML does not report arrivals")
	}
	if f.hosts != nil {
		f.Skipf("no PML watches the ranks of several processes")
	}
	w, ok := framework.As[pml.Watchable](c)
	if !ok {
		f.Fatalf("%T is not Watchable", c)
	}
	return w
}

func (f *fixture) watched() {
	comms := f.comm()
	c, w := comms[1], f.watchable(comms[1])
	posted := make([]byte, 4)
	before := f.irecv(c, 0, 1, posted)
	f.send(comms[0], 1, 2, data(2, 4)) // Stays unmatched.
	f.awaitArrival(c, 0, 2)
	blocked := f.Go(func() {
		_, err := c.Probe(f.Context(), 0, 9, p2p)
		f.Is("a probe that was blocked", err, pml.ErrWatched)
	})
	var n notes
	f.locked(1, func() { w.Watch(p2p, &n) })
	blocked()
	f.send(comms[0], 1, 1, data(1, 4)) // Matches the posted receive.
	large := f.isend(comms[0], 1, 3, data(3, 100000), pml.Standard)
	f.got(before, posted, data(1, 4), 0, 1)
	_, err := c.Recv(f.Context(), buffer(posted), 0, 1, p2p)
	f.Is("a receive on a watched plane", err, pml.ErrWatched)
	_, _, _, err = c.Improbe(pml.AnySource, pml.AnyTag, p2p)
	f.Is("a probe on a watched plane", err, pml.ErrWatched)
	f.Until("messages", func() (both bool) {
		f.locked(1, func() { both = len(n.arrivedNotes) == 2 })
		return both
	})
	if n.arrivedNotes[0].tag != 2 || n.arrivedNotes[1].tag != 3 {
		f.Fatalf("tags %d and %d arrived", n.arrivedNotes[0].tag, n.arrivedNotes[1].tag)
	}
	c.Close()
	for i, size := range []int{4, 100000} { // Messages that were passed on are received even after the close.
		buf := make([]byte, size)
		st, err := n.arrivedNotes[i].Recv(f.Context(), buffer(buf))
		f.compare(st, err, buf, data(i+2, size), 0, i+2)
	}
	f.wait(large)
	f.send(comms[0], 1, 4, nil) // Later messages are passed on too.
	f.Until("a message after the close", func() (came bool) {
		f.locked(1, func() { came = len(n.arrivedNotes) == 3 })
		return came
	})
	if f.team != nil {
		c.Abort(p2p, errEnough)
	} else {
		f.Procs[1].Module.PeerChanged(framework.FailedEvent(f.Group()[0].Incarnation, "test"))
	}
	f.locked(1, func() {
		if err := w.SourceError(0, p2p); n.changedCalls == 0 || err == nil {
			f.Fatalf("a sender has failed: %d upcalls, %v", n.changedCalls, err)
		}
		if f.team == nil {
			f.Check(w.SourceError(1, p2p))
		}
		w.Watch(p2p, nil)
	})
	_, err = n.arrivedNotes[2].Recv(f.Context(), pml.Buffer{})
	f.Check(err)
}

// watchedReturns checks that a watcher copies the payload of an eager message, and returns an unmatched message
// when its sender withdraws it. A matched message stays.
func (f *fixture) watchedReturns() {
	comms := f.comm()
	c, w := comms[1], f.watchable(comms[1])
	f.connectAll(comms)
	var n notes
	f.locked(1, func() { w.Watch(p2p, &n) })
	f.send(comms[0], 1, eagerTag, data(1, 30))
	f.Until("an eager message", func() (came bool) {
		f.locked(1, func() { came = len(n.eagerPayloads) == 1 })
		return came
	})
	f.Same("eager message", n.eagerPayloads[0], data(1, 30))
	arrived := func(many int) {
		f.Until("messages", func() (came bool) {
			f.locked(1, func() { came = len(n.arrivedNotes) == many })
			return came
		})
	}
	for i, size := range []int{8, 100000} {
		s := f.limited(comms[0], 2, data(i, size), pml.Synchronous)
		arrived(i + 1)
		err := s.stop()
		f.Is("a send that is withdrawn", err, errEnough)
		if p := (*pml.PendingError)(nil); errors.As(err, &p) {
			f.Fatalf("a send that is withdrawn: %v", err)
		}
		hasReturned := false
		f.locked(1, func() { hasReturned = n.arrivedNotes[i].isReturned })
		if !hasReturned {
			f.Fatalf("message %d was not returned", i)
		}
	}
	stays := f.isend(comms[0], 1, matchedTag, data(3, 100000), pml.Standard)
	arrived(3)
	f.Check(stays.r.Cancel(stays.gen))
	buf := make([]byte, 100000)
	st, err := n.arrivedNotes[2].Recv(f.Context(), buffer(buf))
	f.compare(st, err, buf, data(3, 100000), 0, matchedTag)
	f.wait(stays)
	c.Close()
	f.locked(1, func() { w.Watch(p2p, nil) })
	comms[0].Close()
}
