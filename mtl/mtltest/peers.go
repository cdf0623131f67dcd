package mtltest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/progress"
)

func peerCases() claims {
	return claims{
		kittest.Of("GarbageAddressesAreRefused", 2, garbage),
		kittest.Of("SamePeerHasOneEndpoint", 2, oneEndpoint),
		kittest.Of("NoEndpointIsNobody", 2, noEndpoint),
		kittest.Of("DifferentOffersAreBothNamed", 2, differentOffers),
		kittest.Of("ForgetEndsTheSendsToThatPeerOnly", 3, forget),
		kittest.Of("PeerThatReopensIsAnother", 2, reopen),
	}
}

func garbage(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	good := b.module.Blob()
	bad := [][]byte{nil, {}, {0}, []byte("no address"), good[:len(good)/2], append([]byte{0xff}, good...)}
	for _, blob := range bad {
		p := b.peer()
		p.Blob = blob
		var reach, connect error
		a.do(func() {
			reach = a.module.Reach(p)
			_, connect = a.module.Connect(p)
		})
		if reach == nil || connect == nil {
			return fmt.Errorf("%q is taken for an address: Reach says %v, Connect %v", blob, reach, connect)
		}
	}
	return w.exchange(ctx, a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
}

func oneEndpoint(_ context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	first, err := a.to(b)
	if err != nil {
		return err
	}
	second, err := a.to(b)
	if err != nil {
		return err
	}
	own, err := a.to(a)
	if err != nil {
		return err
	}
	if first != second || own == first {
		return fmt.Errorf("rank 1 is endpoint %d and %d, this process %d", first, second, own)
	}
	var reach error
	a.do(func() { reach = a.module.Reach(b.peer()) })
	return reach
}

// noEndpoint asks things of an endpoint that was never set, after others have been.
func noEndpoint(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	if err := w.exchange(ctx, a, b, envelope{cid: 1, tag: 1}, pattern(1, 8)); err != nil {
		return err
	}
	var errs [4]error
	a.do(func() {
		e, m := mtl.Envelope{CID: 1, Source: 1, Tag: 1}, a.module
		_, errs[0] = m.Send(new(mtl.Op), mtl.NoEndpoint, e, nil, mtl.Standard)
		_, errs[1] = m.SendControl(new(mtl.Op), mtl.NoEndpoint, []byte{1})
		errs[2] = m.Recv(new(mtl.Op), mtl.NoEndpoint, e, nil)
		errs[3] = m.Probe(new(mtl.Op), mtl.NoEndpoint, e, false)
	})
	for i, what := range []string{"Send", "SendControl", "Recv", "Probe"} {
		if errs[i] == nil {
			return fmt.Errorf("%s with no endpoint: it was not refused", what)
		}
	}
	return w.exchange(ctx, a, b, envelope{cid: 1, tag: 2}, pattern(2, 8))
}

func differentOffers(ctx context.Context, w *world) error {
	if w.subject.Other == nil {
		return fmt.Errorf("%w: the subject has no other offer", ErrSkip)
	}
	a := w.nodes[0]
	other, err := w.open(ctx, 1, w.subject.Other, progress.Options{})
	if err != nil {
		return err
	}
	w.extra = append(w.extra, other)
	if a.module.Offer() == other.module.Offer() {
		return fmt.Errorf("both offer %q", a.module.Offer())
	}
	var reach, connect error
	a.do(func() {
		reach = a.module.Reach(other.peer())
		_, connect = a.module.Connect(other.peer())
	})
	for _, err := range []error{reach, connect} {
		if err == nil || !strings.Contains(err.Error(), a.module.Offer()) || !strings.Contains(err.Error(), other.module.Offer()) {
			return fmt.Errorf("%q meets %q: %v", a.module.Offer(), other.module.Offer(), err)
		}
	}
	return nil
}

var errGone = errors.New("it is gone")

// forget has a peer that never polls, and sends to it that can't end.
func forget(ctx context.Context, w *world) error {
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	if err := w.exchange(ctx, a, b, envelope{cid: 1, tag: 1}, pattern(1, 8)); err != nil {
		return err
	}
	to, err := a.to(b)
	if err != nil {
		return err
	}
	var ops []*operation
	for i, m := range []mtl.Mode{mtl.Standard, mtl.Synchronous, mtl.Standard, mtl.Synchronous} {
		s, err := a.send(b, envelope{cid: 1, tag: 2, mode: m}, pattern(i, []int{2 << 20, 8}[i%2]))
		if err != nil {
			return err
		}
		ops = append(ops, s)
	}
	toC, err := a.send(c, envelope{cid: 1, tag: 2, mode: mtl.Synchronous}, pattern(9, 100))
	if err != nil {
		return err
	}
	for range 100 {
		w.pollAll(b)
	}
	var pending []*operation
	for _, o := range ops {
		if !o.ended() {
			pending = append(pending, o)
		}
	}
	a.do(func() { a.module.Forget(to, errGone) })
	for _, o := range pending {
		if o.ended() {
			return errors.New("Forget called Done itself")
		}
	}
	if err := w.until(ctx, "sends to who is gone", func() bool { return w.pending(pending) == 0 }, b); err != nil {
		return err
	}
	for _, o := range pending {
		if !errors.Is(o.Err, errGone) {
			return fmt.Errorf("a send to who is gone: %v", o.Err)
		}
	}
	if len(pending) < 2 {
		return fmt.Errorf("only %d sends were pending, and two were synchronous", len(pending))
	}
	var after error
	late := a.operation()
	a.do(func() {
		_, after = a.module.Send(&late.Op, to, mtl.Envelope{CID: 1, Source: 0, Tag: 3}, nil, mtl.Standard)
	})
	if !errors.Is(after, errGone) {
		return fmt.Errorf("a send after Forget: %v", after)
	}
	r, err := c.receive(a, envelope{cid: 1, tag: 2}, make([]byte, 100))
	if err != nil {
		return err
	}
	// The peer was not gone after all, and what it gets must do no harm.
	if err := w.all(ctx, r, toC); err != nil {
		return err
	}
	return r.check(a, 2, pattern(9, 100))
}

// reopen has a process close its module and open another one.
func reopen(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i := range 3 {
		if err := w.exchange(ctx, a, b, envelope{cid: 1, tag: 1}, pattern(i, 3000)); err != nil {
			return err
		}
		if err := w.exchange(ctx, b, a, envelope{cid: 1, tag: 1, mode: mtl.Synchronous}, pattern(i, 8)); err != nil {
			return err
		}
		old, err := a.to(b)
		if err != nil {
			return err
		}
		if err := w.until(ctx, "what is on its way", func() (idle bool) {
			b.do(func() { idle = b.module.Idle() })
			return idle
		}); err != nil {
			return err
		}
		if err := b.close(); err != nil {
			return err
		}
		a.do(func() { a.module.Forget(old, errGone) })
		w.extra = append(w.extra, b)
		if b, err = w.open(ctx, 1, w.subject.Component, progress.Options{}); err != nil {
			return err
		}
		w.nodes[1] = b
		again, err := a.to(b)
		if err != nil {
			return err
		}
		if again == old {
			return errors.New("who has opened again has the endpoint of who was there before")
		}
	}
	return w.exchange(ctx, a, b, envelope{cid: 1, tag: 1}, pattern(7, 8))
}
