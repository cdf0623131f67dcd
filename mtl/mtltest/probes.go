package mtltest

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func probeCases() claims {
	return claims{
		twoNodes("ProbeTellsAndLeavesTheMessage", (*world).probeLeaves),
		kittest.New("ProbeFindsOnlyWhatItAsksFor", 3, (*world).probeSelects),
		twoNodes("ClaimedMessageIsNobodyElses", (*world).claimTakes),
		twoNodes("ClaimedMessageMayBeTruncated", (*world).claimTruncates),
		twoNodes("ClaimedSynchronousMessageIsAnswered", (*world).claimAnswers),
		kittest.New("ClaimsOfManySendersKeepTheirSource", 3, (*world).claimSources),
		twoNodes("ProbesFindWhatManyReceivesLeave", (*world).probeBehind),
	}
}

// found checks the result of a probe.
func (o *operation) found(from *node, tag int32, n int) {
	if !o.Found || o.Source != int32(from.rank) || o.Tag != tag || o.Bytes != int64(n) {
		o.n.w.Fatalf("rank %d sent %d bytes with tag %d, and a probe says %+v", from.rank, n, tag, o.Result)
	}
}

func (w *world) probeLeaves(a, b *node) {
	for i, n := range []int{0, 8, 5000, 100000, 1 << 20} {
		m := envelope{cid: 4, tag: int32(i)}
		if p := b.probeOnce(nil, m, false); p.Found {
			w.Fatalf("a probe found a message that was not sent: %+v", p.Result)
		}
		s := a.send(b, m, pattern(i, n))
		for _, from := range []*node{nil, a, nil} {
			b.probeUntilFound(from, m, false).found(a, m.tag, n)
		}
		b.receive(a, m, make([]byte, n)).mustGet(a, m.tag, pattern(i, n), s)
	}
}

func (w *world) probeSelects() {
	a, b, c := w.nodesByRank[0], w.nodesByRank[1], w.nodesByRank[2]
	m := envelope{cid: 4, tag: 6}
	s := a.send(c, m, pattern(1, 10))
	c.probeUntilFound(nil, envelope{cid: 4, tag: mtl.AnyTag}, false)
	for _, wrong := range []struct {
		from *node
		m    envelope
	}{{b, m}, {nil, envelope{cid: 4, tag: 7}}, {a, envelope{cid: 5, tag: 6}}, {nil, envelope{cid: 5, tag: mtl.AnyTag}}} {
		for _, claim := range []bool{false, true} {
			if p := c.probeOnce(wrong.from, wrong.m, claim); p.Found {
				w.Fatalf("a probe for %+v found %+v", wrong.m, p.Result)
			}
		}
	}
	w.awaitSuccess(s, c.receive(nil, m, make([]byte, 10)))
}

// claim claims a message, and returns its operation.
func (n *node) claim(from *node, m envelope) *operation {
	o := n.probeUntilFound(from, m, true)
	o.isOver = false
	return o
}

func (o *operation) receiveClaimed(buf []byte) *operation {
	o.buf = buf
	var err error
	o.n.withLock(func() { err = o.n.module.RecvClaimed(&o.Op, buf) })
	o.n.w.Check(err)
	return o
}

func (w *world) claimTakes(a, b *node) {
	m := envelope{cid: 4, tag: 1}
	for _, n := range []int{0, 8, 5000, 100000, 1 << 20} {
		var sends []*operation
		for i := range 3 {
			sends = append(sends, a.send(b, m, pattern(i, n)))
		}
		first, second := b.claim(nil, m), b.claim(a, m)
		b.receive(a, m, make([]byte, n)).mustGet(a, 1, pattern(2, n))
		// Not in the order of the claims.
		second.receiveClaimed(make([]byte, n))
		first.receiveClaimed(make([]byte, n))
		first.mustGet(a, 1, pattern(0, n), sends...)
		second.mustGet(a, 1, pattern(1, n))
	}
}

func (w *world) claimTruncates(a, b *node) {
	for i, n := range []int{8, 5000, 100000, 1 << 20} {
		m := envelope{cid: 4, tag: int32(i)}
		s := a.send(b, m, pattern(i, n))
		o := b.claim(nil, m).receiveClaimed(make([]byte, n/2))
		w.awaitEnd(o, s)
		w.Check(s.Err)
		w.Is("a claimed message that is too long", o.Err, framework.ErrTruncate)
		if o.Bytes != int64(n) {
			w.Fatalf("%d bytes into %d: %+v", n, n/2, o.Result)
		}
	}
}

func (w *world) claimAnswers(a, b *node) {
	for i, from := range []*node{nil, a} {
		m := envelope{cid: 4, tag: int32(i), mode: mtl.Synchronous}
		s := a.send(b, m, pattern(i, 100))
		b.probeUntilFound(from, m, false)
		if s.hasEnded() {
			w.Fatalf("a probe ended a synchronous send")
		}
		b.claim(from, m).receiveClaimed(make([]byte, 100)).mustGet(a, m.tag, pattern(i, 100), s)
	}
}

func (w *world) claimSources() {
	c := w.nodesByRank[2]
	for i := range 20 {
		n := w.nodesByRank[i%2]
		s := n.send(c, envelope{cid: 4, tag: int32(i)}, pattern(i, i*300))
		o := c.claim(nil, envelope{cid: 4, tag: mtl.AnyTag})
		o.found(n, int32(i), i*300)
		o.receiveClaimed(make([]byte, i*300)).mustGet(n, int32(i), pattern(i, i*300), s)
	}
}

// probeBehind posts more receives of one id than any network holds. Their messages are sent after the probes, so the probes must not wait for
// them. A probe finds only messages that match no receive, also behind messages that do.
func (w *world) probeBehind(a, b *node) {
	const count = 10000
	m := func(tag int32) envelope { return envelope{cid: 5, tag: tag} }
	var ops []*operation
	for i := range count {
		ops = append(ops, b.receive([]*node{nil, a}[i%2], m(int32(i%50)), make([]byte, 8)))
	}
	const served = 40 // Receives whose messages are sent before the probes.
	lengths := []int{0, 8, 5000, 100000}
	for i, n := range lengths {
		late := envelope{cid: 5, tag: 60 + int32(i), mode: mtl.Mode(i % 2)}
		owned := a.send(b, m(int32(served+i)), pattern(served+i, 8))
		from, sent := []*node{nil, a}[i%2], a.send(b, late, pattern(i, n))
		late.tag = []int32{late.tag, mtl.AnyTag}[i/2]
		b.probeUntilFound(from, late, false).found(a, 60+int32(i), n)
		b.claim(from, late).receiveClaimed(make([]byte, n)).mustGet(a, 60+int32(i), pattern(i, n), sent, owned)
	}
	for i := range count {
		if i < served || i >= served+len(lengths) {
			ops = append(ops, a.send(b, m(int32(i%50)), pattern(i, 8)))
		}
		if i%500 == 0 {
			w.probeNothing(b)
		}
	}
	w.awaitSuccess(ops...)
	for i, r := range ops[:count] {
		r.check(a, int32(i%50), pattern(i, 8))
	}
}

// probeNothing probes while every message matches a receive.
func (w *world) probeNothing(b *node) {
	for _, claim := range []bool{false, true} {
		if p := b.probeOnce(nil, envelope{cid: 5, tag: mtl.AnyTag}, claim); p.Found {
			w.Fatalf("a probe found what belongs to a receive posted before it: %+v", p.Result)
		}
	}
}
