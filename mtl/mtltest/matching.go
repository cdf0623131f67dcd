package mtltest

import (
	"slices"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func matchingCases() claims {
	return claims{
		twoNodes("MessagesMatchInTheOrderOfTheirSends", (*world).orderOfSends),
		twoNodes("ReceivesMatchInTheOrderOfPosting", (*world).orderOfPosting),
		kittest.New("AnySourceLearnsTheSource", 3, (*world).anySource),
		kittest.New("ReceiveFromOneSourceIgnoresOthers", 3, (*world).oneSource),
		twoNodes("EveryBitOfIdAndTagIsMatched", (*world).everyBit),
		twoNodes("AnyTagStaysWithinItsId", (*world).anyTagWithinID),
		twoNodes("ManyReceivesOfOneIdDoNotBlockAnother", (*world).manyReceives),
		kittest.New("LateReceiversGetWhatEachSentInOrder", 4, (*world).fanIn),
	}
}

// orderOfSends mixes lengths and modes, which use different protocols.
func (w *world) orderOfSends(a, b *node) {
	const count = 160
	lengths := []int{8, 100000, 0, 3000, 64, 20000, 1, 300000}
	for _, early := range []bool{true, false} {
		var sends, receives []*operation
		post := func() {
			for i := range count {
				from, tag := a, int32(5)
				if i%3 == 0 {
					from = nil
				}
				if i%5 == 0 {
					tag = mtl.AnyTag
				}
				receives = append(receives, b.receive(from, envelope{cid: 9, tag: tag}, make([]byte, 300000)))
			}
		}
		if early {
			post()
		}
		for i := range count {
			m := envelope{cid: 9, tag: 5}
			if i%7 == 0 {
				m.mode = mtl.Synchronous
			}
			sends = append(sends, a.send(b, m, pattern(i, lengths[i%len(lengths)])))
			if i%16 == 0 {
				w.pollAll()
			}
		}
		if !early {
			post()
		}
		w.awaitSuccess(append(sends, receives...)...)
		for i, r := range receives {
			r.check(a, 5, pattern(i, lengths[i%len(lengths)]))
		}
	}
}

func (w *world) orderOfPosting(a, b *node) {
	// Each message completes the oldest receive that it matches.
	posted := []struct {
		from *node
		tag  int32
	}{{nil, 1}, {a, mtl.AnyTag}, {nil, mtl.AnyTag}, {a, 1}, {a, 2}}
	var receives []*operation
	for _, p := range posted {
		receives = append(receives, b.receive(p.from, envelope{cid: 2, tag: p.tag}, make([]byte, 8)))
	}
	for i, c := range []struct {
		tag   int32
		takes int
	}{{2, 1}, {1, 0}, {2, 2}, {2, 4}, {1, 3}} {
		receives[c.takes].mustGet(a, c.tag, pattern(i, 8), a.send(b, envelope{cid: 2, tag: c.tag}, pattern(i, 8)))
	}
}

func (w *world) anySource() {
	c, m := w.nodesByRank[2], envelope{cid: 2, tag: 1}
	for round := range 50 {
		n, sent := w.nodesByRank[round%3], pattern(round, 10*round)
		c.receive(nil, m, make([]byte, 500)).mustGet(n, 1, sent, n.send(c, m, sent))
	}
}

func (w *world) oneSource() {
	a, b, c := w.nodesByRank[0], w.nodesByRank[1], w.nodesByRank[2]
	m := envelope{cid: 2, tag: 1}
	r := c.receive(b, envelope{cid: 2, tag: mtl.AnyTag}, make([]byte, 8))
	first := a.send(c, m, pattern(1, 8))
	w.drainNetwork()
	if r.hasEnded() {
		w.Fatalf("a receive from rank 1 took a message of rank 0: %+v", r.Result)
	}
	r.mustGet(b, 1, pattern(2, 8), b.send(c, m, pattern(2, 8)))
	c.receive(nil, m, make([]byte, 8)).mustGet(a, 1, pattern(1, 8), first)
}

// everyBit posts receives that differ in one bit each. The messages are in another order.
func (w *world) everyBit(a, b *node) {
	caps := a.module.Caps()
	ms := []envelope{{}}
	for bit := range caps.CIDBits {
		ms = append(ms, envelope{cid: 1 << bit, tag: 0})
	}
	for bit := range caps.TagBits {
		ms = append(ms, envelope{cid: 0, tag: 1 << bit})
	}
	ms = append(ms, envelope{cid: uint32(1<<caps.CIDBits - 1), tag: int32(1<<caps.TagBits - 1)})
	var receives []*operation
	for i, m := range ms {
		receives = append(receives, b.receive([]*node{a, nil}[i%2], m, make([]byte, 4)))
	}
	for i := range ms {
		i = len(ms) - 1 - i
		receives[i].mustGet(a, ms[i].tag, pattern(i, 4), a.send(b, ms[i], pattern(i, 4)))
	}
}

func (w *world) anyTagWithinID(a, b *node) {
	r := b.receive(nil, envelope{cid: 2, tag: mtl.AnyTag}, make([]byte, 8))
	// The adjacent ids, with the lowest and the highest tag.
	for _, m := range []envelope{{cid: 3}, {cid: 1, tag: 1<<a.module.Caps().TagBits - 1}, {cid: 0}} {
		a.send(b, m, nil)
	}
	w.drainNetwork()
	if r.hasEnded() {
		w.Fatalf("a receive for id 2 took a message of another: %+v", r.Result)
	}
	r.mustGet(a, 77, pattern(1, 8), a.send(b, envelope{cid: 2, tag: 77}, pattern(1, 8)))
}

// manyReceives posts more receives of one id than any network holds. Their messages follow one of another id, such as a barrier.
func (w *world) manyReceives(a, b *node) {
	const count = 10000
	m := func(i int) envelope { return envelope{cid: 5, tag: int32(i % 50)} }
	var ops []*operation
	for i := range count {
		ops = append(ops, b.receive([]*node{nil, a}[i%2], m(i), make([]byte, 200)))
	}
	for i, n := range []int{8, 1 << 20, 0} {
		w.exchange(a, b, envelope{cid: 6, tag: 1, mode: mtl.Mode(i % 2)}, pattern(i, n))
	}
	for i := range count {
		ops = append(ops, a.send(b, m(i), pattern(i, 8+i%100)))
	}
	w.awaitSuccess(ops...)
	for i, r := range ops[:count] {
		r.check(a, m(i).tag, pattern(i, 8+i%100))
	}
}

func (w *world) fanIn() {
	const each = 60
	root, m := w.nodesByRank[3], envelope{cid: 8, tag: 3}
	var ops []*operation
	for i := range each {
		for _, n := range w.nodesByRank[:3] {
			ops = append(ops, n.send(root, m, pattern(i*4+n.rank, 5+i*40)))
		}
	}
	next := make([]int, 3)
	for range 3 * each {
		r := root.receive(nil, m, make([]byte, 5+each*40))
		w.awaitSuccess(r)
		if r.Source < 0 || r.Source > 2 {
			w.Fatalf("a message of rank %d", r.Source)
		}
		i := next[r.Source]
		next[r.Source]++
		r.check(w.nodesByRank[r.Source], 3, pattern(i*4+int(r.Source), 5+i*40))
	}
	w.awaitSuccess(ops...)
}

func cancelCases() claims {
	return claims{
		twoNodes("CanceledReceiveTakesNothing", (*world).cancelTakesNothing),
		twoNodes("CancelOfWhatIsOverDoesNothing", (*world).cancelOver),
		twoNodes("CancelInARaceIsCertain", (*world).cancelRace),
		twoNodes("CancelReachesWhatWaitsForRoom", (*world).cancelMany),
		twoNodes("ReceivesAreWithdrawnInTheOrderOfTheCancels", (*world).cancelOrder),
	}
}

func (o *operation) cancel() { o.n.withLock(func() { o.n.module.Cancel(&o.Op) }) }

func (w *world) cancelTakesNothing(a, b *node) {
	for i, from := range []*node{nil, a} {
		m := envelope{cid: 4, tag: int32(i)}
		buf := make([]byte, 8)
		r := b.receive(from, m, buf)
		r.cancel()
		if r.hasEnded() {
			w.Fatalf("Cancel called Done itself")
		}
		w.awaitSuccess(r)
		if !r.Canceled {
			w.Fatalf("it was not canceled: %+v", r.Result)
		}
		w.exchange(a, b, m, pattern(1, 8))
		w.Same("the buffer of a canceled receive", buf, make([]byte, 8))
	}
}

func (w *world) cancelOver(a, b *node) {
	m := envelope{cid: 4, tag: 1}
	r := b.receive(a, m, make([]byte, 8))
	w.awaitSuccess(r, a.send(b, m, pattern(1, 8)))
	r.cancel()
	// Another operation may reuse the resources of the first one.
	next := b.receive(a, m, make([]byte, 8))
	r.cancel()
	w.drainNetwork()
	if next.hasEnded() {
		w.Fatalf("Cancel of an operation that is over ended another: %+v", next.Result)
	}
	next.mustGet(a, 1, pattern(2, 8), a.send(b, m, pattern(2, 8)))
}

// cancelRace cancels receives while their messages are in flight. Each message must be received exactly once, in order.
func (w *world) cancelRace(a, b *node) {
	const rounds = 200
	m := envelope{cid: 4, tag: 1}
	for i := range rounds {
		n := 20
		if i%4 == 3 {
			n = 100000
		}
		r, s := b.receive([]*node{nil, a}[i%2], m, make([]byte, n)), a.send(b, m, pattern(i, n))
		for range i % 5 {
			w.pollAll()
		}
		r.cancel()
		r.cancel() // The second call has no effect.
		w.awaitSuccess(r)
		if r.Canceled {
			r = b.receive(a, m, make([]byte, n))
		}
		r.mustGet(a, 1, pattern(i, n), s)
	}
}

func (w *world) cancelMany(a, b *node) {
	const count = 5000 // More than the queues of most networks hold.
	var receives []*operation
	for i := range count {
		receives = append(receives, b.receive(nil, envelope{cid: 4, tag: int32(i % 7)}, make([]byte, 8)))
	}
	for _, r := range slices.Backward(receives) {
		r.cancel()
	}
	w.awaitSuccess(receives...)
	for i, r := range receives {
		if !r.Canceled {
			w.Fatalf("receive %d was not canceled: %+v", i, r.Result)
		}
	}
	w.exchange(a, b, envelope{cid: 4, tag: 1, mode: mtl.Synchronous}, pattern(1, 8))
}

// cancelOrder cancels receives that match the same messages, the youngest first, while messages are in flight. The oldest ones must match, in order.
func (w *world) cancelOrder(a, b *node) {
	const rounds, count = 60, 8
	m := envelope{cid: 4, tag: 1}
	for i := range rounds {
		n := 20
		if i%4 == 3 {
			n = 100000
		}
		var receives, sends []*operation
		for k := range count {
			receives = append(receives, b.receive([]*node{nil, a}[(i+k)%2], m, make([]byte, n)))
		}
		send := func() { sends = append(sends, a.send(b, m, pattern(len(sends), n))) }
		for range i % 3 {
			send()
		}
		for range i % 5 {
			w.pollAll()
		}
		for _, r := range slices.Backward(receives) {
			r.cancel()
		}
		for range 3 {
			send()
			w.pollAll()
			w.pollAll()
		}
		w.awaitSuccess(receives...)
		matched := slices.IndexFunc(receives, func(r *operation) bool { return r.Canceled })
		if matched < 0 {
			matched = count
		}
		for k, r := range receives[matched:] {
			if !r.Canceled {
				w.Fatalf("receive %d has matched, and receive %d, which is older, was withdrawn", matched+k, matched)
			}
		}
		for k, s := range sends {
			var r *operation
			if k < matched {
				r = receives[k]
			} else {
				r = b.receive(a, m, make([]byte, n))
			}
			r.mustGet(a, 1, pattern(k, n), s)
		}
	}
}
