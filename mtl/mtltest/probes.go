package mtltest

import (
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func probeCases() claims {
	return claims{
		kittest.Of("ProbeTellsAndLeavesTheMessage", 2, probeLeaves),
		kittest.Of("ProbeFindsOnlyWhatItAsksFor", 3, probeSelects),
		kittest.Of("ClaimedMessageIsNobodyElses", 2, claimTakes),
		kittest.Of("ClaimedMessageMayBeTruncated", 2, claimTruncates),
		kittest.Of("ClaimedSynchronousMessageIsAnswered", 2, claimAnswers),
		kittest.Of("ClaimsOfManySendersKeepTheirSource", 3, claimSources),
	}
}

func (o *operation) found(from *node, tag int32, n int) error {
	if !o.Found || o.Source != int32(from.rank) || o.Tag != tag || o.Bytes != int64(n) {
		return fmt.Errorf("rank %d sent %d bytes with tag %d, and a probe says %+v", from.rank, n, tag, o.Result)
	}
	return nil
}

func probeLeaves(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i, n := range []int{0, 8, 5000, 100000, 1 << 20} {
		m := envelope{cid: 4, tag: int32(i)}
		p, err := b.probe(ctx, nil, m, false)
		if err != nil {
			return err
		}
		if p.Found {
			return fmt.Errorf("a probe found what nobody has sent: %+v", p.Result)
		}
		s, err := a.send(b, m, pattern(i, n))
		if err != nil {
			return err
		}
		for _, from := range []*node{nil, a, nil} {
			p, err := b.find(ctx, from, m, false)
			if err == nil {
				err = p.found(a, m.tag, n)
			}
			if err != nil {
				return err
			}
		}
		r, err := b.receive(a, m, make([]byte, n))
		if err == nil {
			err = w.all(ctx, r, s)
		}
		if err == nil {
			err = r.check(a, m.tag, pattern(i, n))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func probeSelects(ctx context.Context, w *world) error {
	a, b, c := w.nodes[0], w.nodes[1], w.nodes[2]
	s, err := a.send(c, envelope{cid: 4, tag: 6}, pattern(1, 10))
	if err != nil {
		return err
	}
	if _, err := c.find(ctx, nil, envelope{cid: 4, tag: mtl.AnyTag}, false); err != nil {
		return err
	}
	for _, wrong := range []struct {
		from *node
		m    envelope
	}{{b, envelope{cid: 4, tag: 6}}, {nil, envelope{cid: 4, tag: 7}}, {a, envelope{cid: 5, tag: 6}}, {nil, envelope{cid: 5, tag: mtl.AnyTag}}} {
		for _, claim := range []bool{false, true} {
			p, err := c.probe(ctx, wrong.from, wrong.m, claim)
			if err != nil {
				return err
			}
			if p.Found {
				return fmt.Errorf("a probe for %+v found %+v", wrong.m, p.Result)
			}
		}
	}
	r, err := c.receive(nil, envelope{cid: 4, tag: 6}, make([]byte, 10))
	if err != nil {
		return err
	}
	return w.all(ctx, r, s)
}

// claim takes a message, and returns the operation that has it.
func (n *node) claim(ctx context.Context, from *node, m envelope) (*operation, error) {
	o, err := n.find(ctx, from, m, true)
	if err == nil {
		o.over = false
	}
	return o, err
}

func (o *operation) receiveClaimed(buf []byte) (err error) {
	o.buf = buf
	o.n.do(func() { err = o.n.module.RecvClaimed(&o.Op, buf) })
	return err
}

func claimTakes(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for _, n := range []int{0, 8, 5000, 100000, 1 << 20} {
		m := envelope{cid: 4, tag: 1}
		var ops []*operation
		for i := range 3 {
			s, err := a.send(b, m, pattern(i, n))
			if err != nil {
				return err
			}
			ops = append(ops, s)
		}
		first, err := b.claim(ctx, nil, m)
		if err != nil {
			return err
		}
		second, err := b.claim(ctx, a, m)
		if err != nil {
			return err
		}
		r, err := b.receive(a, m, make([]byte, n))
		if err != nil {
			return err
		}
		if err := w.all(ctx, r); err != nil {
			return err
		}
		// In another order than they were claimed.
		if err := errors.Join(second.receiveClaimed(make([]byte, n)), first.receiveClaimed(make([]byte, n))); err != nil {
			return err
		}
		if err := w.all(ctx, append(ops, first, second)...); err != nil {
			return err
		}
		if err := errors.Join(first.check(a, 1, pattern(0, n)), second.check(a, 1, pattern(1, n)), r.check(a, 1, pattern(2, n))); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
	}
	return nil
}

func claimTruncates(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i, n := range []int{8, 5000, 100000, 1 << 20} {
		m := envelope{cid: 4, tag: int32(i)}
		s, err := a.send(b, m, pattern(i, n))
		if err != nil {
			return err
		}
		o, err := b.claim(ctx, nil, m)
		if err == nil {
			err = o.receiveClaimed(make([]byte, n/2))
		}
		if err == nil {
			err = w.until(ctx, "a claimed message", func() bool { return o.ended() && s.ended() })
		}
		if err != nil {
			return err
		}
		if !errors.Is(o.Err, framework.ErrTruncate) || o.Bytes != int64(n) || s.Err != nil {
			return fmt.Errorf("%d bytes into %d: %+v; the send says %v", n, n/2, o.Result, s.Err)
		}
	}
	return nil
}

func claimAnswers(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i, from := range []*node{nil, a} {
		m := envelope{cid: 4, tag: int32(i), mode: mtl.Synchronous}
		s, err := a.send(b, m, pattern(i, 100))
		if err != nil {
			return err
		}
		if p, err := b.find(ctx, from, m, false); err != nil || s.ended() {
			return errors.Join(err, fmt.Errorf("a probe ended a synchronous send: %v (found %+v)", s.ended(), p.Result))
		}
		o, err := b.claim(ctx, from, m)
		if err == nil {
			err = o.receiveClaimed(make([]byte, 100))
		}
		if err == nil {
			err = w.all(ctx, o, s)
		}
		if err == nil {
			err = o.check(a, m.tag, pattern(i, 100))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func claimSources(ctx context.Context, w *world) error {
	c := w.nodes[2]
	for i := range 20 {
		n := w.nodes[i%2]
		s, err := n.send(c, envelope{cid: 4, tag: int32(i)}, pattern(i, i*300))
		if err != nil {
			return err
		}
		o, err := c.claim(ctx, nil, envelope{cid: 4, tag: mtl.AnyTag})
		if err != nil {
			return err
		}
		if err := errors.Join(o.found(n, int32(i), i*300), o.receiveClaimed(make([]byte, i*300))); err != nil {
			return err
		}
		if err := w.all(ctx, o, s); err != nil {
			return err
		}
		if err := o.check(n, int32(i), pattern(i, i*300)); err != nil {
			return err
		}
	}
	return nil
}
