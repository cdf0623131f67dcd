package mtltest

import (
	"errors"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/progress"
)

func peerCases() claims {
	return claims{
		twoNodes("GarbageAddressesAreRefused", (*world).garbageAddresses),
		twoNodes("SamePeerHasOneEndpoint", (*world).oneEndpoint),
		twoNodes("NoEndpointIsNobody", (*world).noEndpoint),
		kittest.New("DifferentOffersAreBothNamed", 2, (*world).differentOffers),
		kittest.New("ForgetEndsTheSendsToThatPeerOnly", 3, (*world).forgetPeer),
		twoNodes("PeerThatReopensIsAnother", (*world).newIncarnation),
	}
}

func (w *world) garbageAddresses(a, b *node) {
	good := b.module.Blob()
	for _, blob := range [][]byte{nil, {}, {0}, []byte("no address"), good[:len(good)/2], append([]byte{0xff}, good...)} {
		p := b.peer()
		p.Blob = blob
		var reach, connect error
		a.withLock(func() {
			reach = a.module.Reach(p)
			_, connect = a.module.Connect(p)
		})
		if reach == nil || connect == nil {
			w.Fatalf("%q is accepted as an address: Reach returns %v, Connect %v", blob, reach, connect)
		}
	}
	w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
}

func (w *world) oneEndpoint(a, b *node) {
	first, second, own := a.endpointOf(b), a.endpointOf(b), a.endpointOf(a)
	if first != second || own == first {
		w.Fatalf("rank 1 is endpoint %d and %d, this process %d", first, second, own)
	}
	var reach error
	a.withLock(func() { reach = a.module.Reach(b.peer()) })
	w.Check(reach)
}

// noEndpoint uses an endpoint that was never set, after others were.
func (w *world) noEndpoint(a, b *node) {
	w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
	var errs [4]error
	a.withLock(func() {
		e, m := mtl.Envelope{CID: 1, Source: 1, Tag: 1}, a.module
		_, errs[0] = m.Send(new(mtl.Op), mtl.NoEndpoint, e, nil, mtl.Standard)
		_, errs[1] = m.SendControl(new(mtl.Op), mtl.NoEndpoint, []byte{1})
		errs[2] = m.Recv(new(mtl.Op), mtl.NoEndpoint, e, nil)
		errs[3] = m.Probe(new(mtl.Op), mtl.NoEndpoint, e, false)
	})
	for i, what := range []string{"Send", "SendControl", "Recv", "Probe"} {
		if errs[i] == nil {
			w.Fatalf("%s with no endpoint returned no error", what)
		}
	}
	w.exchange(a, b, envelope{cid: 1, tag: 2}, pattern(2, 8))
}

func (w *world) differentOffers() {
	if w.subject.Other == nil {
		w.Skipf("the subject has no other offer")
	}
	a := w.nodesByRank[0]
	other := w.open(1, w.subject.Other, progress.Options{})
	mine, theirs := a.module.Offer(), other.module.Offer()
	if mine == theirs {
		w.Fatalf("both offer %q", mine)
	}
	var reach, connect error
	a.withLock(func() {
		reach = a.module.Reach(other.peer())
		_, connect = a.module.Connect(other.peer())
	})
	for _, err := range []error{reach, connect} {
		if err == nil || !strings.Contains(err.Error(), mine) || !strings.Contains(err.Error(), theirs) {
			w.Fatalf("%q meets %q: %v", mine, theirs, err)
		}
	}
}

var errForgotten = errors.New("forgotten by the test")

// forgetPeer forgets a peer that never polls, with sends in progress.
func (w *world) forgetPeer() {
	a, b, c := w.nodesByRank[0], w.nodesByRank[1], w.nodesByRank[2]
	w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
	to := a.endpointOf(b)
	var ops []*operation
	for i, mode := range []mtl.Mode{mtl.Standard, mtl.Synchronous, mtl.Standard, mtl.Synchronous} {
		ops = append(ops, a.send(b, envelope{cid: 1, tag: 2, mode: mode}, pattern(i, []int{int(min(2<<20, a.module.Caps().MaxMessage)), 8}[i%2])))
	}
	toC := a.send(c, envelope{cid: 1, tag: 2, mode: mtl.Synchronous}, pattern(9, 100))
	for range 100 {
		w.pollAll(b)
	}
	pending := slices.DeleteFunc(ops, (*operation).hasEnded)
	a.withLock(func() { a.module.Forget(to, errForgotten) })
	if w.countPending(pending) != len(pending) {
		w.Fatalf("Forget called Done itself")
	}
	w.until("sends to a process that is gone", func() bool { return w.countPending(pending) == 0 }, b)
	for _, o := range pending {
		w.Is("a send to a process that is gone", o.Err, errForgotten)
	}
	if len(pending) < 2 {
		w.Fatalf("only %d sends were pending, and two were synchronous", len(pending))
	}
	var after error
	late := a.operation()
	a.withLock(func() {
		_, after = a.module.Send(&late.Op, to, mtl.Envelope{CID: 1, Source: 0, Tag: 3}, nil, mtl.Standard)
	})
	w.Is("a send after Forget", after, errForgotten)
	// The peer is alive, and the messages that it receives must do no harm.
	c.receive(a, envelope{cid: 1, tag: 2}, make([]byte, 100)).mustGet(a, 2, pattern(9, 100), toC)
}

func (w *world) newIncarnation(a, b *node) {
	for i := range 3 {
		w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(i, 3000))
		w.exchange(b, a, envelope{cid: 1, tag: 1, mode: mtl.Synchronous}, pattern(i, 8))
		old := a.endpointOf(b)
		w.idle(b)
		w.Check(b.close())
		a.withLock(func() { a.module.Forget(old, errForgotten) })
		b = w.reopen(1, progress.Options{})
		if a.endpointOf(b) == old {
			w.Fatalf("a process that opened again has the endpoint of its earlier incarnation")
		}
	}
	w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(7, 8))
}
