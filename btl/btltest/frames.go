package btltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

func frameCases() claims {
	return claims{
		kittest.Of("CapsArePlausibleAndFixed", 2, capsArePlausible),
		kittest.Of("FramesOfEverySizeArriveWholeAndInOrder", 2, everySize),
		kittest.Of("BothDirectionsAtOnceDoNotBlockEachOther", 2, bothDirections),
		kittest.Of("FullPathBlocksInsteadOfGrowing", 2, fullPathBlocks),
		kittest.Of("SecondReserveDropsTheFirst", 2, secondReserve),
		kittest.Of("ShorterCommitSendsOnlyThat", 2, shorterCommit),
		kittest.Of("ShortSendIsTheWholeFrameOrNothing", 2, short),
		kittest.Of("NothingIsDeliveredBeforeCommit", 2, nothingBeforeCommit),
		kittest.Of("PeerSourceDeliversWhatPollWould", 2, peerSource),
		kittest.Of("PeekedFrameStaysTheNextUntilItIsTaken", 2, peek),
	}
}

func capsArePlausible(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	c := a.module.Caps()
	var errs []error
	claim := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	claim(c.FrameLimit >= btl.MinFrameLimit, "FrameLimit %d is below MinFrameLimit %d", c.FrameLimit, btl.MinFrameLimit)
	claim(c.EagerLimit >= 1 && c.EagerLimit <= c.FrameLimit, "EagerLimit %d is not in 1..FrameLimit %d", c.EagerLimit, c.FrameLimit)
	claim(c.LatencyNS > 0 && c.LatencyNS < 1e9, "LatencyNS %v", c.LatencyNS)
	claim(c.Device != "", "Device is empty: explain has nothing to show")
	claim(a.module.Blob() != nil, "Blob is nil: no peer can connect")
	blob := bytes.Clone(a.module.Blob())
	ep, err := a.connect(b)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	frame := fill(1, c.FrameLimit)
	if err := w.send(ctx, a, ep, frame); err != nil {
		return err
	}
	if err := w.expect(ctx, b, a, [][]byte{frame}); err != nil {
		return err
	}
	claim(a.module.Caps() == c, "Caps changed from %+v to %+v", c, a.module.Caps())
	claim(bytes.Equal(a.module.Blob(), blob), "Blob changed: it stands in the business card already")
	info := w.subject.Component.Info()
	claim(info.Kind == framework.BTL && info.Name != "" && info.Version != "" && info.Summary != "", "Info is %+v", info)
	return errors.Join(errs...)
}

// sizes are all small ones, all about a limit, and many between.
func sizes(c btl.Caps) []int {
	var s []int
	for n := 1; n <= min(1100, c.FrameLimit); n++ {
		s = append(s, n)
	}
	for n := 1101; n < c.FrameLimit; n += 509 { // a prime: every remainder of every alignment
		s = append(s, n)
	}
	for _, limit := range []int{c.EagerLimit, c.FrameLimit} {
		for n := max(1, limit-70); n <= min(limit+70, c.FrameLimit); n++ {
			s = append(s, n)
		}
	}
	return s
}

func everySize(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	const batch = 16
	all := sizes(a.module.Caps())
	for k := 0; k < len(all); k += batch {
		var frames [][]byte
		for i, n := range all[k:min(k+batch, len(all))] {
			frames = append(frames, fill(k+i, n))
			if err := w.send(ctx, a, ep, frames[i]); err != nil {
				return err
			}
		}
		if err := w.expect(ctx, b, a, frames); err != nil {
			return fmt.Errorf("frames of %d to %d bytes: %w", len(frames[0]), len(frames[len(frames)-1]), err)
		}
	}
	return nil
}

func bothDirections(ctx context.Context, w *world) error {
	a, b, err := w.apart()
	if err != nil {
		return err
	}
	ab, err := a.connect(b)
	if err != nil {
		return err
	}
	ba, err := b.connect(a)
	if err != nil {
		return err
	}
	// Both fill their path before anybody reads.
	var toB, toA [][]byte
	flood := func(n *node, ep btl.Endpoint, frames *[][]byte) error {
		frame := fill(len(*frames), 1+(len(*frames)*37)%min(2000, n.module.Caps().FrameLimit))
		if err := w.send(ctx, n, ep, frame); err != nil {
			return err
		}
		*frames = append(*frames, frame)
		return nil
	}
	for range 1000 {
		if err := errors.Join(flood(a, ab, &toB), flood(b, ba, &toA)); err != nil {
			return err
		}
	}
	return errors.Join(w.expect(ctx, b, a, toB), w.expect(ctx, a, b, toA))
}

// growLimit is what a module may buffer for a receiver that doesn't poll before
// the kit calls it growth: the buffers of a socket are below it.
const growLimit = 64 << 20

func fullPathBlocks(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	first := [][]byte{fill(0, 10)}
	if err := w.send(ctx, a, ep, first[0]); err != nil {
		return err
	}
	if err := w.expect(ctx, b, a, first); err != nil {
		return err
	}
	size := min(5000, a.module.Caps().FrameLimit)
	for round := range 3 {
		var frames [][]byte
		sent := 0
		for {
			frame := fill(len(frames), size-len(frames)%7)
			ok, err := a.try(ep, frame)
			if err != nil {
				return err
			}
			if !ok {
				if a == b {
					break
				}
				// Its own progress may make room once: a socket takes more.
				a.poll()
				if ok, err = a.try(ep, frame); err != nil || !ok {
					if err != nil {
						return err
					}
					break
				}
			}
			frames = append(frames, frame)
			if sent += len(frame); sent > growLimit {
				return fmt.Errorf("%d bytes were taken for a receiver that doesn't poll", sent)
			}
		}
		if len(frames) == 0 {
			return fmt.Errorf("round %d: an empty path takes no frame of %d bytes", round, size)
		}
		last := fill(1, a.module.Caps().FrameLimit)
		if err := w.send(ctx, a, ep, last); err != nil {
			return fmt.Errorf("round %d: after %d frames: %w", round, len(frames), err)
		}
		if err := w.expect(ctx, b, a, append(frames, last)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

func secondReserve(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	var frames [][]byte
	for k := range 200 {
		frame := fill(k, 1+k*13%200)
		err := w.until(ctx, "reserve", func() (ok bool) {
			a.do(func() {
				drop := ep.Reserve(min(1+k*29%900, a.module.Caps().FrameLimit))
				for i := range drop {
					drop[i] = 1 // looks like a first lap, or a true flag
				}
				keep := ep.Reserve(len(frame))
				if ok = keep != nil; ok {
					copy(keep, frame)
					ep.Commit(len(frame))
				}
			})
			return ok
		})
		if err != nil {
			return err
		}
		frames = append(frames, frame)
	}
	return w.expect(ctx, b, a, frames)
}

func shorterCommit(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	limit := a.module.Caps().FrameLimit
	var frames [][]byte
	for k := range 300 {
		size := 1 + k*97%limit
		part := fill(k, 1+k*31%size)
		err := w.until(ctx, "reserve", func() (ok bool) {
			a.do(func() {
				bytes := ep.Reserve(size)
				if ok = bytes != nil; ok {
					for i := range bytes {
						bytes[i] = 1
					}
					copy(bytes, part)
					ep.Commit(len(part))
				}
			})
			return ok
		})
		if err != nil {
			return err
		}
		frames = append(frames, part)
	}
	return w.expect(ctx, b, a, frames)
}

func nothingBeforeCommit(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	frame := fill(1, min(300, a.module.Caps().FrameLimit))
	for round := range 100 {
		reserved := false
		err := w.until(ctx, "reserve", func() bool {
			a.do(func() {
				if buf := ep.Reserve(len(frame)); buf != nil {
					copy(buf, frame)
					reserved = true
				}
			})
			return reserved
		})
		if err != nil {
			return err
		}
		for range 10 {
			b.poll()
			a.poll()
		}
		if err := b.compare(a, nil); err != nil {
			return fmt.Errorf("round %d: before Commit: %w", round, err)
		}
		// Poll may have run in between, but nothing else was done with the endpoint.
		a.do(func() { ep.Commit(len(frame)) })
		if err := w.expect(ctx, b, a, [][]byte{frame}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

func peerSource(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	poller, ok := framework.As[btl.PeerPoller](b.module)
	if !ok {
		return fmt.Errorf("%w: it has no PeerSource", ErrSkip)
	}
	var source progress.Source
	b.do(func() { source = poller.PeerSource(framework.Life{ID: framework.MakeProcID(0, 77), Nonce: 1}) })
	if source != nil {
		return errors.New("PeerSource of a process that never connected is not nil")
	}
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	first := fill(0, 9)
	if err := w.send(ctx, a, ep, first); err != nil {
		return err
	}
	if err := w.expect(ctx, b, a, [][]byte{first}); err != nil {
		return err
	}
	b.do(func() { source = poller.PeerSource(a.life) })
	if source == nil {
		return errors.New("PeerSource is nil although a frame has come that way")
	}
	for round := range 50 {
		var frames [][]byte
		for k := range 5 {
			frames = append(frames, fill(k, 1+round*k))
			if err := w.send(ctx, a, ep, frames[k]); err != nil {
				return err
			}
		}
		err := w.until(ctx, "poll of the peer's source", func() bool {
			n := 0
			b.do(func() { source.Poll(); n = len(b.got) })
			return n == len(frames)
		}, b)
		if err == nil {
			err = b.compare(a, frames)
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}
