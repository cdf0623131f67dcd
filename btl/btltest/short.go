package btltest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
)

// short mixes SendShort with Reserve and Commit, up to a full path and over the end of
// a ring: frames arrive whole, in one order, and a SendShort that reports false has sent
// nothing.
func short(ctx context.Context, w *world) error {
	a, b, ep, err := w.greeted(ctx)
	if err != nil {
		return err
	}
	limit, sender := a.module.Caps().FrameLimit, btl.Short(ep)
	for round := range 60 {
		var frames [][]byte
		refused := false
		for k := 0; k < 300 && !refused; k++ {
			frame := fill(round+k, btl.ShortHeaderSize+(round*k*37)%(limit-btl.ShortHeaderSize+1))
			a.do(func() {
				if k%5 == 4 { // a reservation that is not used
					ep.Reserve(1 + k%limit)
				}
				if k%3 == 0 {
					buf := ep.Reserve(len(frame))
					if refused = buf == nil; !refused {
						ep.Commit(copy(buf, frame))
					}
					return
				}
				word := func(i int) uint64 { return binary.LittleEndian.Uint64(frame[8*i:]) }
				payload := bytes.Clone(frame[btl.ShortHeaderSize:])
				refused = !sender.SendShort(btl.ShortHeader{First: word(0), Second: word(1), Third: word(2)}, payload)
				clear(payload) // the caller's again
			})
			if !refused {
				frames = append(frames, frame)
			}
		}
		if len(frames) == 0 {
			return fmt.Errorf("round %d: an empty path refuses a frame", round)
		}
		if err := w.expect(ctx, b, a, frames); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		err := error(nil)
		b.do(func() {
			b.module.Poll()
			if len(b.got) > 0 {
				err = errors.New("a frame came that SendShort had refused")
			}
		})
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}
