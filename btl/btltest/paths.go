package btltest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

func pathCases() claims {
	return claims{
		kittest.Of("UnreachablePeerGetsAnErrorInWords", 2, unreachable),
		kittest.Of("RefusedFrameEndsThePathOnce", 2, refusedFrame),
		kittest.Of("CloseLosesNoCommittedFrame", 2, closeLosesNothing),
		kittest.Of("BlockedSenderLearnsThatThePeerClosed", 2, peerCloses),
		kittest.Of("AbandonedConnectHarmsNobody", 2, abandonedConnect),
		kittest.Of("ReconnectingForEverGrowsNothing", 2, reconnect),
		kittest.Of("ReopenedProcessIsReachedAgain", 2, reopened),
	}
}

// unreachable connects to addresses that are none, or another process's.
func unreachable(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	stranger := framework.Proc{Namespace: w.namespace, Rank: 99}
	good := b.peer()
	var peers []framework.Peer
	for _, blob := range []string{"", "x", ".", "..", "/", "../../etc/passwd", "\x00", strings.Repeat("a", 300), strings.Repeat("\xff", 4096)} {
		peers = append(peers, framework.Peer{Life: framework.Life{ID: framework.MakeProcID(0, 99), Nonce: 1}, Proc: stranger, Blob: []byte(blob)})
	}
	peers = append(peers, framework.Peer{Life: framework.Life{ID: framework.MakeProcID(0, 99), Nonce: 1}, Proc: stranger})
	wrong := good
	wrong.ID, wrong.Proc, wrong.Nonce = framework.MakeProcID(0, 99), stranger, good.Nonce+1
	peers = append(peers, wrong)
	before := w.resources()
	for _, p := range peers {
		for range 20 {
			if err := w.refuses(ctx, a, p); err != nil {
				return fmt.Errorf("address %.40q, nonce %#x: %w", p.Blob, p.Nonce, err)
			}
		}
	}
	if after := w.resources(); after.more(before) {
		return fmt.Errorf("failed connects left something: %v before, %v after", before, after)
	}
	// It still serves who is there.
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	frame := fill(1, 100)
	if err := w.send(ctx, a, ep, frame); err != nil {
		return err
	}
	return w.expect(ctx, b, a, [][]byte{frame})
}

// refuses expects an error with words from Reach or Connect, or that the path is
// lost soon.
func (w *world) refuses(ctx context.Context, n *node, p framework.Peer) error {
	var reach, connect error
	var ep btl.Endpoint
	n.do(func() {
		reach = n.module.Reach(p)
		ep, connect = n.module.Connect(p)
	})
	if reach != nil && len(reach.Error()) < 10 {
		return fmt.Errorf("the error of Reach says only %q", reach)
	}
	if connect != nil {
		if len(connect.Error()) < 10 {
			return fmt.Errorf("the error of Connect says only %q", connect)
		}
		return nil
	}
	err := w.until(ctx, "a path to nobody is lost", func() (lost bool) {
		n.do(func() { lost = len(n.lost) > 0 })
		return lost
	})
	if err == nil {
		err = n.takeLoss(p.Life)
	}
	n.do(ep.Close)
	return err
}

// takeLoss checks the one end of a path that there is, and forgets it.
func (n *node) takeLoss(peer framework.Life) (err error) {
	n.do(func() {
		if len(n.lost) != 1 {
			err = fmt.Errorf("rank %d: %d upcalls told of an end, want one: %v", n.rank, len(n.lost), n.lost)
			return
		}
		l := n.lost[0]
		n.lost = nil
		var te *framework.TransportError
		switch {
		case l.peer != peer:
			err = fmt.Errorf("rank %d: lost %v, want %v", n.rank, l.peer, peer)
		case !errors.As(l.err, &te) || te.Component == "" || te.Op == "" || te.Err == nil:
			err = fmt.Errorf("rank %d: lost with %v, which is no whole TransportError", n.rank, l.err)
		}
	})
	return err
}

// hasLost says whether n has lost a path.
func (n *node) hasLost() (lost bool) {
	n.do(func() { lost = len(n.lost) > 0 })
	return lost
}

// fillUp sends until the path is full, with the receiver held still.
func (w *world) fillUp(a *node, ep btl.Endpoint) error {
	for range growLimit / 512 {
		ok, err := a.try(ep, fill(1, min(512, a.module.Caps().FrameLimit)))
		if err != nil || !ok {
			return err
		}
		a.poll()
	}
	return errors.New("the path never fills")
}

var errRefused = errors.New("the protocol does not understand this")

// refusedFrame has the protocol refuse the third frame.
func refusedFrame(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	seen := 0
	b.onFrame = func(framework.Life, []byte) error {
		if seen++; seen == 3 {
			return errRefused
		}
		return nil
	}
	for k := range 5 {
		if err := w.send(ctx, a, ep, fill(k, 50)); err != nil {
			if seen == 3 { // the path ended while we still sent
				break
			}
			return err
		}
	}
	if err := w.until(ctx, "the receiver loses the path", b.hasLost); err != nil {
		return err
	}
	for range 100 {
		b.poll()
		a.poll()
	}
	var cause error
	b.do(func() { cause = b.lost[0].err })
	if !errors.Is(cause, errRefused) {
		return fmt.Errorf("lost with %v, which does not wrap the protocol's error", cause)
	}
	if err := b.takeLoss(a.life); err != nil {
		return err
	}
	if seen != 3 {
		return fmt.Errorf("%d frames came up, want 3: none follows the one that was refused", seen)
	}
	if a == b {
		return nil
	}
	// The sender must not wait for a reader that is gone.
	err = w.until(ctx, "the sender learns that its path is not read", func() bool {
		a.try(ep, fill(1, 200))
		return a.hasLost()
	})
	if err == nil {
		err = a.takeLoss(b.life)
	}
	if err != nil {
		return err
	}
	a.do(ep.Close) // after PathDown it must do no harm
	a.do(ep.Close)
	b.onFrame = nil
	if ep, err = a.connect(b); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	frame := fill(2, 60)
	if err := w.send(ctx, a, ep, frame); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	return w.expect(ctx, b, a, [][]byte{frame})
}

// closeLosesNothing closes the path, and then the process, of a sender before
// the receiver looks.
func closeLosesNothing(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	for _, how := range []string{"endpoint", "module"} {
		if how == "module" && a == b {
			continue // there is nobody left to deliver to
		}
		ep, err := a.connect(b)
		if err != nil {
			return err
		}
		first := fill(0, 3)
		if err := w.send(ctx, a, ep, first); err != nil {
			return err
		}
		if err := w.expect(ctx, b, a, [][]byte{first}); err != nil {
			return err
		}
		var frames [][]byte
		for k := range 20 {
			frame := fill(k, 100)
			ok, err := a.try(ep, frame)
			if err != nil || !ok && k == 0 {
				return fmt.Errorf("an empty path takes no frame of 100 bytes: %v", err)
			}
			if !ok {
				break
			}
			frames = append(frames, frame)
		}
		idle := func() (idle bool) {
			a.do(func() { idle = ep.Idle() })
			return idle || a == b
		}
		for range patience { // the last one may wait for room, which the receiver makes
			if idle() {
				break
			}
			a.poll()
		}
		if err := w.until(ctx, "the frames need the sender no more", idle); err != nil {
			return err
		}
		a.do(ep.Close)
		if how == "module" {
			if err := a.close(); err != nil {
				return err
			}
		}
		if err := w.expect(ctx, b, a, frames); err != nil {
			return fmt.Errorf("after close of the sender's %s: %w", how, err)
		}
	}
	return nil
}

// peerCloses: a full path whose reader closes is lost, and so is a connection
// that was never answered.
func peerCloses(ctx context.Context, w *world) error {
	a, b, err := w.apart()
	if err != nil {
		return err
	}
	for _, connected := range []bool{true, false} {
		c, err := w.open(ctx, b.rank, progress.Options{})
		if err != nil {
			return err
		}
		w.extra = append(w.extra, c)
		ep, err := a.connect(c)
		if err != nil {
			return err
		}
		if connected {
			if err := w.fillOver(ctx, a, c, ep); err != nil {
				return err
			}
		}
		if err := c.close(); err != nil {
			return err
		}
		err = w.until(ctx, fmt.Sprintf("the sender learns of the close (connected: %v)", connected), func() bool {
			a.try(ep, fill(1, min(512, a.module.Caps().FrameLimit)))
			return a.hasLost()
		})
		if err == nil {
			err = a.takeLoss(c.life)
		}
		if err != nil {
			return err
		}
		a.do(ep.Close)
	}
	return nil
}

// fillOver opens the path from a to c with one frame, and then fills it.
func (w *world) fillOver(ctx context.Context, a, c *node, ep btl.Endpoint) error {
	first := fill(0, 3)
	err := w.until(ctx, "first frame", func() bool {
		c.poll()
		ok, _ := a.try(ep, first)
		return ok
	})
	if err != nil {
		return err
	}
	err = w.until(ctx, "first frame's arrival", func() (came bool) {
		c.poll()
		c.do(func() { came = len(c.got) > 0 })
		return came
	})
	if err != nil {
		return err
	}
	return w.fillUp(a, ep)
}

// abandonedConnect: a connection that its maker gives up before the peer looks.
func abandonedConnect(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	for range 300 { // more than any table of places is long
		ep, err := a.connect(b)
		if err != nil {
			return err
		}
		a.do(ep.Close)
		b.poll()
		a.poll()
	}
	if a != b {
		// A whole process that goes before it was answered.
		for range 5 {
			c, err := w.open(ctx, a.rank, progress.Options{})
			if err != nil {
				return err
			}
			w.extra = append(w.extra, c)
			if _, err := c.connect(b); err != nil {
				return err
			}
			if err := c.close(); err != nil {
				return err
			}
			b.poll()
		}
	}
	ep, err := a.connect(b)
	if err != nil {
		return err
	}
	frame := fill(1, 80)
	if err := w.send(ctx, a, ep, frame); err != nil {
		return err
	}
	return w.expect(ctx, b, a, [][]byte{frame})
}

// reconnect opens and closes one path many times, with a frame each time.
func reconnect(ctx context.Context, w *world) error {
	a, b, err := w.pair()
	if err != nil {
		return err
	}
	var before resources
	const cycles, settled = 1000, 20
	for k := range cycles {
		if k == settled {
			before = w.resources()
		}
		ep, err := a.connect(b)
		if err != nil {
			return fmt.Errorf("cycle %d: %w", k, err)
		}
		frame := fill(k, 1+k%200)
		if err := w.send(ctx, a, ep, frame); err != nil {
			return fmt.Errorf("cycle %d: %w", k, err)
		}
		if k%2 == 0 { // else it is still under way when the path closes
			if err := w.expect(ctx, b, a, [][]byte{frame}); err != nil {
				return fmt.Errorf("cycle %d: %w", k, err)
			}
		}
		a.do(ep.Close)
		if k%2 == 1 {
			if err := w.expect(ctx, b, a, [][]byte{frame}); err != nil {
				return fmt.Errorf("cycle %d: after close: %w", k, err)
			}
		}
	}
	b.poll()
	if after := w.resources(); after.more(before) {
		return fmt.Errorf("%d cycles: %v before, %v after", cycles-settled, before, after)
	}
	return nil
}

// reopened: a process closes and opens again, as a second session does; both
// directions work, and the first life's path is not the second's.
func reopened(ctx context.Context, w *world) error {
	a, b, err := w.apart()
	if err != nil {
		return err
	}
	for life := range 5 {
		c, err := w.open(ctx, b.rank, progress.Options{})
		if err != nil {
			return err
		}
		w.extra = append(w.extra, c)
		w.nodes[1] = c // it is polled from now on, and b is at rest
		to, err := a.connect(c)
		if err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		from, err := c.connect(a)
		if err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		there, back := fill(life, 70), fill(life+1, 90)
		if err := errors.Join(w.send(ctx, a, to, there), w.send(ctx, c, from, back)); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		if err := errors.Join(w.expect(ctx, c, a, [][]byte{there}), w.expect(ctx, a, c, [][]byte{back})); err != nil {
			return fmt.Errorf("life %d: %w", life, err)
		}
		a.do(to.Close)
		if err := c.close(); err != nil {
			return err
		}
		w.nodes[1] = b
	}
	return nil
}
