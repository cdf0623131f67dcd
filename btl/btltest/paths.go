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
		kittest.New("UnreachablePeerGetsAnErrorInWords", 2, (*world).unreachable),
		kittest.New("RefusedFrameEndsThePathOnce", 2, (*world).refusedFrame),
		kittest.New("CloseLosesNoCommittedFrame", 2, (*world).closeLosesNothing),
		kittest.New("AbandonedConnectHarmsNobody", 2, (*world).abandonedConnect),
		kittest.New("ReconnectingForEverGrowsNothing", 2, (*world).reconnect),
		kittest.New("ReopenedProcessIsReachedAgain", 2, (*world).reopened),
		kittest.New("NothingIsSaidOfPathsBeforeRenew", 2, (*world).renewed),
	}
}

// words fails unless an error can be shown to a person.
func (w *world) words(what string, err error) {
	if err == nil || len(err.Error()) < 10 {
		w.Fatalf("the error of %s says only %v", what, err)
	}
	if text := err.Error(); strings.Contains(text, "<nil>") || strings.Contains(text, "%!") {
		w.Fatalf("the error of %s formats a value that is not there: %s", what, text)
	}
}

// unreachable connects to addresses that are none, or another process's.
func (w *world) unreachable() {
	a, b := w.pair()
	stranger := framework.Peer{
		Life: framework.Life{ID: framework.MakeProcID(0, 99), Nonce: 1},
		Proc: framework.Proc{Namespace: w.job.Namespace, Rank: 99},
	}
	peers := []framework.Peer{stranger}
	for _, blob := range []string{"", "x", ".", "..", "/", "../../etc/passwd", "\x00", strings.Repeat("a", 300), strings.Repeat("\xff", 4096)} {
		stranger.Blob = []byte(blob)
		peers = append(peers, stranger)
	}
	stranger.Blob, stranger.Nonce = b.peer.Blob, b.peer.Nonce+1
	peers = append(peers, stranger)
	w.growsNothing(20*len(peers), 0, func(k int) { a.refused(peers[k/20]) })
	if err := a.reach(a); err != nil {
		w.words("Reach of the process itself", err)
	}
	a.connect(b).carry(pattern(1, 100)) // it still serves who is there
}

// refused fails unless Reach or Connect say in words that there is no such peer, or the
// path is lost soon.
func (n *node) refused(p framework.Peer) {
	var reach, connect error
	var ep btl.Endpoint
	n.do(func() {
		reach = n.module.Reach(p)
		ep, connect = n.module.Connect(p)
	})
	if reach != nil {
		n.w.words("Reach", reach)
	}
	if connect != nil {
		n.w.words("Connect", connect)
		return
	}
	n.loses(p.Life, nothing)
	n.do(ep.Close)
}

var errRefused = errors.New("the protocol does not understand this")

// refusedFrame has the protocol refuse the third frame.
func (w *world) refusedFrame() {
	a, b := w.pair()
	p, seen := a.connect(b), 0
	b.onFrame = func(framework.Life, []byte) error {
		if seen++; seen == 3 {
			return errRefused
		}
		return nil
	}
	for k := range 5 { // the path may end meanwhile
		a.until("a send", func() bool { return p.put(pattern(k, 50)) || len(a.lost) > 0 || seen == 3 })
	}
	b.until("the path is lost", func() bool { return len(b.lost) > 0 })
	for range 100 {
		w.pollAll()
	}
	w.Is("the receiver's loss", b.loses(a.peer.Life, nothing), errRefused)
	if seen != 3 {
		w.Fatalf("%d frames came up, want 3: none follows the one that was refused", seen)
	}
	if a == b {
		return
	}
	// The sender must not wait for a reader that is gone.
	if err := a.loses(b.peer.Life, func() { p.put(pattern(1, 200)) }); errors.Is(err, framework.ErrPeerClosed) {
		w.Fatalf("a live peer is reported to have closed: %w", err)
	}
	p.close() // after PathDown it must do no harm
	p.close()
	b.onFrame = nil
	a.connect(b).carry(pattern(2, 60))
}

// closeLosesNothing closes the path, and then the process, of a sender before
// the receiver looks.
func (w *world) closeLosesNothing() {
	a, b := w.pair()
	for _, whole := range []bool{false, true} {
		if whole && a == b {
			continue // there is nobody left to deliver to
		}
		p := a.greet(b)
		frames := p.burst(20, func(k int) ([]byte, bool) {
			frame := pattern(k, 100)
			return frame, p.put(frame)
		})
		if a != b {
			for range patience { // the last one may wait for room, which the receiver makes
				a.poll()
			}
			a.until("the frames no longer need the sender", p.Idle)
		}
		p.close()
		if whole {
			w.Check(a.close())
		}
		p.arrive(frames...)
	}
}

// abandonedConnect: a connection, or a whole process, that goes before the peer looks.
func (w *world) abandonedConnect() {
	a, b := w.pair()
	for range 300 { // more than any table of places is long
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

// reconnect opens and closes one path many times, with a frame each time, which is under
// way every other time when the path closes.
func (w *world) reconnect() {
	a, b := w.pair()
	w.growsNothing(1000, 20, func(k int) {
		p, frame := a.connect(b), pattern(k, 1+k%200)
		p.send(frame)
		if k%2 == 0 {
			p.arrive(frame)
			p.close()
		} else {
			p.close()
			p.arrive(frame)
		}
		b.poll()
	})
}

// reopened: a process closes and opens again, as a second session does; both
// directions work, and the first life's path is not the second's.
func (w *world) reopened() {
	a, b := w.apart()
	for life := range 5 {
		c := w.open(b.rank, progress.Options{})
		to, from := a.connect(c), c.connect(a)
		to.send(pattern(life, 70))
		from.send(pattern(life+1, 90))
		to.arrive(pattern(life, 70))
		from.arrive(pattern(life+1, 90))
		to.close()
		w.Check(c.close())
	}
}

// renewed: both ends drop their paths, and open others to the same life.
func (w *world) renewed() {
	a, b := w.apart()
	ofA, ofB := ability[btl.Renewer](w, a.module), ability[btl.Renewer](w, b.module)
	for round := range 5 {
		to, from := a.connect(b), b.connect(a)
		to.carry(pattern(round, 70))
		from.carry(pattern(round+1, 90))
		to.close()
		from.close()
		a.do(func() { ofA.Renew(b.peer.Life) })
		b.do(func() { ofB.Renew(a.peer.Life) })
	}
	for range 100 {
		w.pollAll()
	}
	for _, n := range []*node{a, b} {
		n.do(func() {
			if len(n.lost) > 0 {
				w.Errorf("rank %d: it was told of the end of a path of before: %w", n.rank, n.lost[0].err)
			}
		})
	}
}
