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

// gatherCases are about btl.Gatherer and btl.Placer; a module without them skips them.
func gatherCases() claims {
	return claims{
		kittest.Of("GatheredPayloadIsFreeOnceItIsSaid", 2, gather),
		kittest.Of("NoPayloadIsReadAfterThePathHasEnded", 2, gatherEnds),
		kittest.Of("PayloadLandsWhereTheProtocolSays", 2, place),
		kittest.Of("NothingIsPlacedWhenTheReceiveHasEnded", 2, placeEnds),
	}
}

// Place implements btl.Placer.
func (p *path) Place(header []byte, size int) []byte {
	n := p.n
	if len(header) == 0 || len(header) > btl.GatherHeader || size < 1 || len(header)+size > n.module.Caps().FrameLimit {
		n.bad = errors.Join(n.bad, fmt.Errorf("rank %d: a place was asked for with a header of %d bytes and a payload of %d", n.rank, len(header), size))
	}
	if n.place == nil {
		return nil
	}
	return n.place(header, size)
}

// Placed implements btl.Placer.
func (p *path) Placed(header []byte, size int) error {
	defer p.n.notify()
	return p.n.placed(header, size)
}

// lent is a payload that a module reads where it lies.
type lent struct {
	n       *node
	peer    framework.Life
	payload []byte
	was     []byte
	calls   int
}

// LocallyComplete implements btl.LocalCompletion. What is free is changed at once.
func (l *lent) LocallyComplete() {
	if l.calls++; l.calls > 1 {
		l.n.bad = errors.Join(l.n.bad, fmt.Errorf("rank %d: a payload was said to be free %d times", l.n.rank, l.calls))
		return
	}
	if !bytes.Equal(l.payload, l.was) {
		l.n.bad = errors.Join(l.n.bad, fmt.Errorf("rank %d: the module has changed the payload that it was lent", l.n.rank))
	}
	l.n.lent[l.peer]--
	clear(l.payload)
}

// tryGather sends a frame with a payload that is lent if the endpoint takes it now.
func (n *node) tryGather(g btl.Gatherer, to *node, frame []byte, header int) (sent bool) {
	l := &lent{n: n, peer: to.life, payload: bytes.Clone(frame[header:]), was: frame[header:]}
	head := bytes.Clone(frame[:header])
	n.do(func() {
		n.lent[to.life]++
		if sent = g.Gather(head, l.payload, l); !sent {
			n.lent[to.life]--
		}
	})
	clear(head) // the caller's again
	return sent
}

// returned waits until all payloads that were lent are free.
func (w *world) returned(ctx context.Context, n, peer *node, held ...*node) error {
	err := w.until(ctx, "all payloads are said to be free", func() (all bool) {
		n.do(func() { all = n.lent[peer.life] == 0 })
		return all
	}, held...)
	return errors.Join(err, n.bad)
}

// gatherers returns a pair with an open path that gathers.
func (w *world) gatherers(ctx context.Context) (a, b *node, ep btl.Endpoint, g btl.Gatherer, err error) {
	if a, b, ep, err = w.greeted(ctx); err != nil {
		return
	}
	g, ok := framework.As[btl.Gatherer](ep)
	if !ok {
		err = fmt.Errorf("%w: its endpoints don't gather", ErrSkip)
	}
	return
}

// gather mixes Gather with Reserve and Commit, up to a full path.
func gather(ctx context.Context, w *world) error {
	a, b, ep, g, err := w.gatherers(ctx)
	if err != nil {
		return err
	}
	limit := a.module.Caps().FrameLimit
	for round := range 40 {
		var frames [][]byte
		for k := range 200 {
			header := 1 + (round+k)%btl.GatherHeader
			frame := fill(round+k, header+1+(round*k*911)%(limit-header))
			var sent bool
			if k%3 == 2 {
				sent, err = a.try(ep, frame)
			} else {
				sent = a.tryGather(g, b, frame, header)
			}
			if err != nil {
				return err
			}
			if !sent {
				break
			}
			frames = append(frames, frame)
		}
		if len(frames) == 0 {
			return fmt.Errorf("round %d: an empty path refuses a frame", round)
		}
		if err := errors.Join(w.expect(ctx, b, a, frames), w.returned(ctx, a, b)); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		idle := false
		a.do(func() { idle = ep.Idle() })
		if !idle {
			return fmt.Errorf("round %d: it is not idle, and has nothing to do", round)
		}
	}
	return nil
}

// gatherEnds closes a path, or its reader, while payloads are lent.
func gatherEnds(ctx context.Context, w *world) error {
	a, b, ep, g, err := w.gatherers(ctx)
	if err != nil {
		return err
	}
	flood := func(g btl.Gatherer, to *node) error {
		size := min(5000, a.module.Caps().FrameLimit)
		for k := 0; a.tryGather(g, to, fill(k, size), 9); k++ {
			if k*size > growLimit {
				return errors.New("the path never fills")
			}
		}
		return nil
	}
	if err := flood(g, b); err != nil {
		return err
	}
	a.do(ep.Close)
	if k := a.lent[b.life]; k != 0 {
		return fmt.Errorf("%d payloads are not free when Close has returned", k)
	}
	if a == b {
		return nil
	}
	c, err := w.open(ctx, b.rank, progress.Options{})
	if err != nil {
		return err
	}
	w.extra = append(w.extra, c)
	if ep, err = a.connect(c); err != nil {
		return err
	}
	if err := w.until(ctx, "the path opens", func() bool {
		c.poll()
		ok, _ := a.try(ep, fill(0, 3))
		return ok
	}); err != nil {
		return err
	}
	g, _ = framework.As[btl.Gatherer](ep)
	if err := errors.Join(flood(g, c), c.close()); err != nil {
		return err
	}
	if err := w.until(ctx, "the sender learns of the close", func() bool {
		a.tryGather(g, c, fill(1, 400), 1)
		return a.hasLost()
	}); err != nil {
		return err
	}
	return errors.Join(a.takeLoss(c.life), a.bad)
}

// placing is where a node has its payloads placed: between guards.
type placing struct {
	n       *node
	from    framework.Life
	asked   int
	header  []byte // of the payload that is under way
	guarded []byte
}

const guard = 64

// at returns the place of a payload, the same until it is there.
func (p *placing) at(header []byte, size int) []byte {
	p.asked++
	if p.guarded == nil || !bytes.Equal(header, p.header) {
		p.header, p.guarded = bytes.Clone(header), bytes.Repeat([]byte{0xee}, size+2*guard)
	}
	return p.guarded[guard : guard+size : guard+size]
}

// there takes a payload that is in its place as a frame that has come.
func (p *placing) there(header []byte, size int) error {
	g := p.guarded
	if g == nil || len(g) != size+2*guard || !bytes.Equal(header, p.header) {
		return fmt.Errorf("a payload of %d bytes is said to be where no place was asked for", size)
	}
	if rim := bytes.Repeat([]byte{0xee}, guard); !bytes.Equal(g[:guard], rim) || !bytes.Equal(g[guard+size:], rim) {
		return errors.New("something was written beside the place")
	}
	p.n.got = append(p.n.got, received{p.from, append(bytes.Clone(header), g[guard:guard+size]...)})
	p.guarded = nil
	return nil
}

var errNotAsked = fmt.Errorf("%w: it hands up payloads as frames only", ErrSkip)

// place has some payloads placed and others handed up.
func place(ctx context.Context, w *world) error {
	a, b, _, g, err := w.gatherers(ctx)
	if err != nil {
		return err
	}
	p := &placing{n: b, from: a.life}
	b.place = func(header []byte, size int) []byte {
		if header[0]%4 == 1 { // nobody knows where it belongs
			p.asked++
			return nil
		}
		return p.at(header, size)
	}
	b.placed = p.there
	limit := a.module.Caps().FrameLimit
	for round := range 200 {
		header := 8 + round%(btl.GatherHeader-7)
		frame := fill(round, header+1+round*7919%(limit-header))
		frame[0], frame[1] = byte(round), byte(round>>8) // one header is not like the next
		if err := w.until(ctx, "gather", func() bool { return a.tryGather(g, b, frame, header) }); err != nil {
			return err
		}
		if err := w.expect(ctx, b, a, [][]byte{frame}); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	if p.asked == 0 {
		return errNotAsked
	}
	return w.returned(ctx, a, b)
}

// placeEnds has receives end while their payload comes.
func placeEnds(ctx context.Context, w *world) error {
	a, b, _, g, err := w.gatherers(ctx)
	if err != nil {
		return err
	}
	p := &placing{n: b, from: a.life}
	ended, halves := false, 0
	var as []byte // what the place held when the receive ended
	b.placed = p.there
	b.place = func(header []byte, size int) []byte {
		if p.guarded == nil {
			return p.at(header, size)
		}
		if !ended {
			ended, as = true, bytes.Clone(p.guarded)
			halves++
		}
		return nil
	}
	limit := a.module.Caps().FrameLimit
	for round := range 50 {
		frame, next := fill(round, limit), fill(round+1, 30)
		frame[0] = byte(round)
		if err := w.until(ctx, "gather", func() bool { return a.tryGather(g, b, frame, 8) }); err != nil {
			return err
		}
		if err := w.until(ctx, "the frame behind", func() bool { return a.tryGather(g, b, next, 20) }); err != nil {
			return err
		}
		err := w.until(ctx, "it comes, or its receive ends", func() (done bool) {
			b.do(func() { done = len(b.got) > 0 || ended })
			return done
		})
		if err != nil {
			return err
		}
		want := [][]byte{next}
		if !ended {
			want = [][]byte{frame, next}
		}
		if err := w.expect(ctx, b, a, want); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		if ended && !bytes.Equal(p.guarded, as) {
			return fmt.Errorf("round %d: something was written after the receive had ended", round)
		}
		b.do(func() { p.guarded, ended = nil, false })
	}
	switch {
	case p.asked == 0:
		return errNotAsked
	case halves == 0:
		return fmt.Errorf("%w: a payload is complete in one Poll", ErrSkip)
	}
	return w.returned(ctx, a, b)
}
