package mtltest

import (
	"context"
	"fmt"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func cancelCases() claims {
	return claims{
		kittest.Of("CanceledReceiveTakesNothing", 2, cancelTakesNothing),
		kittest.Of("CancelOfWhatIsOverDoesNothing", 2, cancelOver),
		kittest.Of("CancelInARaceIsCertain", 2, cancelRace),
		kittest.Of("CancelReachesWhatWaitsForRoom", 2, cancelMany),
	}
}

func (o *operation) cancel() { o.n.do(func() { o.n.module.Cancel(&o.Op) }) }

func cancelTakesNothing(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i, from := range []*node{nil, a} {
		m := envelope{cid: 4, tag: int32(i)}
		buf := make([]byte, 8)
		r, err := b.receive(from, m, buf)
		if err != nil {
			return err
		}
		r.cancel()
		if r.ended() {
			return fmt.Errorf("Cancel called Done itself")
		}
		if err := w.all(ctx, r); err != nil {
			return err
		}
		if !r.Canceled {
			return fmt.Errorf("it was not canceled: %+v", r.Result)
		}
		if err := w.exchange(ctx, a, b, m, pattern(1, 8)); err != nil {
			return err
		}
		if string(buf) != string(make([]byte, 8)) {
			return fmt.Errorf("the buffer of a canceled receive was written to")
		}
	}
	return nil
}

func cancelOver(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	m := envelope{cid: 4, tag: 1}
	r, err := b.receive(a, m, make([]byte, 8))
	if err != nil {
		return err
	}
	s, err := a.send(b, m, pattern(1, 8))
	if err == nil {
		err = w.all(ctx, r, s)
	}
	if err != nil {
		return err
	}
	r.cancel()
	// Another operation may use what the first one used.
	next, err := b.receive(a, m, make([]byte, 8))
	if err != nil {
		return err
	}
	r.cancel()
	if err := w.quiet(ctx); err != nil {
		return err
	}
	if next.ended() {
		return fmt.Errorf("Cancel of an operation that is over ended another: %+v", next.Result)
	}
	s, err = a.send(b, m, pattern(2, 8))
	if err == nil {
		err = w.all(ctx, next, s)
	}
	if err == nil {
		err = next.check(a, 1, pattern(2, 8))
	}
	return err
}

// cancelRace cancels receives while their messages are on the way: each message
// is received exactly once, in order.
func cancelRace(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	const rounds = 200
	m := envelope{cid: 4, tag: 1}
	next, canceled := 0, 0
	for i := range rounds {
		n := 20
		if i%4 == 3 {
			n = 100000
		}
		r, err := b.receive([]*node{nil, a}[i%2], m, make([]byte, n))
		if err != nil {
			return err
		}
		s, err := a.send(b, m, pattern(i, n))
		if err != nil {
			return err
		}
		for range i % 5 {
			w.pollAll()
		}
		r.cancel()
		r.cancel() // twice does nothing
		if err := w.all(ctx, r); err != nil {
			return err
		}
		if r.Canceled {
			canceled++
			if r, err = b.receive(a, m, make([]byte, n)); err != nil {
				return err
			}
		}
		if err := w.all(ctx, r, s); err != nil {
			return err
		}
		if err := r.check(a, 1, pattern(next, n)); err != nil {
			return fmt.Errorf("message %d, %d receives were canceled so far: %w", next, canceled, err)
		}
		next++
	}
	return nil
}

func cancelMany(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	const count = 5000 // more than the queues of most networks take
	var receives []*operation
	for i := range count {
		r, err := b.receive(nil, envelope{cid: 4, tag: int32(i % 7)}, make([]byte, 8))
		if err != nil {
			return err
		}
		receives = append(receives, r)
	}
	for i := range count { // the last ones first
		receives[count-1-i].cancel()
	}
	if err := w.all(ctx, receives...); err != nil {
		return err
	}
	for i, r := range receives {
		if !r.Canceled {
			return fmt.Errorf("receive %d was not canceled: %+v", i, r.Result)
		}
	}
	return w.exchange(ctx, a, b, envelope{cid: 4, tag: 1, mode: mtl.Synchronous}, pattern(1, 8))
}
