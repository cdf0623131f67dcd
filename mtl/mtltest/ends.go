package mtltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/progress"
)

func endCases() claims {
	return claims{
		kittest.Of("CloseWithEverythingInProgress", 2, closeBusy),
		kittest.Of("CloseLeavesNothingOpen", 2, closeLeaves),
		kittest.Of("WhatWasAcceptedArrivesAfterIdleAndClose", 2, idleThenClose),
		kittest.Of("PeerThatHasClosedDoesNotKeepOneFromIdleness", 2, idleAfterPeer),
		kittest.Of("ArrivalWakesASleepingEngine", 2, arrivalWakes),
		kittest.Of("ControlMessageWakesASleepingEngine", 2, controlWakes),
	}
}

// closeBusy closes a module with operations of every kind in progress. The world
// reports a Done that comes late.
func closeBusy(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	if err := w.exchange(ctx, a, b, envelope{cid: 1, tag: 1}, pattern(1, 8)); err != nil {
		return err
	}
	var bufs [][]byte
	for i, m := range []envelope{{cid: 1, tag: 2}, {cid: 1, tag: 3, mode: mtl.Synchronous}} {
		for _, n := range []int{8, 1 << 20} {
			if _, err := a.send(b, m, pattern(i, n)); err != nil {
				return err
			}
		}
	}
	for _, from := range []*node{nil, b, a} {
		buf := make([]byte, 1<<20)
		bufs = append(bufs, buf)
		if _, err := a.receive(from, envelope{cid: 1, tag: 4}, buf); err != nil {
			return err
		}
	}
	canceled, err := a.receive(nil, envelope{cid: 1, tag: 5}, make([]byte, 8))
	if err != nil {
		return err
	}
	canceled.cancel()
	if _, err := b.send(a, envelope{cid: 1, tag: 6}, pattern(1, 1<<20)); err != nil {
		return err
	}
	if _, err := a.find(ctx, b, envelope{cid: 1, tag: 6}, true); err != nil { // claimed, and never received
		return err
	}
	// It sends into the receives that are given up.
	if _, err := b.send(a, envelope{cid: 1, tag: 4}, bytes.Repeat([]byte{0xff}, 1<<20)); err != nil {
		return err
	}
	if _, err := a.sendControl(b, []byte("still here")); err != nil {
		return err
	}
	if err := a.close(); err != nil {
		return err
	}
	kept := make([][]byte, len(bufs))
	for i := range bufs {
		kept[i] = bytes.Clone(bufs[i])
	}
	if err := a.module.Close(); err != nil {
		return fmt.Errorf("closing again: %w", err)
	}
	for range 1000 {
		b.poll()
	}
	runtime.GC()
	for i := range bufs {
		if !bytes.Equal(kept[i], bufs[i]) {
			return errors.New("a buffer was written to after Close")
		}
	}
	return nil
}

func descriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func closeLeaves(ctx context.Context, w *world) error {
	cycle := func() error {
		return kittest.Run(ctx, func(t *kittest.T) {
			again := newWorld(t, w.subject, 2)
			t.Check(again.exchange(ctx, again.nodes[0], again.nodes[1], envelope{cid: 1, tag: 1}, pattern(1, 3000)))
		})
	}
	// What a library keeps for good it has by then.
	for range 2 {
		if err := cycle(); err != nil {
			return err
		}
	}
	before := descriptors()
	for range 5 {
		if err := cycle(); err != nil {
			return err
		}
	}
	// A library's threads may need a moment to close the last ones.
	var after int
	err := w.until(ctx, "descriptors", func() bool { after = descriptors(); return after <= before })
	if err != nil {
		return fmt.Errorf("%d descriptors were open, and %d are after five worlds: %w", before, after, err)
	}
	return nil
}

func idleThenClose(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	const count = 300
	for i := range count {
		if _, err := a.send(b, envelope{cid: 1, tag: 1}, pattern(i, 40)); err != nil {
			return err
		}
	}
	err := w.until(ctx, "idleness", func() (idle bool) {
		a.do(func() { idle = a.module.Idle() })
		return idle
	})
	if err != nil {
		return err
	}
	if err := a.close(); err != nil {
		return err
	}
	for i := range count {
		r, err := b.receive(nil, envelope{cid: 1, tag: 1}, make([]byte, 40))
		if err != nil {
			return err
		}
		err = w.until(ctx, fmt.Sprintf("message %d of who has closed", i), r.ended)
		if err == nil {
			err = r.check(a, 1, pattern(i, 40))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// idleAfterPeer has the receiver of the last message close first.
func idleAfterPeer(ctx context.Context, w *world) error {
	a, b := w.nodes[0], w.nodes[1]
	for i := range 20 {
		if err := w.exchange(ctx, a, b, envelope{cid: 1, tag: 1}, pattern(i, 8)); err != nil {
			return err
		}
	}
	if err := b.close(); err != nil {
		return err
	}
	for range 1000 { // so that a hears of it
		a.poll()
	}
	return w.until(ctx, "idleness, when the peer has closed", func() (idle bool) {
		a.do(func() { idle = a.module.Idle() })
		return idle
	})
}

// drowsy engines sleep at once when nothing is there.
var drowsy = progress.Options{Spin: 1, Yield: 1}

// asleep makes a second process whose engine sleeps until cond holds; the
// channel gets the outcome.
func (w *world) asleep(ctx context.Context, start func(*node) (cond func() bool, err error)) (*node, chan error, error) {
	if err := w.nodes[1].close(); err != nil {
		return nil, nil, err
	}
	b, err := w.open(ctx, 1, w.subject.Component, drowsy)
	if err != nil {
		return nil, nil, err
	}
	w.extra = append(w.extra, w.nodes[1])
	w.nodes[1] = b
	cond, err := start(b)
	if err != nil {
		return nil, nil, err
	}
	b.engine.Add(b)
	ended := make(chan error, 1)
	go func() {
		b.engine.Lock()
		defer b.engine.Unlock()
		for !cond() {
			b.news.Reset()
			if err := b.engine.Wait(ctx, &b.news, nil); err != nil {
				ended <- fmt.Errorf("asleep: %w", err)
				return
			}
		}
		ended <- nil
	}()
	return b, ended, nil
}

// await polls a until the sleeper has woken up.
func await(ctx context.Context, a *node, ended chan error) error {
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return fmt.Errorf("the sleeper was not woken: %w", context.Cause(ctx))
		default:
			a.poll()
			runtime.Gosched()
		}
	}
}

// naps are how long the sleeper is left alone: not at all, and so that it has
// been asleep for certain, whatever that means to a module.
var naps = []time.Duration{0, 50 * time.Millisecond}

func arrivalWakes(ctx context.Context, w *world) error {
	a := w.nodes[0]
	for i, nap := range naps {
		var r *operation
		b, ended, err := w.asleep(ctx, func(b *node) (cond func() bool, err error) {
			if nap > 0 { // the other one sleeps before it was ever connected
				if err := w.exchange(ctx, a, b, envelope{cid: 1, tag: 9}, pattern(1, 8)); err != nil {
					return nil, err
				}
			}
			r, err = b.receive(nil, envelope{cid: 1, tag: int32(i)}, make([]byte, 100000))
			return func() bool { return r.over }, err
		})
		if err != nil {
			return err
		}
		time.Sleep(nap) // not to wait for anything: it is what is tested
		s, err := a.send(b, envelope{cid: 1, tag: int32(i)}, pattern(i, 100000))
		if err == nil {
			err = await(ctx, a, ended)
		}
		if err == nil {
			err = w.until(ctx, "the send", s.ended, b)
		}
		if err == nil {
			b.do(func() { err = r.check(a, int32(i), pattern(i, 100000)) })
		}
		b.engine.Remove(b)
		if err != nil {
			return err
		}
	}
	return nil
}

func controlWakes(ctx context.Context, w *world) error {
	a := w.nodes[0]
	for _, nap := range naps {
		b, ended, err := w.asleep(ctx, func(b *node) (func() bool, error) {
			return func() bool { return len(b.control) > 0 }, nil
		})
		if err != nil {
			return err
		}
		time.Sleep(nap)
		_, err = a.sendControl(b, []byte("wake up"))
		if err == nil {
			err = await(ctx, a, ended)
		}
		b.engine.Remove(b)
		if err != nil {
			return err
		}
	}
	return nil
}
