package ofi_test

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// book answers where peers are.
type book struct {
	deaf
	to map[int]mtl.Endpoint
}

func (b *book) Endpoint(_ uint32, source int) (mtl.Endpoint, bool) {
	to, ok := b.to[source]
	return to, ok
}

// crowded are two processes over a provider with room for 16 receives. The first has posted
// more than that, which nobody serves, so that those to come wait.
func crowded(t *testing.T, layout string) (a, b *member) {
	t.Helper()
	lib := profiles(t, "cxi", "queues=16")
	set := func(p any) {
		using(lib, "cxi")(p)
		ofi.SetLayout(p, layout)
	}
	up := &book{to: map[int]mtl.Endpoint{}}
	var all []*member
	for rank := range int32(2) {
		m, err := openUnder(up, "job", rank, set)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		all = append(all, &member{t, m, rank})
	}
	a, b = all[0], all[1]
	up.to[1] = a.to(b)
	for range 40 {
		if _, err := a.receive(b, 99, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

// pollUntil polls both until the operations are over.
func pollUntil(t *testing.T, a, b *member, all ...*once) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for i, o := range all {
		for o.ends == 0 {
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

// TestReceivesInVainDoNotKeepThoseBehindFromTheirMessages, and a message goes to the first of
// those that match it, whichever was looked for when it came.
func TestReceivesInVainDoNotKeepThoseBehindFromTheirMessages(t *testing.T) {
	for _, layout := range []string{"data", "packed"} {
		t.Run(layout, func(t *testing.T) {
			a, b := crowded(t, layout)
			must := func(o *once, err error) *once {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
			for round := range int32(20) {
				seven := must(a.receive(nil, 7, make([]byte, 8)))
				any1 := must(a.receive(b, mtl.AnyTag, make([]byte, 8)))
				eight := must(a.receive(b, 8, make([]byte, 8)))
				any2 := must(a.receive(nil, mtl.AnyTag, make([]byte, 8)))
				var sent []*once
				for _, tag := range []int32{20, 8, 7, 30} {
					sent = append(sent, must(b.send(a, tag, make([]byte, 8), mtl.Standard)))
					for range round { // what is looked for when the next one comes
						a.m.Poll()
					}
				}
				pollUntil(t, a, b, append(sent, seven, any1, eight, any2)...)
				for i, want := range []int32{7, 20, 8, 30} {
					if got := []*once{seven, any1, eight, any2}[i].Tag; got != want {
						t.Errorf("round %d: receive %d has tag %d, want %d", round, i, got, want)
					}
				}
			}
		})
	}
}

// TestReceivesBehindThoseInVainAreCanceled while they are looked for, and lose no message.
func TestReceivesBehindThoseInVainAreCanceled(t *testing.T) {
	a, b := crowded(t, "packed")
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
		if r.ends == 0 {
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
