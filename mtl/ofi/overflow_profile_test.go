package ofi_test

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// endpointMap resolves the endpoints of sources for acks.
type endpointMap struct {
	discardUpcall
	to map[int]mtl.Endpoint
}

func (b *endpointMap) Endpoint(_ uint32, source int) (mtl.Endpoint, bool) {
	to, ok := b.to[source]
	return to, ok
}

// openScarce opens n modules over a provider with space for 16 receives, with faults.
func openScarce(t testing.TB, n int32, layout string, faults ...string) (all []*member) {
	t.Helper()
	lib := useProfiles(t, "cxi", append(faults, "queues=16")...)
	set := func(p any) {
		withProvider(lib, "cxi")(p)
		ofi.SetLayout(p, layout)
	}
	up := &endpointMap{to: map[int]mtl.Endpoint{}}
	for rank := range n {
		m, err := openUnder(up, "job", rank, set)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		all = append(all, &member{t, m, rank})
	}
	for rank := range n {
		up.to[int(rank)] = all[0].to(all[rank])
	}
	return all
}

// openOverflowing opens two modules. The first has more posted receives than space, none of which gets a message, so that further receives wait.
func openOverflowing(t testing.TB, layout string) (a, b *member) {
	t.Helper()
	all := openScarce(t, 2, layout)
	a, b = all[0], all[1]
	for range 40 {
		if _, err := a.receive(b, 99, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// pollUntil polls both modules until the operations are complete.
func pollUntil(t *testing.T, a, b *member, all ...*onceOp) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for i, o := range all {
		for o.completions == 0 {
			if time.Now().After(end) {
				t.Fatalf("operation %d of %d does not end", i, len(all))
			}
			a.m.Poll()
			b.m.Poll()
		}
		if o.Err != nil {
			t.Fatalf("operation %d: %v", i, o.Err)
		}
	}
}

// A message completes the first receive that matches it.
func TestOverflow_UnmatchedReceives_DoNotBlockOthers(t *testing.T) {
	for _, layout := range []string{"data", "packed"} {
		t.Run(layout, func(t *testing.T) {
			a, b := openOverflowing(t, layout)
			must := mustPost(t)
			for round := range int32(20) {
				seven := must(a.receive(nil, 7, make([]byte, 8)))
				any1 := must(a.receive(b, mtl.AnyTag, make([]byte, 8)))
				eight := must(a.receive(b, 8, make([]byte, 8)))
				any2 := must(a.receive(nil, mtl.AnyTag, make([]byte, 8)))
				var sent []*onceOp
				for _, tag := range []int32{20, 8, 7, 30} {
					sent = append(sent, must(b.send(a, tag, make([]byte, 8), mtl.Standard)))
					for range round { // A peek may be in progress when the next message arrives.
						a.m.Poll()
					}
				}
				pollUntil(t, a, b, append(sent, seven, any1, eight, any2)...)
				for i, want := range []int32{7, 20, 8, 30} {
					if got := []*onceOp{seven, any1, eight, any2}[i].Tag; got != want {
						t.Errorf("round %d: receive %d has tag %d, want %d", round, i, got, want)
					}
				}
			}
		})
	}
}

func TestOverflow_SteadyState_AllocatesNothing(t *testing.T) {
	all := openScarce(t, 2, "data")
	a, b := all[0], all[1]
	from, to, buf := a.to(b), b.to(a), make([]byte, 8)
	sends, receives := make([]*onceOp, 40), make([]*onceOp, 40)
	for i := range sends {
		sends[i], receives[i] = newOnceOp(), newOnceOp()
	}
	window := func() {
		for i := range sends {
			sends[i].completions, receives[i].completions = 0, 0
			if err := a.m.Recv(&receives[i].Op, from, mtl.Envelope{CID: 1, Source: 1, Tag: int32(i)}, buf); err != nil {
				t.Fatal(err)
			}
		}
		for i := range sends { // The youngest receive gets the first message.
			done, err := b.m.Send(&sends[i].Op, to, mtl.Envelope{CID: 1, Source: 1, Tag: int32(len(sends) - 1 - i)}, buf, mtl.Standard)
			if err != nil {
				t.Fatal(err)
			}
			if done {
				sends[i].completions++
			}
		}
		pollUntil(t, a, b, sends...)
		pollUntil(t, a, b, receives...)
	}
	window() // The first contact.
	if n := testing.AllocsPerRun(20, window); n > 0 {
		t.Errorf("%v allocations for a window", n)
	}
}

// The last waiting receive is canceled during the peek, and the provider has space again.
func TestOverflow_PeekFindsMessageOfLaterReceive_IsDelivered(t *testing.T) {
	all := openScarce(t, 2, "data", "peeks=3")
	a, b := all[0], all[1]
	if err := exchange(t, b, a, 8); err != nil { // The first contact.
		t.Fatal(err)
	}
	for polls := range 12 {
		var crowd []*onceOp
		for range 40 {
			crowd = append(crowd, mustPost(t)(a.receive(b, 99, make([]byte, 8))))
		}
		sent := mustPost(t)(b.send(a, 7, make([]byte, 8), mtl.Standard))
		for range polls {
			b.m.Poll()
			a.m.Poll()
		}
		a.m.Cancel(&crowd[0].Op)
		a.m.Poll() // The provider has space again.
		for _, o := range crowd[1:] {
			a.m.Cancel(&o.Op)
		}
		r := mustPost(t)(a.receive(b, 7, make([]byte, 8)))
		pollUntil(t, a, b, append(crowd, sent, r)...)
	}
}

func TestOverflow_CancelDuringPeek_LosesNoMessage(t *testing.T) {
	a, b := openOverflowing(t, "packed")
	for polls := range 60 {
		r, err := a.receive(b, 5, make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.send(a, 5, make([]byte, 8), mtl.Standard)
		if err != nil {
			t.Fatal(err)
		}
		for range polls {
			a.m.Poll()
		}
		if r.completions == 0 {
			a.m.Cancel(&r.Op)
		}
		pollUntil(t, a, b, r, s)
		if r.Canceled {
			again, err := a.receive(b, 5, make([]byte, 8))
			if err != nil {
				t.Fatal(err)
			}
			pollUntil(t, a, b, again)
		}
	}
}
