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
		twoNodes("CloseWithEverythingInProgress", (*world).closeBusy),
		kittest.New("CloseWhileAMessageIsHalfHere", 2, (*world).closeHalf),
		kittest.New("CloseLeavesNothingOpen", 2, (*world).closeLeaves),
		twoNodes("WhatWasAcceptedArrivesAfterIdleAndClose", (*world).idleThenClose),
		twoNodes("PeerThatHasClosedDoesNotKeepOneFromIdleness", (*world).idleAfterPeer),
		kittest.New("ArrivalWakesASleepingEngine", 2, (*world).arrivalWakes),
		kittest.New("ControlMessageWakesASleepingEngine", 2, (*world).controlWakes),
	}
}

// closeBusy closes a module with operations of every kind in progress. The world reports a late Done.
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
	a.probeUntilFound(b, envelope{cid: 1, tag: 6}, true) // Claimed and never received.
	// It sends into the receives that end with Close.
	b.send(a, envelope{cid: 1, tag: 4}, bytes.Repeat([]byte{0xff}, 1<<20))
	a.sendControl(b, []byte("still here"))
	w.Check(a.close())
	var kept [][]byte
	for _, buf := range bufs {
		kept = append(kept, bytes.Clone(buf))
	}
	w.Check(a.module.Close()) // A further call.
	for range 1000 {
		b.poll()
	}
	runtime.GC()
	for i := range bufs {
		w.Same("a buffer after Close", bufs[i], kept[i])
	}
}

// closeHalf closes a module that has received a part of a long message.
func (w *world) closeHalf() {
	for rounds := 1; rounds <= 256; rounds *= 2 {
		w.Check(kittest.Run(w.Context(), func(t *kittest.T) {
			again := newWorld(t, w.subject, 2)
			a, b := again.nodesByRank[0], again.nodesByRank[1]
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
				again.exchange(again.nodesByRank[0], again.nodesByRank[1], envelope{cid: 1, tag: 1}, pattern(1, 3000))
			}))
		}
	}
	cycles(2) // The library has allocated its permanent resources.
	before := descriptors()
	cycles(5)
	// Threads of the library may close the last ones later.
	w.until("descriptors that five worlds have left open", func() bool { return descriptors() <= before })
}

// idle polls until a is idle.
func (w *world) idle(a *node) { w.untilLocked("idleness", a, a.module.Idle) }

func (w *world) idleThenClose(a, b *node) {
	const count = 300
	for i := range count {
		a.send(b, envelope{cid: 1, tag: 1}, pattern(i, 40))
	}
	w.idle(a)
	w.Check(a.close())
	for i := range count {
		b.receive(nil, envelope{cid: 1, tag: 1}, make([]byte, 40)).mustGet(a, 1, pattern(i, 40))
	}
}

// idleAfterPeer closes the receiver of the last message first.
func (w *world) idleAfterPeer(a, b *node) {
	for i := range 20 {
		w.exchange(a, b, envelope{cid: 1, tag: 1}, pattern(i, 8))
	}
	w.Check(b.close())
	for range 1000 { // a detects the end of the peer.
		a.poll()
	}
	w.idle(a)
}

// drowsy engines sleep at once.
var drowsy = progress.Options{Spin: 1, Yield: 1}

// naps are the times before the wake-up: none, and long enough for the process to sleep.
var naps = []time.Duration{0, 50 * time.Millisecond}

// wakes opens a second process whose engine sleeps until the condition that start returns holds. call must wake it.
func (w *world) wakes(nap time.Duration, start func(b *node) (cond func() bool), call func(b *node) *operation) {
	b := w.reopen(1, drowsy)
	cond := start(b)
	b.engine.Add(b)
	defer b.engine.Remove(b)
	woken := make(chan struct{})
	slept := w.Go(func() {
		defer close(woken)
		b.withLock(func() {
			for !cond() {
				b.activity.Reset()
				w.Check(b.engine.Wait(w.Context(), &b.activity, nil))
			}
		})
	})
	time.Sleep(nap) // The sleep itself is tested.
	o := call(b)
	w.until("the sleeper and what wakes it", func() bool {
		select {
		case <-woken:
			return o.hasEnded()
		default:
			return false
		}
	}, b)
	slept()
}

func (w *world) arrivalWakes() {
	a := w.nodesByRank[0]
	for i, nap := range naps {
		m, sent := envelope{cid: 1, tag: int32(i)}, pattern(i, 100000)
		var r *operation
		w.wakes(nap, func(b *node) func() bool {
			if nap > 0 { // Without a nap the process sleeps before it is connected.
				w.exchange(a, b, envelope{cid: 1, tag: 9}, pattern(1, 8))
			}
			r = b.receive(nil, m, make([]byte, len(sent)))
			return func() bool { return r.isOver }
		}, func(b *node) *operation { return a.send(b, m, sent) })
		r.check(a, m.tag, sent)
	}
}

func (w *world) controlWakes() {
	for _, nap := range naps {
		w.wakes(nap, func(b *node) func() bool { return func() bool { return len(b.controlMessages) > 0 } },
			func(b *node) *operation { return w.nodesByRank[0].sendControl(b, []byte("wake up")) })
	}
}
