package btltest

import (
	"errors"
	"strings"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

func pathCases() claims {
	return claims{
		kittest.New("UnreachablePeerIsAnError", 2, (*world).unreachable),
		kittest.New("RefusedFrameEndsThePathOnce", 2, (*world).refusedFrame),
		kittest.New("CloseLosesNoCommittedFrame", 2, (*world).closeLosesNothing),
		kittest.New("AbandonedConnectIsHarmless", 2, (*world).abandonedConnect),
		kittest.New("ReconnectingLeaksNothing", 2, (*world).reconnect),
		kittest.New("RestartedProcessIsReachable", 2, (*world).restart),
		kittest.New("NewEpochHasNoEventsOfOldPaths", 2, (*world).newEpoch),
	}
}

// checkErrorText fails the case unless the text of an error is informative.
func (w *world) checkErrorText(what string, err error) {
	if err == nil || len(err.Error()) < 10 {
		w.Fatalf("the error of %s is too short: %v", what, err)
	}
	if text := err.Error(); strings.Contains(text, "<nil>") || strings.Contains(text, "%!") {
		w.Fatalf("the error of %s formats a missing value: %s", what, text)
	}
}

// unreachable connects to invalid addresses, and to one of another process.
func (w *world) unreachable() {
	a, b := w.senderAndReceiver()
	unknown := framework.Peer{
		Incarnation: framework.Incarnation{ID: framework.MakeProcID(0, 99), Nonce: 1},
		Proc:        framework.Proc{Namespace: w.job.Namespace, Rank: 99},
	}
	peers := []framework.Peer{unknown}
	for _, blob := range []string{"", "x", ".", "..", "/", "../../etc/passwd", "\x00", strings.Repeat("a", 300), strings.Repeat("\xff", 4096)} {
		unknown.Blob = []byte(blob)
		peers = append(peers, unknown)
	}
	unknown.Blob, unknown.Nonce = b.peer.Blob, b.peer.Nonce+1
	peers = append(peers, unknown)
	w.checkLeaks(20*len(peers), 0, func(k int) { a.checkRefused(peers[k/20]) })
	if err := a.reach(a); err != nil {
		w.checkErrorText("Reach of the process itself", err)
	}
	a.connect(b).carry(pattern(1, 100)) // Valid peers are still served.
}

// checkRefused fails the case unless Reach or Connect return an informative error, or the path ends
// soon.
func (n *node) checkRefused(p framework.Peer) {
	var reach, connect error
	var ep btl.Endpoint
	n.locked(func() {
		reach = n.module.Reach(p)
		ep, connect = n.module.Connect(p)
	})
	if reach != nil {
		n.world.checkErrorText("Reach", reach)
	}
	if connect != nil {
		n.world.checkErrorText("Connect", connect)
		return
	}
	n.awaitLoss(p.Incarnation, noTry)
	n.locked(ep.Close)
}

var errRefused = errors.New("malformed frame")

// refusedFrame returns an error for the third frame.
func (w *world) refusedFrame() {
	a, b := w.senderAndReceiver()
	p, seen := a.connect(b), 0
	b.onFrame = func(framework.Incarnation, []byte) error {
		if seen++; seen == 3 {
			return errRefused
		}
		return nil
	}
	for k := range 5 { // The path may end in between.
		a.until("a send", func() bool { return p.trySend(pattern(k, 50)) || len(a.losses) > 0 || seen == 3 })
	}
	b.until("the path is lost", func() bool { return len(b.losses) > 0 })
	for range 100 {
		w.pollAll()
	}
	w.Is("the receiver's loss", b.awaitLoss(a.peer.Incarnation, noTry), errRefused)
	if seen != 3 {
		w.Fatalf("%d frames were delivered, want 3: a frame followed the refused one", seen)
	}
	if a == b {
		return
	}
	// The sender must not wait for cells of a path without a reader.
	if err := a.awaitLoss(b.peer.Incarnation, func() { p.trySend(pattern(1, 200)) }); errors.Is(err, framework.ErrPeerClosed) {
		w.Fatalf("a live peer is reported to have closed: %w", err)
	}
	p.close() // It must be harmless after PathDown.
	p.close()
	b.onFrame = nil
	a.connect(b).carry(pattern(2, 60))
}

// closeLosesNothing closes the path, and then the process, of a sender before the receiver polls.
func (w *world) closeLosesNothing() {
	a, b := w.senderAndReceiver()
	for _, whole := range []bool{false, true} {
		if whole && a == b { // There is no receiver left.
			continue
		}
		p := a.greet(b)
		frames := p.burst(20, func(k int) ([]byte, bool) {
			frame := pattern(k, 100)
			return frame, p.trySend(frame)
		})
		if a != b {
			for range patience { // The last frame may wait for space, which the receiver makes.
				a.poll()
			}
			a.until("Idle", p.Idle)
		}
		p.close()
		if whole {
			w.Check(a.close())
		}
		p.awaitFrames(frames...)
	}
}

// abandonedConnect closes a path, and then a process, before the peer polls.
func (w *world) abandonedConnect() {
	a, b := w.senderAndReceiver()
	for range 300 { // More than the slots of any table.
		a.connect(b).close()
		w.pollAll()
	}
	if a != b {
		for range 5 {
			c := w.open(a.rank, progress.Options{})
			c.connect(b)
			w.Check(c.close())
			b.poll()
		}
	}
	a.connect(b).carry(pattern(1, 80))
}

// reconnect opens and closes one path many times, with a frame each time. Every second frame is in
// flight when the path closes.
func (w *world) reconnect() {
	a, b := w.senderAndReceiver()
	w.checkLeaks(1000, 20, func(k int) {
		p, frame := a.connect(b), pattern(k, 1+k%200)
		p.send(frame)
		if k%2 == 0 {
			p.awaitFrames(frame)
			p.close()
		} else {
			p.close()
			p.awaitFrames(frame)
		}
		b.poll()
	})
}

// restart restarts a process, as a second session does. Both directions work, and paths of the
// first incarnation do not affect the second one.
func (w *world) restart() {
	a, b := w.twoProcesses()
	for incarnation := range 5 {
		c := w.open(b.rank, progress.Options{})
		to, from := a.connect(c), c.connect(a)
		to.send(pattern(incarnation, 70))
		from.send(pattern(incarnation+1, 90))
		to.awaitFrames(pattern(incarnation, 70))
		from.awaitFrames(pattern(incarnation+1, 90))
		to.close()
		w.Check(c.close())
	}
}

// newEpoch drops the paths at both ends by Reconnect, and opens others to the same incarnation. No end
// of a dropped path is reported.
func (w *world) newEpoch() {
	a, b := w.twoProcesses()
	ofA, ofB := ability[btl.Reconnector](w, a.module), ability[btl.Reconnector](w, b.module)
	for round := range 5 {
		to, from := a.connect(b), b.connect(a)
		to.carry(pattern(round, 70))
		from.carry(pattern(round+1, 90))
		to.close()
		from.close()
		a.locked(func() { ofA.Reconnect(b.peer.Incarnation) })
		b.locked(func() { ofB.Reconnect(a.peer.Incarnation) })
	}
	for range 100 {
		w.pollAll()
	}
	for _, n := range []*node{a, b} {
		n.locked(func() {
			if len(n.losses) > 0 {
				w.Errorf("rank %d: got the end of an earlier path: %w", n.rank, n.losses[0].err)
			}
		})
	}
}
