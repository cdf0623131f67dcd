package match

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type recv struct {
	Recv[recv]
	id int
}

type message struct {
	Message[message]
	id int
}

type queues = Queues[recv, message]
type peer = Peer[recv, message]

func newRecv(id, source, tag int) *recv {
	r := &recv{id: id}
	r.Owner, r.Source, r.Tag = r, source, tag
	return r
}

func newMessage(id, source, tag int) *message {
	m := &message{id: id}
	m.Owner, m.Source, m.Tag = m, source, tag
	return m
}

// TestQueues_AnyOrderWithWildcards_MatchLikeModel compares with a model that keeps two slices and applies the
// rules of MPI-4.1 section 3.5.
func TestQueues_AnyOrderWithWildcards_MatchLikeModel(t *testing.T) {
	t.Run("short queues", func(t *testing.T) { likeTheStandard(t, 60, []int{AnyTag, 0, 1, 2}, 1) })
	// Bursts of one kind, so that indices are activated and deactivated.
	var tags []int
	for tag := range 100 {
		tags = append(tags, tag*7)
	}
	t.Run("long queues", func(t *testing.T) { likeTheStandard(t, 600, append(tags, AnyTag, AnyTag), 120) })
}

func likeTheStandard(t *testing.T, steps int, tags []int, burst int) {
	const ranks = 3
	rapid.Check(t, func(t *rapid.T) {
		var q queues
		var peers [ranks]peer
		type entry struct{ id, source, tag int }
		var posted, unexpected []entry
		live := map[int]*recv{}
		matches := func(r, m entry) bool {
			return (r.source == AnySource || r.source == m.source) && (r.tag == AnyTag || r.tag == m.tag)
		}
		peerOf := func(source int) *peer {
			if source == AnySource {
				return nil
			}
			return &peers[source]
		}
		source := rapid.IntRange(AnySource, ranks-1)
		tag := rapid.SampledFrom(tags)
		real := rapid.SampledFrom(slices.DeleteFunc(slices.Clone(tags), func(tag int) bool { return tag == AnyTag }))
		op, left := 0, 0
		for id := 1; id <= steps; id++ {
			if left--; left <= 0 {
				op, left = rapid.IntRange(0, 4).Draw(t, "op"), rapid.IntRange(1, burst).Draw(t, "burst")
			}
			switch op {
			case 0, 1: // post
				e := entry{id, source.Draw(t, "source"), tag.Draw(t, "tag")}
				r := newRecv(id, e.source, e.tag)
				got := q.Post(peerOf(e.source), &r.Recv)
				want := -1
				for i, m := range unexpected {
					if matches(e, m) {
						want = i
						break
					}
				}
				switch {
				case want < 0 && got != nil:
					t.Fatalf("receive %+v matched message %d, and none should", e, got.Owner.id)
				case want < 0:
					posted = append(posted, e)
					live[id] = r
				case got == nil:
					t.Fatalf("receive %+v matched nothing, not message %d", e, unexpected[want].id)
				case got.Owner.id != unexpected[want].id:
					t.Fatalf("receive %+v matched message %d, not the earlier %d", e, got.Owner.id, unexpected[want].id)
				default:
					unexpected = append(unexpected[:want:want], unexpected[want+1:]...)
				}
			case 2, 3: // arrive
				e := entry{id, rapid.IntRange(0, ranks-1).Draw(t, "from"), real.Draw(t, "with")}
				got := q.Arrive(&peers[e.source], e.tag)
				want := -1
				for i, r := range posted {
					if matches(r, e) {
						want = i
						break
					}
				}
				switch {
				case want < 0 && got != nil:
					t.Fatalf("message %+v matched receive %d, and none should", e, got.Owner.id)
				case want < 0:
					m := newMessage(id, e.source, e.tag)
					q.AddUnexpected(&peers[e.source], &m.Message)
					unexpected = append(unexpected, e)
				case got == nil:
					t.Fatalf("message %+v matched nothing, not receive %d", e, posted[want].id)
				case got.Owner.id != posted[want].id:
					t.Fatalf("message %+v matched receive %d, not the earlier %d", e, got.Owner.id, posted[want].id)
				default:
					delete(live, posted[want].id)
					posted = append(posted[:want:want], posted[want+1:]...)
				}
			case 4: // cancel
				if len(posted) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(posted)-1).Draw(t, "cancel")
				r := live[posted[i].id]
				if !q.Cancel(&r.Recv) {
					t.Fatalf("receive %d is queued and can't be canceled", r.id)
				}
				if q.Cancel(&r.Recv) {
					t.Fatalf("receive %d was canceled twice", r.id)
				}
				posted = append(posted[:i:i], posted[i+1:]...)
			}
			n := 0
			q.Unexpected(func(m *Message[message]) {
				if m.Owner.id != unexpected[n].id {
					t.Fatalf("unexpected queue out of order at %d", n)
				}
				n++
			})
			if n != len(unexpected) {
				t.Fatalf("%d unexpected messages, want %d", n, len(unexpected))
			}
			n = 0
			count := func(*Recv[recv]) { n++ }
			q.Posted(nil, count)
			for i := range peers {
				q.Posted(&peers[i], count)
			}
			if n != len(posted) {
				t.Fatalf("%d posted receives, want %d", n, len(posted))
			}
		}
	})
}

func TestFind_MatchingMessage_StaysQueued(t *testing.T) {
	var q queues
	var p peer
	m := newMessage(1, 0, 7)
	q.AddUnexpected(&p, &m.Message)
	for range 2 {
		if got := q.Find(&p, AnySource, AnyTag); got != &m.Message {
			t.Fatal("a probe lost the message")
		}
	}
	if q.Find(&p, 0, 8) != nil {
		t.Fatal("a probe for another tag found the message")
	}
	q.RemoveUnexpected(&m.Message)
	if q.Find(&p, 0, 7) != nil {
		t.Fatal("a claimed message is still found")
	}
}

func TestPosted_CancelDuringWalk_KeepsQueue(t *testing.T) {
	var q queues
	var p peer
	for i := range 5 {
		q.Post(&p, &newRecv(i, 0, i).Recv)
	}
	seen := 0
	q.Posted(&p, func(r *Recv[recv]) {
		seen++
		if r.Tag%2 == 0 {
			q.Cancel(r)
		}
	})
	left := 0
	q.Posted(&p, func(*Recv[recv]) { left++ })
	if seen != 5 || left != 2 {
		t.Fatalf("saw %d and left %d receives, want 5 and 2", seen, left)
	}
}

// TestOrder_ReceivesOfAllSources_KeepsOrder covers receives that are in Queues too.
func TestOrder_ReceivesOfAllSources_KeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queues
		var peers [2]peer
		var o Order[recv]
		var want []*recv
		for id := range 100 {
			switch source := rapid.IntRange(AnySource, 1).Draw(t, "source"); rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				r := newRecv(id, source, id%70)
				q.Post(&peers[max(source, 0)], &r.Recv)
				o.Push(&r.Recv)
				want = append(want, r)
			case 2:
				if len(want) > 0 {
					i := rapid.IntRange(0, len(want)-1).Draw(t, "cancel")
					q.Cancel(&want[i].Recv)
					o.Remove(&want[i].Recv)
					want = slices.Delete(want, i, i+1)
				}
			default:
				if r := q.Arrive(&peers[max(source, 0)], id%70); r != nil {
					o.Remove(r)
					want = slices.DeleteFunc(want, func(x *recv) bool { return x == r.Owner })
				}
			}
			if first := o.First(); (first == nil) != (len(want) == 0) || first != nil && first.Owner != want[0] {
				t.Fatalf("%v is the first, not the first of %d", first, len(want))
			}
		}
		for _, r := range want {
			if o.First() != &r.Recv {
				t.Fatalf("receive %d is not the next one", r.id)
			}
			o.Remove(&r.Recv)
		}
	})
}

// TestIndex_AfterBurst_IsDeactivated checks that a short queue is walked again, and that the table of a burst is
// freed.
func TestIndex_AfterBurst_IsDeactivated(t *testing.T) {
	var q queues
	var p peer
	fill := func(n int) {
		for i := range n {
			q.Post(&p, &newRecv(i, 0, i).Recv)
		}
		for i := n - 1; i >= 0; i-- {
			if r := q.Arrive(&p, i); r == nil || r.Owner.id != i {
				t.Fatalf("a message with tag %d found %v", i, r)
			}
		}
	}
	fill(5000)
	if x := p.posted.tagIndex; x == nil || x.isActive {
		t.Fatal("no index was made, or it is on for an empty list")
	}
	if n := len(p.posted.tagIndex.slots); n < 5000 {
		t.Fatalf("the index has %d slots for 5000 tags", n)
	}
	fill(3)
	if p.posted.tagIndex.isActive {
		t.Fatal("three receives have an index")
	}
	fill(100)
	fill(100)
	if n := len(p.posted.tagIndex.slots); n > 1000 {
		t.Fatalf("%d slots stay, for 100 tags", n)
	}
}

// TestQueues_DeepSteadyState_AllocatesNothing checks that the index of a queue that fills and empties keeps its
// table.
func TestQueues_DeepSteadyState_AllocatesNothing(t *testing.T) {
	var q queues
	var p peer
	rs := make([]*recv, 1000)
	for i := range rs {
		rs[i] = newRecv(i, 0, i)
	}
	allocs := testing.AllocsPerRun(20, func() {
		for _, r := range rs {
			q.Post(&p, &r.Recv)
		}
		for i := range rs {
			if q.Arrive(&p, len(rs)-1-i) == nil {
				t.Fatal("no match")
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// BenchmarkDepth matches a message in a queue of this depth, in the order of posting, in the opposite or a random
// order, by tag, and by tag from any source.
func BenchmarkDepth(b *testing.B) {
	for _, depth := range []int{10, 1000, 10000, 50000} {
		for _, order := range []string{"forwards", "backwards", "random"} {
			for _, source := range []int{0, AnySource} {
				b.Run(fmt.Sprintf("posted/%s/source=%d/%d", order, source, depth), func(b *testing.B) { deep(b, depth, order, source, true) })
				b.Run(fmt.Sprintf("unexpected/%s/source=%d/%d", order, source, depth), func(b *testing.B) { deep(b, depth, order, source, false) })
			}
		}
	}
}

func deep(b *testing.B, depth int, order string, source int, posted bool) {
	var q queues
	var p peer
	rs, ms, tags := make([]*recv, depth), make([]*message, depth), make([]int, depth)
	for i := range depth {
		rs[i], ms[i], tags[i] = newRecv(i, source, i), newMessage(i, 0, i), i
	}
	switch order {
	case "backwards":
		slices.Reverse(tags)
	case "random":
		rand.Shuffle(depth, func(i, k int) { tags[i], tags[k] = tags[k], tags[i] })
	}
	n := 0
	for b.Loop() {
		if i := n % depth; i == 0 {
			for i := range depth {
				if posted {
					q.Post(&p, &rs[i].Recv)
				} else {
					q.AddUnexpected(&p, &ms[i].Message)
				}
			}
		}
		tag := tags[n%depth]
		n++
		if posted && q.Arrive(&p, tag) == nil || !posted && q.Post(&p, &rs[tag].Recv) == nil {
			b.Fatal("no match")
		}
	}
}

func BenchmarkPostThenArrive(b *testing.B) {
	var q queues
	var p peer
	r := newRecv(0, 0, 3)
	for b.Loop() {
		q.Post(&p, &r.Recv)
		if q.Arrive(&p, 3) == nil {
			b.Fatal("no match")
		}
	}
}
