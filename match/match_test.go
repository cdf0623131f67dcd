package match

import (
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

// TestAnyOrderOfWildcardsMatchesLikeTheStandard compares with a model that
// keeps two plain slices and applies the sentences of MPI-4.1 section 3.5.
func TestAnyOrderOfWildcardsMatchesLikeTheStandard(t *testing.T) {
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
		tag := rapid.SampledFrom([]int{AnyTag, 0, 1, 2})
		for id := 1; id <= 60; id++ {
			switch rapid.IntRange(0, 4).Draw(t, "op") {
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
				e := entry{id, rapid.IntRange(0, ranks-1).Draw(t, "from"), rapid.IntRange(0, 2).Draw(t, "with")}
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
					q.Keep(&peers[e.source], &m.Message)
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

func TestProbeLeavesTheMessage(t *testing.T) {
	var q queues
	var p peer
	m := newMessage(1, 0, 7)
	q.Keep(&p, &m.Message)
	for range 2 {
		if got := q.Find(&p, AnySource, AnyTag); got != &m.Message {
			t.Fatal("a probe lost the message")
		}
	}
	if q.Find(&p, 0, 8) != nil {
		t.Fatal("a probe for another tag found the message")
	}
	q.Take(&m.Message)
	if q.Find(&p, 0, 7) != nil {
		t.Fatal("a claimed message is still found")
	}
}

func TestCancelInsideAWalkKeepsTheQueue(t *testing.T) {
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
