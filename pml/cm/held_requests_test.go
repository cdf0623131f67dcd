package cm_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/pmltest"
)

// cancelOf starts n operations that wait, and returns the lowest measured cost of canceling one
// that waits behind them.
func cancelOf(t *testing.T, n int, begin func() started) time.Duration {
	t.Helper()
	var all []started
	for range n {
		all = append(all, begin())
	}
	best := time.Hour
	for range 200 {
		one := begin()
		from := time.Now()
		err := one.r.Cancel(one.gen)
		best = min(best, time.Since(from))
		if st, end := one.wait(t); err != nil || end != nil || !st.Canceled {
			t.Fatalf("it is not canceled: %+v %v %v", st, err, end)
		}
	}
	for _, one := range slices.Backward(all) {
		if err := one.r.Cancel(one.gen); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range all {
		if st, err := one.wait(t); err != nil || !st.Canceled {
			t.Fatalf("it is not canceled: %+v %v", st, err)
		}
	}
	return best
}

const few, many, mostRatio = 10, 20_000, 12

// TestCancel_HeldSend_IsConstantTime compares the cost behind few and many held sends.
func TestCancel_HeldSend_IsConstantTime(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	c := w.Comms(t, cid.PolicyLazy)
	w.Procs[1].Engine.Lock() // It sends no reply.
	defer w.Procs[1].Engine.Unlock()
	begin := func() started { return start(t)(isend(c[0], 1, 1, pml.Standard)) }
	shallow, deep := cancelOf(t, few, begin), cancelOf(t, many, begin)
	if t.Log(shallow, deep); deep > mostRatio*shallow {
		t.Errorf("it takes %v behind %d, and %v behind %d", deep, many, shallow, few)
	}
}

// dropOf returns the lowest measured cost of dropping messages of a closed communicator beside n
// receives of another one.
func dropOf(t *testing.T, n int) time.Duration {
	t.Helper()
	const messages = 1000
	w := pmltest.OpenWorld(t, stack(mtltest.Options{}), 2)
	others := w.Comms(t, cid.PolicyAgree)
	for range n {
		start(t)(recvInto(others[1], 0, 1))
	}
	dropped := func() (n uint64) {
		for _, s := range w.Procs[1].Module.Stats() {
			n += s.Dropped
		}
		return n
	}
	best := time.Hour
	for range 5 {
		before, c := dropped(), w.Comms(t, cid.PolicyAgree)
		for range messages {
			send(t, c[0], 1, 1, "x")
		}
		if _, err := c[1].Probe(t.Context(), 0, 1, pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		c[1].Close()
		until(t, "dropped messages", func() bool { return dropped() == before+messages })
		best = min(best, time.Since(from))
		c[0].Close()
	}
	return best
}

// TestDrop_ManyReceivesOfOtherCommunicator_VisitsThemOnce checks that the cost per message does not depend on them.
func TestDrop_ManyReceivesOfOtherCommunicator_VisitsThemOnce(t *testing.T) {
	shallow, deep := dropOf(t, few), dropOf(t, many)
	if t.Log(shallow, deep); deep > mostRatio/2*shallow {
		t.Errorf("1000 messages take %v beside %d receives, and %v beside %d", deep, many, shallow, few)
	}
}

// pulling sends messages with these tags from rank 0, the first of one byte and each one byte longer
// than the one before, and pulls them at rank 1. It calls f while the first probe is in progress.
func pullState(t *testing.T, tags []int, f func(c pml.Comm)) {
	t.Helper()
	s, st := newSlowProbes(1, mtltest.Options{})
	w := pmltest.OpenWorld(t, st, 2)
	c := w.Comms(t, cid.PolicyAgree)
	for i, tag := range tags {
		send(t, c[0], 1, tag, strings.Repeat("x", i+1))
	}
	if n := len(tags); n > 0 { // All have arrived.
		if _, err := c[1].Probe(t.Context(), 0, tags[n-1], pml.PointToPoint); err != nil {
			t.Fatal(err)
		}
	}
	pulled := s.pull(t, w.Procs[1].Module, 0)
	f(c[1])
	s.release()
	<-pulled
}

// TestCancel_DeferredReceive_IsConstantTime compares the cost behind few and many deferred receives.
func TestCancel_DeferredReceive_IsConstantTime(t *testing.T) {
	pullState(t, nil, func(c pml.Comm) {
		begin := func() started { return start(t)(recvInto(c, 0, 1)) }
		shallow, deep := cancelOf(t, few, begin), cancelOf(t, many, begin)
		if t.Log(shallow, deep); deep > mostRatio*shallow {
			t.Errorf("it takes %v behind %d, and %v behind %d", deep, many, shallow, few)
		}
	})
}

// TestPull_DeferredReceives_MatchInOrder checks that each message is delivered to
// the oldest receive that matches it.
func TestPull_DeferredReceives_MatchInOrder(t *testing.T) {
	for seed := range uint64(10) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var tags []int // Of the messages.
		for range 60 {
			tags = append(tags, rnd.IntN(12))
		}
		tags = append(tags, 99)
		type receive struct {
			started
			tag int
			// Length of the message, -1 for none.
			want int
		}
		var all []*receive
		pullState(t, tags, func(c pml.Comm) {
			for range 100 {
				r := &receive{tag: rnd.IntN(12), want: -1}
				if rnd.IntN(8) == 0 {
					r.tag = pml.AnyTag
				}
				r.started = start(t)(recvInto(c, []int{0, pml.AnySource}[rnd.IntN(2)], r.tag))
				all = append(all, r)
				if i := rnd.IntN(len(all)); rnd.IntN(4) == 0 {
					if err := all[i].r.Cancel(all[i].gen); err != nil {
						t.Fatal(err)
					}
					if st, err := all[i].wait(t); err != nil || !st.Canceled {
						t.Fatalf("it is not canceled: %+v %v", st, err)
					}
					all = slices.Delete(all, i, i+1)
				}
			}
		})
		for i, tag := range tags {
			k := slices.IndexFunc(all, func(r *receive) bool { return r.want < 0 && (r.tag == tag || r.tag == pml.AnyTag) })
			if k >= 0 {
				all[k].want = i
			}
		}
		for i, r := range all {
			if r.want < 0 {
				if err := r.r.Cancel(r.gen); err != nil {
					t.Fatal(err)
				}
			}
			st, err := r.wait(t)
			if err != nil || st.Canceled != (r.want < 0) || r.want >= 0 && (st.Tag != tags[r.want] || st.Bytes != r.want+1) {
				t.Fatalf("seed %d: receive %d with tag %d: %+v %v, and message %d is for it", seed, i, r.tag, st, err, r.want)
			}
		}
	}
}

// canceler is a notifier that cancels another operation.
type canceler struct{ other *pml.Request }

// Completed implements pml.Notifier.
func (k *canceler) Completed(r *pml.Request) {
	r.Take(r.Generation())
	k.other.CancelLocked()
}

// TestDrain_NotifierCancelsHeldSend_OthersAreSent checks that the other held sends leave.
func TestDrain_NotifierCancelsHeldSend_OthersAreSent(t *testing.T) {
	w := pmltest.OpenWorld(t, stack(eager), 2)
	c := w.Comms(t, cid.PolicyLazy)
	w.Procs[1].Engine.Lock() // It sends no reply yet.
	w.Procs[0].Engine.Lock()
	var all []started
	for tag := range 4 {
		all = append(all, start(t)(c[0].StartSend(text(fmt.Sprint(tag)), 1, tag, pml.PointToPoint, pml.Standard)))
	}
	all[0].r.Notify(&canceler{all[2].r})
	w.Procs[0].Engine.Unlock()
	w.Procs[1].Engine.Unlock()
	for _, tag := range []int{0, 1, 3} {
		receive(t, c[1], 0, pml.AnyTag, fmt.Sprint(tag))
	}
	for tag, one := range all[1:] {
		if st, err := one.wait(t); err != nil || st.Canceled != (tag+1 == 2) {
			t.Errorf("send %d: %+v %v", tag+1, st, err)
		}
	}
}
