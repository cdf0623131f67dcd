package btltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

func sleepCases() claims {
	return claims{
		kittest.Of("ArrivalWakesASleepingEngine", 2, arrivalWakes),
		kittest.Of("RoomWakesASleepingSender", 2, roomWakes),
		kittest.Of("CloseWakesASleepingSender", 2, closeWakes),
		kittest.Of("ManyPeersAtOnceKeepTheirOrder", 8, manyPeers),
	}
}

// drowsy engines sleep at once when nothing is there.
var drowsy = progress.Options{Spin: 1, Yield: 1}

// outbox sends what waits whenever its engine polls, as a protocol does.
type outbox struct {
	ep     btl.Endpoint
	frames [][]byte
}

// Poll implements progress.Source.
func (o *outbox) Poll() (n int) {
	for len(o.frames) > 0 {
		b := o.ep.Reserve(len(o.frames[0]))
		if b == nil {
			break
		}
		copy(b, o.frames[0])
		o.ep.Commit(len(o.frames[0]))
		o.frames = o.frames[1:]
		n++
	}
	return n
}

// wait sleeps until cond holds, which is called with the lock held whenever
// something came up. Lock held.
func (n *node) wait(ctx context.Context, cond func() bool) error {
	for !cond() {
		n.news.Reset()
		if err := n.engine.Wait(ctx, &n.news, nil); err != nil {
			return fmt.Errorf("rank %d: asleep: %w", n.rank, err)
		}
	}
	return nil
}

// awake returns two processes whose engines poll their modules, and sleep.
func (w *world) awake(ctx context.Context) (a, b *node, err error) {
	if _, _, err := w.pair(); err != nil {
		return nil, nil, err
	}
	_, _, err = w.apart()
	alone := err != nil
	if a, err = w.open(ctx, 0, drowsy); err != nil {
		return nil, nil, err
	}
	w.extra = append(w.extra, a)
	a.start()
	if alone {
		return a, a, nil
	}
	if b, err = w.open(ctx, 1, drowsy); err != nil {
		return nil, nil, err
	}
	w.extra = append(w.extra, b)
	b.start()
	return a, b, nil
}

// arrivalWakes is a ping-pong in which each side sleeps until the other's frame
// has come.
func arrivalWakes(ctx context.Context, w *world) error {
	a, b, err := w.awake(ctx)
	if err != nil {
		return err
	}
	const rounds = 500
	play := func(n, to *node, first bool) (err error) {
		ep, err := n.connect(to)
		if err != nil {
			return err
		}
		out := &outbox{ep: ep}
		n.engine.Add(out)
		defer n.engine.Remove(out)
		n.do(func() {
			for k := range rounds {
				if k%2 == 0 == first || n == to {
					out.frames = append(out.frames, fill(k, 30))
					out.Poll()
				}
				if k%2 == 1 == first || n == to {
					if err = n.wait(ctx, func() bool { return len(n.got) > 0 || len(n.lost) > 0 }); err != nil {
						err = fmt.Errorf("round %d: %w", k, err)
						return
					}
					if len(n.got) != 1 || !bytes.Equal(n.got[0].frame, fill(k, 30)) {
						err = fmt.Errorf("rank %d: round %d: got %v; lost %v", n.rank, k, n.got, n.lost)
						return
					}
					n.got = nil
				}
			}
		})
		return err
	}
	if a == b {
		return play(a, a, true)
	}
	var wg sync.WaitGroup
	var ea, eb error
	wg.Go(func() { ea = play(a, b, true) })
	wg.Go(func() { eb = play(b, a, false) })
	wg.Wait()
	return errors.Join(ea, eb)
}

// roomWakes has a sender sleep on a full path, whose receiver is slow.
func roomWakes(ctx context.Context, w *world) error {
	a, b, err := w.awake(ctx)
	if err != nil {
		return err
	}
	if a == b {
		return fmt.Errorf("%w: nobody else gives cells back", ErrSkip)
	}
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	const frames = 3000
	out := &outbox{ep: ep}
	size := min(1000, a.module.Caps().FrameLimit)
	for k := range frames {
		out.frames = append(out.frames, fill(k, size))
	}
	want := out.frames
	a.engine.Add(out)
	defer a.engine.Remove(out)
	a.do(func() { out.Poll() })
	b.do(func() {
		err = b.wait(ctx, func() bool { return len(b.got) >= frames || len(b.lost) > 0 })
	})
	if err != nil {
		return err
	}
	return b.compare(a, want)
}

// closeWakes has a sender sleep on a full path, whose receiver doesn't poll and
// then closes. The sender waits for nothing else.
func closeWakes(ctx context.Context, w *world) error {
	b := w.nodes[1]
	if _, _, err := w.apart(); err != nil {
		return err
	}
	for round := range 40 {
		connected := round%2 == 0
		a, err := w.open(ctx, 0, drowsy)
		if err != nil {
			return err
		}
		w.extra = append(w.extra, a)
		c, err := w.open(ctx, b.rank, drowsy)
		if err != nil {
			return err
		}
		w.extra = append(w.extra, c)
		ep, err := a.connect(c)
		if err != nil {
			return err
		}
		if connected {
			if err := w.fillWith(ctx, a, c, ep); err != nil {
				return err
			}
		}
		out := &outbox{ep: ep, frames: [][]byte{fill(0, 200)}}
		a.start()
		a.engine.Add(out)
		done := make(chan error, 1)
		go func() {
			var err error
			a.do(func() { err = a.wait(ctx, func() bool { return len(a.lost) > 0 }) })
			done <- err
		}()
		// Later in each round, so that it also comes when the sender sleeps.
		for start := time.Now(); time.Since(start) < time.Duration(round)*50*time.Microsecond; {
			runtime.Gosched()
		}
		if err := c.close(); err != nil {
			return err
		}
		err = <-done
		a.engine.Remove(out)
		if err != nil {
			return fmt.Errorf("connected: %v: %w", connected, err)
		}
		if err := a.takeLoss(c.life); err != nil {
			return err
		}
		if err := a.close(); err != nil {
			return err
		}
	}
	return nil
}

// fillWith is fillOver for processes that until doesn't poll.
func (w *world) fillWith(ctx context.Context, a, c *node, ep btl.Endpoint) error {
	nodes := w.nodes
	w.nodes = []*node{a}
	defer func() { w.nodes = nodes }()
	return w.fillOver(ctx, a, c, ep)
}

// manyPeers has everybody send to everybody, each with its own goroutine.
func manyPeers(ctx context.Context, w *world) error {
	if _, _, err := w.apart(); err != nil {
		return err
	}
	const frames = 300
	size := func(from, to, k int) int {
		return 1 + (from*31+to*17+k*53)%min(3000, w.nodes[0].module.Caps().FrameLimit)
	}
	next := make([]map[framework.Life]int, w.size) // frames so far, by sender
	for _, n := range w.nodes {
		next[n.rank] = map[framework.Life]int{}
		n.onFrame = func(from framework.Life, frame []byte) error {
			k := next[n.rank][from]
			next[n.rank][from]++
			if !bytes.Equal(frame, fill(k, size(int(from.ID.Rank()), n.rank, k))) {
				return fmt.Errorf("frame %d from %x is not what was sent: %d bytes", k, from, len(frame))
			}
			return nil
		}
		n.start()
	}
	errs := make([]error, w.size)
	var arrived, wg sync.WaitGroup
	arrived.Add(w.size)
	for _, n := range w.nodes {
		wg.Go(func() {
			err := n.exchange(ctx, w, frames, size, next[n.rank])
			errs[n.rank] = err
			// Nobody closes before all have what they wait for.
			arrived.Done()
			arrived.Wait()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (n *node) exchange(ctx context.Context, w *world, frames int, size func(from, to, k int) int, next map[framework.Life]int) (err error) {
	for _, to := range w.nodes {
		if to == n {
			continue
		}
		ep, err := n.connect(to)
		if err != nil {
			return err
		}
		out := &outbox{ep: ep}
		for k := range frames {
			out.frames = append(out.frames, fill(k, size(n.rank, to.rank, k)))
		}
		n.engine.Add(out)
	}
	n.do(func() {
		err = n.wait(ctx, func() bool {
			whole := 0
			for _, k := range next {
				if k == frames {
					whole++
				}
			}
			return whole == w.size-1 || len(n.lost) > 0
		})
		if err == nil && len(n.lost) > 0 {
			err = fmt.Errorf("rank %d lost %x: %w", n.rank, n.lost[0].peer, n.lost[0].err)
		}
	})
	return err
}
