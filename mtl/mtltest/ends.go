package mtltest

import (
	"bytes"
	"os"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/progress"
)

func endCases() claims {
	return claims{
		two("CloseWithEverythingInProgress", (*world).closeBusy),
		kittest.New("CloseWhileAMessageIsHalfHere", 2, (*world).closeHalf),
		kittest.New("CloseLeavesNothingOpen", 2, (*world).closeLeaves),
		two("WhatWasAcceptedArrivesAfterIdleAndClose", (*world).idleThenClose),
		two("PeerThatHasClosedDoesNotKeepOneFromIdleness", (*world).idleAfterPeer),
		kittest.New("ArrivalWakesASleepingEngine", 2, (*world).arrivalWakes),
		kittest.New("ControlMessageWakesASleepingEngine", 2, (*world).controlWakes),
	}
}

// closeBusy closes a module with operations of every kind in progress. The world
// reports a Done that comes late.
func (w *world) closeBusy(a, b *node) {
	w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
	for i, m := range []envelope{{cid: 1, tag: 2}, {cid: 1, tag: 3, mode: mtl.Synchronous}} {
		for _, n := range []int{8, 1 << 20} {
			a.send(b, m, pattern(i, n))
		}
	}
	var bufs [][]byte
	for _, from := range []*node{nil, b, a} {
		bufs = append(bufs, make([]byte, 1<<20))
		a.receive(from, envelope{cid: 1, tag: 4}, bufs[len(bufs)-1])
	}
	a.receive(nil, envelope{cid: 1, tag: 5}, make([]byte, 8)).cancel()
	b.send(a, envelope{cid: 1, tag: 6}, pattern(1, 1<<20))
	a.find(b, envelope{cid: 1, tag: 6}, true) // claimed, and never received
	// It sends into the receives that are given up.
	b.send(a, envelope{cid: 1, tag: 4}, bytes.Repeat([]byte{0xff}, 1<<20))
	a.sendControl(b, []byte("still here"))
	w.Check(a.close())
	var kept [][]byte
	for _, buf := range bufs {
		kept = append(kept, bytes.Clone(buf))
	}
	w.Check(a.module.Close()) // again
	for range 1000 {
		b.poll()
	}
	runtime.GC()
	for i := range bufs {
		w.Same("a buffer after Close", bufs[i], kept[i])
	}
}

// closeHalf closes a module that has got a part of a long message.
func (w *world) closeHalf() {
	for rounds := 1; rounds <= 256; rounds *= 2 {
		w.Check(kittest.Run(w.Context(), func(t *kittest.T) {
			again := newWorld(t, w.subject, 2)
			a, b := again.nodes[0], again.nodes[1]
			again.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(1, 8))
			long := make([]byte, min(32<<20, a.module.Caps().MaxMessage))
			b.send(a, envelope{cid: 1, tag: 2}, long)
			a.receive(b, envelope{cid: 1, tag: 2}, make([]byte, len(long)))
			for range rounds {
				again.pollAll()
			}
			t.Check(a.close())
		}))
	}
}

func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func (w *world) closeLeaves() {
	cycles := func(n int) {
		for range n {
			w.Check(kittest.Run(w.Context(), func(t *kittest.T) {
				again := newWorld(t, w.subject, 2)
				again.exchange(again.nodes[0], again.nodes[1], envelope{cid: 1, tag: 1}, pattern(1, 3000))
			}))
		}
	}
	cycles(2) // what a library keeps for good it has by then
	before := descriptors()
	cycles(5)
	// A library's threads may need a moment to close the last ones.
	w.until("descriptors that five worlds have left open", func() bool { return descriptors() <= before })
}

// idle polls until a has nothing on its way.
func (w *world) idle(a *node) { w.untilLocked("idleness", a, a.module.Idle) }

func (w *world) idleThenClose(a, b *node) {
	const count = 300
	for i := range count {
		a.send(b, envelope{cid: 1, tag: 1}, pattern(i, 40))
	}
	w.idle(a)
	w.Check(a.close())
	for i := range count {
		b.receive(nil, envelope{cid: 1, tag: 1}, make([]byte, 40)).gets(a, 1, pattern(i, 40))
	}
}

// idleAfterPeer has the receiver of the last message close first.
func (w *world) idleAfterPeer(a, b *node) {
	for i := range 20 {
		w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(i, 8))
	}
	w.Check(b.close())
	for range 1000 { // so that a hears of it
		a.poll()
	}
	w.idle(a)
}

// drowsy engines sleep at once when nothing is there.
var drowsy = progress.Options{Spin: 1, Yield: 1}

// naps are how long the sleeper is left alone: not at all, and so that it has
// been asleep for certain, whatever that means to a module.
var naps = []time.Duration{0, 50 * time.Millisecond}

// wakes makes a second process whose engine sleeps until the condition that start
// returns holds. call is what wakes it.
func (w *world) wakes(nap time.Duration, start func(b *node) (cond func() bool), call func(b *node) *operation) {
	b := w.reopen(1, drowsy)
	cond := start(b)
	b.engine.Add(b)
	defer b.engine.Remove(b)
	woken := make(chan struct{})
	slept := w.Go(func() {
		defer close(woken)
		b.do(func() {
			for !cond() {
				b.news.Reset()
				w.Check(b.engine.Wait(w.Context(), &b.news, nil))
			}
		})
	})
	time.Sleep(nap) // not to wait for anything: it is what is tested
	o := call(b)
	w.until("the sleeper and what wakes it", func() bool {
		select {
		case <-woken:
			return o.ended()
		default:
			return false
		}
	}, b)
	slept()
}

func (w *world) arrivalWakes() {
	a := w.nodes[0]
	for i, nap := range naps {
		m, sent := envelope{cid: 1, tag: int32(i)}, pattern(i, 100000)
		var r *operation
		w.wakes(nap, func(b *node) func() bool {
			if nap > 0 { // the other one sleeps before it was ever connected
				w.exchange(a, b, envelope{cid: 1, tag: 9}, pattern(1, 8))
			}
			r = b.receive(nil, m, make([]byte, len(sent)))
			return func() bool { return r.over }
		}, func(b *node) *operation { return a.send(b, m, sent) })
		r.check(a, m.tag, sent)
	}
}

func (w *world) controlWakes() {
	for _, nap := range naps {
		w.wakes(nap, func(b *node) func() bool { return func() bool { return len(b.control) > 0 } },
			func(b *node) *operation { return w.nodes[0].sendControl(b, []byte("wake up")) })
	}
}
