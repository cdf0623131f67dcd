package mtltest

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func deadCases() claims {
	return claims{
		kittest.New("MessagesOfTheDeadAreReceivedWholeOrNotAtAll", 3, (*world).deadBefore),
		kittest.New("MessagesOfTheForgottenAreReceivedWholeOrNotAtAll", 3, (*world).deadAndForgotten),
	}
}

// deadBefore has the network alone know of a death, or not even that.
func (w *world) deadBefore() { w.dead(nil) }

func (w *world) deadAndForgotten() { w.dead(errGone) }

// dead has messages of every length with a process whose sender ends: claimed before, and
// not yet. Then it forgets the sender, if there is a reason.
func (w *world) dead(why error) {
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
	w.exchange(b, a, envelope{cid: 1, tag: 1}, pattern(1, 8))
	from, to := a.to(b), []*node{b, nil}
	caps := a.module.Caps()
	type left struct {
		*operation
		tag  int32
		sent []byte
	}
	var claimed, there []left
	for _, n := range []int{0, 8, int(min(caps.Eager, 1<<20)), int(min(caps.Eager, 1<<20) + 1), 100_000, 1 << 20} {
		for i := range 3 * len(to) {
			l := left{tag: int32(10 + len(claimed) + len(there)), sent: pattern(i, n)}
			b.send(a, envelope{cid: 4, tag: l.tag}, l.sent)
			if i < len(to) {
				l.operation = a.claim(to[i], envelope{cid: 4, tag: l.tag})
				claimed = append(claimed, l)
			} else {
				a.find(nil, envelope{cid: 4, tag: l.tag}, false)
				there = append(there, l)
			}
		}
	}
	a.dead = map[int]bool{1: why != nil}
	w.Check(b.close())
	for range 1000 { // so that a hears of it
		a.poll()
	}
	if why != nil {
		a.do(func() { a.module.Forget(from, why) })
	}
	// Another one takes the place of the dead wherever the network keeps such things.
	w.exchange(c, a, envelope{cid: 4, tag: 1}, pattern(3, 1<<20))
	ends := func(l left, err error) {
		if err == nil {
			w.over(l.operation)
			err = l.Err
		}
		switch {
		case err == nil:
			l.check(b, l.tag, l.sent)
		case int64(len(l.sent)) <= caps.Eager:
			w.Fatalf("%d bytes from a process that has died, which arrived whole: %w", len(l.sent), err)
		default:
			w.Is("a message that is lost", err, framework.ErrTransport)
		}
	}
	envelopeOf := func(l left, i int) (mtl.Endpoint, mtl.Envelope) {
		if i%2 == 0 {
			return from, mtl.Envelope{CID: 4, Source: 1, Tag: l.tag}
		}
		return mtl.NoEndpoint, mtl.Envelope{CID: 4, Source: mtl.AnySource, Tag: l.tag}
	}
	for i, l := range there {
		var err error
		l.operation = a.operation()
		l.buf = make([]byte, len(l.sent))
		ep, e := envelopeOf(l, i)
		if why == nil && i%4 < 2 { // of the forgotten nobody receives otherwise than by claims
			a.do(func() { err = a.module.Recv(&l.Op, ep, e, l.buf) })
			ends(l, err)
			continue
		}
		a.do(func() { err = a.module.Probe(&l.Op, ep, e, true) })
		w.Check(err)
		w.all(l.operation)
		l.found(b, l.tag, len(l.sent))
		l.over = false
		claimed = append(claimed, l)
	}
	for _, l := range claimed {
		var err error
		l.buf = make([]byte, len(l.sent))
		a.do(func() { err = a.module.RecvClaimed(&l.Op, l.buf) })
		ends(l, err)
	}
	w.exchange(c, a, envelope{cid: 4, tag: 2}, pattern(4, 1<<20))
	w.idle(a)
	w.Check(a.close())
}
