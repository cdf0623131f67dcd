package mtltest

import (
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func controlCases() claims {
	return claims{
		kittest.New("ControlMessagesOfEverySizeArrive", 2, (*world).controlSizes),
		kittest.New("ControlMessageAboveTheLimitIsRefused", 2, (*world).controlTooLong),
		kittest.New("ControlReceivesAreNeverUsedUp", 4, (*world).controlFlood),
		kittest.New("ControlMessagesPassUnexpectedOnes", 2, (*world).controlPasses),
	}
}

func (w *world) controlSizes() {
	a, b := w.nodes[0], w.nodes[1]
	for n := 1; n <= a.module.Caps().ControlLimit; n++ {
		o := a.sendControl(b, pattern(n, n))
		w.untilLocked("a control message", b, func() bool { return len(b.control) == n })
		w.Same("a control message", b.control[n-1], pattern(n, n))
		w.all(o)
	}
}

func (w *world) controlTooLong() {
	a, b := w.nodes[0], w.nodes[1]
	for _, n := range []int{0, a.module.Caps().ControlLimit + 1} {
		_, err := a.tryControl(b, make([]byte, n))
		w.Is("a control message that is none, or too long", err, mtl.ErrTooLong)
	}
	w.quiet()
}

// controlFlood sends more than any number of buffers holds, from all to all, while
// the receivers sleep now and then.
func (w *world) controlFlood() {
	const each = 500
	var ops []*operation
	for i := range each {
		for _, a := range w.nodes {
			for _, b := range w.nodes {
				ops = append(ops, a.sendControl(b, []byte{byte(a.rank), byte(i), byte(i >> 8)}))
			}
		}
		if i%50 == 0 {
			w.pollAll(w.nodes[i/50%len(w.nodes)])
		}
	}
	w.all(ops...)
	for _, n := range w.nodes {
		w.untilLocked("control messages", n, func() bool { return len(n.control) >= each*len(w.nodes) })
		seen := map[string]bool{}
		for _, c := range n.control {
			if len(c) != 3 || seen[string(c)] {
				w.Fatalf("rank %d got %x, or got it twice", n.rank, c)
			}
			seen[string(c)] = true
		}
	}
}

func (w *world) controlPasses() {
	a, b := w.nodes[0], w.nodes[1]
	const count = 1000
	var ops []*operation
	for i := range count {
		ops = append(ops, a.send(b, envelope{cid: 1, tag: int32(i)}, pattern(i, 40)))
	}
	w.quiet() // behind messages that nobody receives
	for i := range count {
		ops = append(ops, b.receive(a, envelope{cid: 1, tag: int32(i)}, make([]byte, 40)))
	}
	w.all(ops...)
}
