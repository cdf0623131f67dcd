package mtltest

import (
	"slices"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func cancelCases() claims {
	return claims{
		kittest.New("CanceledReceiveTakesNothing", 2, (*world).cancelTakesNothing),
		kittest.New("CancelOfWhatIsOverDoesNothing", 2, (*world).cancelOver),
		kittest.New("CancelInARaceIsCertain", 2, (*world).cancelRace),
		kittest.New("CancelReachesWhatWaitsForRoom", 2, (*world).cancelMany),
	}
}

func (o *operation) cancel() { o.n.do(func() { o.n.module.Cancel(&o.Op) }) }

func (w *world) cancelTakesNothing() {
	a, b := w.nodes[0], w.nodes[1]
	for i, from := range []*node{nil, a} {
		m := envelope{cid: 4, tag: int32(i)}
		buf := make([]byte, 8)
		r := b.receive(from, m, buf)
		r.cancel()
		if r.ended() {
			w.Fatalf("Cancel called Done itself")
		}
		w.all(r)
		if !r.Canceled {
			w.Fatalf("it was not canceled: %+v", r.Result)
		}
		w.exchange(a, b, m, pattern(1, 8))
		w.Same("the buffer of a canceled receive", buf, make([]byte, 8))
	}
}

func (w *world) cancelOver() {
	a, b := w.nodes[0], w.nodes[1]
	m := envelope{cid: 4, tag: 1}
	r := b.receive(a, m, make([]byte, 8))
	w.all(r, a.send(b, m, pattern(1, 8)))
	r.cancel()
	// Another operation may use what the first one used.
	next := b.receive(a, m, make([]byte, 8))
	r.cancel()
	w.quiet()
	if next.ended() {
		w.Fatalf("Cancel of an operation that is over ended another: %+v", next.Result)
	}
	next.gets(a, 1, pattern(2, 8), a.send(b, m, pattern(2, 8)))
}

// cancelRace cancels receives while their messages are on the way: each message
// is received exactly once, in order.
func (w *world) cancelRace() {
	a, b := w.nodes[0], w.nodes[1]
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
		r.cancel() // twice does nothing
		w.all(r)
		if r.Canceled {
			r = b.receive(a, m, make([]byte, n))
		}
		r.gets(a, 1, pattern(i, n), s)
	}
}

func (w *world) cancelMany() {
	a, b := w.nodes[0], w.nodes[1]
	const count = 5000 // more than the queues of most networks take
	var receives []*operation
	for i := range count {
		receives = append(receives, b.receive(nil, envelope{cid: 4, tag: int32(i % 7)}, make([]byte, 8)))
	}
	for _, r := range slices.Backward(receives) {
		r.cancel()
	}
	w.all(receives...)
	for i, r := range receives {
		if !r.Canceled {
			w.Fatalf("receive %d was not canceled: %+v", i, r.Result)
		}
	}
	w.exchange(a, b, envelope{cid: 4, tag: 1, mode: mtl.Synchronous}, pattern(1, 8))
}
