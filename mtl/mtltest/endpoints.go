package mtltest

import (
	"slices"

	"github.com/ferrympi/ferry/mtl"
)

func endpointCases() claims {
	return claims{
		twoNodes("EveryBitOfTheEndpointIsMatched", (*world).everyEndpointBit),
		twoNodes("AnySourceTakesMessagesOfAllEndpointsInOrder", (*world).anyEndpoint),
		twoNodes("SynchronousSendsOfEndpointsAreAnsweredEach", (*world).synchronousEndpoints),
		twoNodes("ProbesFindTheEndpointThatTheyAskFor", (*world).probeEndpoints),
		twoNodes("ManyReceivesFromEndpointsMatchTheirs", (*world).manyEndpoints),
	}
}

// members returns ranks of one process. Their endpoints are 0, each single bit of the matched width, and all bits.
func (w *world) members() []member {
	caps := w.nodesByRank[0].module.Caps()
	bits := caps.EndpointBits
	switch {
	case caps.MatchesRank:
		bits = 16
	case bits == 0:
		w.Skipf("the module matches processes, and has no bits for endpoints")
	}
	all := []member{{}}
	for bit := range bits {
		all = append(all, member{endpoint: 1 << bit})
	}
	if bits > 1 {
		all = append(all, member{endpoint: uint16(1<<bits - 1)})
	}
	for i := range all {
		all[i].index = i
	}
	return all
}

// everyEndpointBit posts a receive for each endpoint, before or after the arrival of the messages, which are in reverse order.
func (w *world) everyEndpointBit(a, b *node) {
	all := w.members()
	id := uint32(1<<a.module.Caps().CIDBits - 1)
	for _, early := range []bool{true, false} {
		receives := make([]*operation, len(all))
		post := func() {
			for i, m := range all {
				receives[i] = b.receive(a, envelope{cid: id, tag: []int32{5, mtl.AnyTag}[i%2], member: m}, make([]byte, 4))
			}
		}
		if early {
			post()
		}
		var sends []*operation
		for i, m := range slices.Backward(all) {
			sends = append(sends, a.send(b, envelope{cid: id, tag: 5, member: m}, pattern(i, 4)))
		}
		if !early {
			w.drainNetwork()
			post()
		}
		w.awaitSuccess(append(sends, receives...)...)
		for i, r := range receives {
			r.checkMember(a, all[i], 5, pattern(i, 4))
		}
	}
}

// anyEndpoint receives from any source. An older receive from one endpoint stays posted meanwhile.
func (w *world) anyEndpoint(a, b *node) {
	all := w.members()
	last := all[len(all)-1]
	for _, early := range []bool{true, false} {
		const rounds = 3
		known := b.receive(a, envelope{cid: 2, tag: 9, member: last}, make([]byte, 8))
		var sends, receives []*operation
		post := func() {
			for range rounds * len(all) {
				receives = append(receives, b.receive(nil, envelope{cid: 2, tag: mtl.AnyTag}, make([]byte, 8)))
			}
		}
		if early {
			post()
		}
		for i := range rounds * len(all) {
			sends = append(sends, a.send(b, envelope{cid: 2, tag: 5, member: all[i%len(all)]}, pattern(i, 8)))
		}
		if !early {
			w.drainNetwork()
			post()
		}
		w.awaitSuccess(append(sends, receives...)...)
		for i, r := range receives {
			r.checkMember(a, all[i%len(all)], 5, pattern(i, 8))
		}
		w.awaitSuccess(known, a.send(b, envelope{cid: 2, tag: 9, member: last}, pattern(1, 8)))
		known.checkMember(a, last, 9, pattern(1, 8))
	}
}

// synchronousEndpoints receives messages with one tag in reverse order, alternately by receives and claims, and the last one by a receive from any
// source.
func (w *world) synchronousEndpoints(a, b *node) {
	all := w.members()
	all = all[:min(4, len(all))]
	m := func(i int) envelope { return envelope{cid: 4, tag: 3, mode: mtl.Synchronous, member: all[i]} }
	var sends []*operation
	for i := range all {
		sends = append(sends, a.send(b, m(i), pattern(i, 8)))
	}
	for i := range slices.Backward(all) {
		var r *operation
		switch {
		case i == 0:
			r = b.receive(nil, m(i), make([]byte, 8))
		case i%2 == 0:
			r = b.claim(a, m(i)).receiveClaimed(make([]byte, 8))
		default:
			r = b.receive(a, m(i), make([]byte, 8))
		}
		w.awaitSuccess(r, sends[i])
		r.checkMember(a, all[i], 3, pattern(i, 8))
		w.drainNetwork()
		if n := w.countPending(sends[:i]); n != i {
			w.Fatalf("%d synchronous sends of other endpoints ended with that of endpoint %d", i-n, all[i].endpoint)
		}
	}
}

func (w *world) probeEndpoints(a, b *node) {
	all := w.members()
	absent, there := all[len(all)-1], all[:len(all)-1]
	m := func(i int) envelope { return envelope{cid: 4, tag: 6, member: there[i]} }
	var sends []*operation
	for i := range there {
		sends = append(sends, a.send(b, m(i), pattern(i, 10+i)))
	}
	for i := range there { // All have arrived.
		b.probeUntilFound(a, m(i), false)
	}
	for _, claim := range []bool{false, true} {
		if p := b.probeOnce(a, envelope{cid: 4, tag: mtl.AnyTag, member: absent}, claim); p.Found {
			w.Fatalf("a probe for endpoint %d found %+v", absent.endpoint, p.Result)
		}
	}
	for i := range slices.Backward(there) {
		found := b.probeUntilFound(a, m(i), false)
		if found.Source != a.source(there[i]) || found.Bytes != int64(10+i) {
			w.Fatalf("a probe for endpoint %d found %+v", there[i].endpoint, found.Result)
		}
		o := b.claim(a, m(i)).receiveClaimed(make([]byte, 10+i))
		w.awaitSuccess(o, sends[i])
		o.checkMember(a, there[i], 6, pattern(i, 10+i))
	}
}

// manyEndpoints posts more receives with one id than most networks hold, alternately from any source and from two endpoints.
func (w *world) manyEndpoints(a, b *node) {
	const count = 6000
	all := w.members()
	sender := func(i int) member { return all[i/2%2] }
	tag := func(i int) int32 { return int32(i % 50) }
	var receives, sends []*operation
	for i := range count {
		from := []*node{nil, a}[i/4%2]
		receives = append(receives, b.receive(from, envelope{cid: 5, tag: tag(i), member: sender(i)}, make([]byte, 8)))
	}
	for i := range count {
		sends = append(sends, a.send(b, envelope{cid: 5, tag: tag(i), member: sender(i)}, pattern(i, 8)))
	}
	w.awaitSuccess(append(sends, receives...)...)
	for i, r := range receives {
		r.checkMember(a, sender(i), tag(i), pattern(i, 8))
	}
}
