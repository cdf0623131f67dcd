package mtltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func controlCases() claims {
	return claims{
		kittest.Of("ControlMessagesOfEverySizeArrive", 2, controlSizes),
		kittest.Of("ControlMessageAboveTheLimitIsRefused", 2, controlTooLong),
		kittest.Of("ControlReceivesAreNeverUsedUp", 4, controlFlood),
		kittest.Of("ControlMessagesPassUnexpectedOnes", 2, controlPasses),
	}
}

func controlSizes(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for n := 1; n <= a.module.Caps().ControlLimit; n++ {
		o, err := a.sendControl(b, pattern(n, n))
		if err != nil {
			return err
		}
		err = w.until(ctx, "a control message", func() (here bool) {
			b.do(func() { here = len(b.control) == n })
			return here
		})
		if err != nil {
			return err
		}
		if !bytes.Equal(b.control[n-1], pattern(n, n)) {
			return fmt.Errorf("%d bytes arrived as %d others", n, len(b.control[n-1]))
		}
		if err := w.all(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func controlTooLong(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for _, n := range []int{0, a.module.Caps().ControlLimit + 1} {
		if _, err := a.sendControl(b, make([]byte, n)); !errors.Is(err, mtl.ErrTooLong) {
			return fmt.Errorf("%d bytes: %v", n, err)
		}
	}
	return w.quiet(ctx)
}

// controlFlood sends more than any number of buffers holds, from all to all, while
// the receivers sleep now and then.
func controlFlood(ctx context.Context, w *world) error {
	const each = 500
	var ops []*operation
	for i := range each {
		for _, a := range w.nodes {
			for _, b := range w.nodes {
				o, err := a.sendControl(b, []byte{byte(a.rank), byte(i), byte(i >> 8)})
				if err != nil {
					return err
				}
				ops = append(ops, o)
			}
		}
		if i%50 == 0 {
			w.pollAll(w.nodes[i/50%len(w.nodes)])
		}
	}
	if err := w.all(ctx, ops...); err != nil {
		return err
	}
	for _, n := range w.nodes {
		err := w.until(ctx, "control messages", func() (all bool) {
			n.do(func() { all = len(n.control) >= each*len(w.nodes) })
			return all
		})
		if err != nil {
			return fmt.Errorf("rank %d has %d of %d: %w", n.rank, len(n.control), each*len(w.nodes), err)
		}
		seen := map[string]bool{}
		for _, c := range n.control {
			if len(c) != 3 || seen[string(c)] {
				return fmt.Errorf("rank %d got %x, or got it twice", n.rank, c)
			}
			seen[string(c)] = true
		}
	}
	return nil
}

func controlPasses(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	const count = 1000
	var ops []*operation
	for i := range count {
		s, err := a.send(b, envelope{cid: 1, tag: int32(i)}, pattern(i, 40))
		if err != nil {
			return err
		}
		ops = append(ops, s)
	}
	if err := w.quiet(ctx); err != nil {
		return fmt.Errorf("behind %d messages that nobody receives: %w", count, err)
	}
	for i := range count {
		r, err := b.receive(a, envelope{cid: 1, tag: int32(i)}, make([]byte, 40))
		if err != nil {
			return err
		}
		ops = append(ops, r)
	}
	return w.all(ctx, ops...)
}
