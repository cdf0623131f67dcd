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
		kittest.New("RoomWakesASleepingSender", 2, (*world).roomWakes),
		kittest.New("BlockedSenderLearnsThatThePeerClosed", 2, (*world).closeWakes),
		kittest.New("ManyPeersAtOnceKeepTheirOrder", 8, (*world).manyPeers),
	}
}

// drowsy engines sleep at once when nothing is there.
var drowsy = progress.Options{Spin: 1, Yield: 1}

// start has the engine poll the module, and sleep when nothing comes.
func (n *node) start() { n.engine.Add(n.module) }

// outbox sends what waits whenever its engine polls, as a protocol does.
type outbox struct {
	*path
	frames [][]byte
}

// outbox returns one that sends frames from now on.
func (p *path) outbox(frames ...[]byte) *outbox {
	o := &outbox{p, frames}
	p.from.engine.Add(o)
	p.w.Cleanup(func() error { p.from.engine.Remove(o); return nil })
	return o
}

// Poll implements progress.Source.
func (o *outbox) Poll() (n int) {
	for len(o.frames) > 0 && o.put(o.frames[0]) {
		o.frames = o.frames[1:]
		n++
	}
	return n
}

// sleep sleeps until cond holds, which is called with the lock held whenever
// something came up, or a path is lost.
func (n *node) sleep(cond func() bool) {
	n.do(func() {
		for !cond() && len(n.lost) == 0 {
			n.news.Reset()
			if err := n.engine.Wait(n.w.Context(), &n.news, nil); err != nil {
				n.w.Fatalf("rank %d: asleep: %w", n.rank, err)
			}
		}
	})
}

// awake returns a pair whose engines poll their modules, and sleep.
func (w *world) awake() (a, b *node) {
	alone := w.nodes[0].reach(w.nodes[1]) != nil
	a, b = w.open(0, drowsy), w.open(1, drowsy)
	a.start()
	b.start()
	if alone {
		return a, a
	}
	return a, b
}

// nap is how long a sleeper is left alone now and then, so that its engine sleeps for
// certain: not to wait for anything. An engine that nobody rings looks again within a
// second; so many of those are a hang.
const nap = 3 * time.Millisecond

// arrivalWakes is a ping-pong in which each side sleeps until the other's frame
// has come.
func (w *world) arrivalWakes() {
	a, b := w.awake()
	alone := a == b
	play := func(n, to *node, first bool) {
		out := n.connect(to).outbox()
		for k := range 500 {
			frame, mine := pattern(k, 30), k%2 == 0 == first
			send := func() {
				if k%5 == 0 {
					time.Sleep(nap)
				}
				n.do(func() { out.frames = append(out.frames, frame); out.Poll() })
			}
			sent := func() {}
			if alone {
				sent = w.Go(send) // while it sleeps, or before
			} else if mine {
				send()
			}
			if !mine || alone {
				n.sleep(func() bool { return len(n.got) > 0 })
				n.take(to, [][]byte{frame})
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

// roomWakes has a sender sleep on a full path, whose receiver is slow.
func (w *world) roomWakes() {
	w.apart() // else nobody else gives cells back
	a, b := w.awake()
	p := a.connect(b)
	var frames [][]byte
	for k := range 3000 {
		frames = append(frames, pattern(k, min(1000, p.limit())))
	}
	out := p.outbox(frames...)
	a.do(func() { out.Poll() })
	b.sleep(func() bool { return len(b.got) >= len(frames) })
	b.take(a, frames)
}

// closeWakes has a sender wait, and soon sleep, on a path that is full, or was never
// answered, whose receiver doesn't poll and then closes. It waits for nothing else.
func (w *world) closeWakes() {
	w.apart()
	// As many as 2 s allow, where each begins two processes on a busy machine.
	for begun, round := time.Now(), 0; round < 40 && (round < 8 || time.Since(begun) < 2*time.Second); round++ {
		a, c := w.open(0, drowsy), w.open(1, drowsy)
		p := a.connect(c)
		if round%2 == 0 {
			p.carry(pattern(0, 3))
			p.fill(512, p.put)
			a.do(func() {
				for p.put(pattern(0, 200)) { // what is left may have room for some of these
				}
			})
		}
		a.start()
		p.outbox(pattern(0, 200))
		slept := w.Go(func() { a.sleep(func() bool { return false }) })
		// Later in each round, so that it also comes when the sender sleeps.
		for start := time.Now(); time.Since(start) < time.Duration(round)*50*time.Microsecond; {
			runtime.Gosched()
		}
		w.Check(c.close())
		slept()
		a.loses(c.peer.Life, nothing)
		p.close() // after PeerGone it must do no harm
		w.Check(a.close())
	}
}

// manyPeers has everybody send to everybody, each with its own goroutine.
func (w *world) manyPeers() {
	w.apart()
	all, limit := w.nodes, w.nodes[0].module.Caps().FrameLimit
	const frames = 300
	frame := func(from, to, k int) []byte { return pattern(k, 1+(from*31+to*17+k*53)%min(3000, limit)) }
	w.Each(len(all), func(rank int) {
		n, came, next := all[rank], 0, map[framework.Life]int{} // frames so far, by sender
		n.onFrame = func(from framework.Life, got []byte) error {
			k := next[from]
			next[from]++
			came++
			if !bytes.Equal(got, frame(int(from.ID.Rank())-w.subject.First, rank, k)) {
				return fmt.Errorf("frame %d from %x is not what was sent: %d bytes", k, from, len(got))
			}
			return nil
		}
		n.start()
		for _, to := range all {
			if to == n {
				continue
			}
			out := n.connect(to).outbox()
			n.do(func() {
				for k := range frames {
					out.frames = append(out.frames, frame(rank, to.rank, k))
				}
			})
		}
		n.sleep(func() bool { return came == frames*(len(all)-1) })
		n.do(func() {
			if len(n.lost) > 0 {
				w.Fatalf("rank %d lost %x: %w", rank, n.lost[0].peer, n.lost[0].err)
			}
		})
	})
}
