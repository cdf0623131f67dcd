package btltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// peek takes frames in turn by Drop and by Poll, of sizes that go round the end of
// a ring several times: each comes once, in its place.
func peek(ctx context.Context, w *world) error {
	a, b, ep, err := w.greeted(ctx)
	if err != nil {
		return err
	}
	poller, ok := framework.As[btl.PeerPoller](b.module)
	if !ok {
		return fmt.Errorf("%w: it has no PeerSource", ErrSkip)
	}
	var source progress.Source
	b.do(func() { source = poller.PeerSource(a.life) })
	peeker, ok := framework.As[btl.Peeker](source)
	if !ok {
		return fmt.Errorf("%w: its PeerSource has no Peek", ErrSkip)
	}
	var none []byte
	b.do(func() { none = peeker.Peek(3) })
	if none != nil {
		return fmt.Errorf("a peek returns %d bytes that nobody has sent", len(none))
	}
	limit := a.module.Caps().FrameLimit
	for round := range 400 {
		frame := fill(round, 1+round*97%limit)
		if err := w.send(ctx, a, ep, frame); err != nil {
			return err
		}
		var got, again []byte
		err := w.until(ctx, "peek", func() bool {
			b.do(func() {
				if got = bytes.Clone(peeker.Peek(2)); got != nil {
					again = bytes.Clone(peeker.Peek(1))
				}
			})
			return got != nil
		}, b)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if !bytes.Equal(got, frame) || !bytes.Equal(again, frame) {
			return fmt.Errorf("round %d: %d and then %d bytes were peeked of a frame of %d, or others", round, len(got), len(again), len(frame))
		}
		if round%2 == 0 {
			b.do(peeker.Drop)
		} else if err := w.expect(ctx, b, a, [][]byte{frame}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		b.do(func() {
			if peeker.Peek(1) != nil || len(b.got) != 0 {
				err = errors.New("a frame that was taken comes again")
			}
		})
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}
