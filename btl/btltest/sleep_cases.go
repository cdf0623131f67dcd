package btltest

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/progress"
)

func sleepCases() claims {
	return claims{
		kittest.New("ArrivalWakesASleepingEngine", 2, (*world).arrivalWakes),
		kittest.New("FreedSpaceWakesASleepingSender", 2, (*world).roomWakes),
		kittest.New("BlockedSenderNoticesTheClosedPeer", 2, (*world).closeWakes),
		kittest.New("ManyPeersAtOnceKeepTheirOrder", 8, (*world).manyPeers),
	}
}

// drowsy engines sleep without spinning.
var drowsy = progress.Options{Spin: 1, Yield: 1}

// addToEngine adds the module to the engine, which polls and sleeps.
func (n *node) addToEngine() { n.engine.Add(n.module) }

// outbox sends queued frames whenever its engine polls, as a protocol does.
type outbox struct {
	*path
	unsentFrames [][]byte
}

// outbox returns an outbox that sends frames from now on.
func (p *path) outbox(frames ...[]byte) *outbox {
	o := &outbox{p, frames}
	p.from.engine.Add(o)
	p.world.Cleanup(func() error { p.from.engine.Remove(o); return nil })
	return o
}

// Poll implements progress.Source.
func (o *outbox) Poll() (n int) {
	for len(o.unsentFrames) > 0 && o.trySend(o.unsentFrames[0]) {
		o.unsentFrames = o.unsentFrames[1:]
		n++
	}
	return n
}

// sleepUntil sleeps until cond holds or a path is lost. cond is called with the lock held after each
// event.
func (n *node) sleepUntil(cond func() bool) {
	n.locked(func() {
		for !cond() && len(n.losses) == 0 {
			n.eventCompletion.Reset()
			if err := n.engine.Wait(n.world.Context(), &n.eventCompletion, nil); err != nil {
				n.world.Fatalf("rank %d: asleep: %w", n.rank, err)
			}
		}
	})
}

// sleepingPair returns a pair whose engines poll their modules and sleep.
func (w *world) sleepingPair() (a, b *node) {
	alone := w.nodes[0].reach(w.nodes[1]) != nil
	a, b = w.open(0, drowsy), w.open(1, drowsy)
	a.addToEngine()
	b.addToEngine()
	if alone {
		return a, a
	}
	return a, b
}

// nap is an occasional pause that lets the engine of the other side sleep. It is not a wait. An
// engine whose bell does not ring polls within a second, so that many missed bells exceed the
// timeout.
const nap = 3 * time.Millisecond

// arrivalWakes is a ping-pong in which each side sleeps until the frame of the other one arrives.
func (w *world) arrivalWakes() {
	a, b := w.sleepingPair()
	alone := a == b
	play := func(n, to *node, first bool) {
		out := n.connect(to).outbox()
		for k := range 500 {
			frame, mine := pattern(k, 30), k%2 == 0 == first
			send := func() {
				if k%5 == 0 {
					time.Sleep(nap)
				}
				n.locked(func() { out.unsentFrames = append(out.unsentFrames, frame); out.Poll() })
			}
			sent := func() {}
			if alone { // Before or during its sleep.
				sent = w.Go(send) // while it sleeps, or before
			} else if mine {
				send()
			}
			if !mine || alone {
				n.sleepUntil(func() bool { return len(n.receivedFrames) > 0 })
				n.takeFrames(to, [][]byte{frame})
			}
			sent()
		}
	}
	if alone {
		play(a, a, true)
		return
	}
	w.Each(2, func(i int) { play([]*node{a, b}[i], []*node{b, a}[i], i == 0) })
}

// roomWakes lets a sender with a slow receiver sleep on a full path.
func (w *world) roomWakes() {
	w.twoProcesses() // A process alone returns its cells itself.
	a, b := w.sleepingPair()
	p := a.connect(b)
	var frames [][]byte
	for k := range 3000 {
		frames = append(frames, pattern(k, min(1000, p.frameLimit())))
	}
	out := p.outbox(frames...)
	a.locked(func() { out.Poll() })
	b.sleepUntil(func() bool { return len(b.receivedFrames) >= len(frames) })
	b.takeFrames(a, frames)
}

// closeWakes lets a sender wait on a path that is full or unanswered. Its receiver does not poll,
// and then closes. Nothing else wakes the sender.
func (w *world) closeWakes() {
	w.twoProcesses()
	// At most 2 s, because each round begins two processes.
	for begun, round := time.Now(), 0; round < 40 && (round < 8 || time.Since(begun) < 2*time.Second); round++ {
		a, c := w.open(0, drowsy), w.open(1, drowsy)
		p := a.connect(c)
		if round%2 == 0 {
			p.carry(pattern(0, 3))
			p.fillPath(512, p.trySend)
			a.locked(func() {
				for p.trySend(pattern(0, 200)) { // The remaining space may suffice for some of these.
				}
			})
		}
		a.addToEngine()
		p.outbox(pattern(0, 200))
		slept := w.Go(func() { a.sleepUntil(func() bool { return false }) })
		// Later in each round, to cover a sleeping sender, too.
		for start := time.Now(); time.Since(start) < time.Duration(round)*50*time.Microsecond; {
			runtime.Gosched()
		}
		w.Check(c.close())
		slept()
		a.awaitLoss(c.peer.Incarnation, noTry)
		p.close() // It must be harmless after PeerChanged.
		w.Check(a.close())
	}
}

// manyPeers sends frames between all processes, each of which has its own goroutine.
func (w *world) manyPeers() {
	w.twoProcesses()
	all, limit := w.nodes, w.nodes[0].module.Caps().FrameLimit
	const frames = 300
	frame := func(from, to, k int) []byte { return pattern(k, 1+(from*31+to*17+k*53)%min(3000, limit)) }
	w.Each(len(all), func(rank int) {
		n, came, next := all[rank], 0, map[framework.Incarnation]int{} // frames so far, by sender
		n.onFrame = func(from framework.Incarnation, got []byte) error {
			k := next[from]
			next[from]++
			came++
			if !bytes.Equal(got, frame(int(from.ID.Rank())-w.subject.First, rank, k)) {
				return fmt.Errorf("frame %d from %x with %d bytes differs from the sent one", k, from, len(got))
			}
			return nil
		}
		n.addToEngine()
		for _, to := range all {
			if to == n {
				continue
			}
			out := n.connect(to).outbox()
			n.locked(func() {
				for k := range frames {
					out.unsentFrames = append(out.unsentFrames, frame(rank, to.rank, k))
				}
			})
		}
		n.sleepUntil(func() bool { return came == frames*(len(all)-1) })
		n.locked(func() {
			if len(n.losses) > 0 {
				w.Fatalf("rank %d lost %x: %w", rank, n.losses[0].peer, n.losses[0].err)
			}
		})
	})
}
