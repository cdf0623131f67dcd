package ofi

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/mtl"
)

// unansweredSends is a module with synchronous sends of these tags, in their order, to the peer whose nonce
// is 7, and those sends.
func unansweredSends(tags []int) (m *module, sends []*slot) {
	m = &module{layout: layout{data: true}, peers: make([]peer, 2), nonces: map[uint64]mtl.Endpoint{7: 1}}
	for _, tag := range tags {
		s := &slot{kind: synchronous, to: 1, tag: uint64(tag)}
		s.node.Owner = s
		m.expect(s)
		sends = append(sends, s)
	}
	return m, sends
}

// TestAnswerIsForTheOldestOfItsTag, whatever the order of the tags, as by a walk of all.
func TestAnswerIsForTheOldestOfItsTag(t *testing.T) {
	var tags []int
	for range 500 {
		tags = append(tags, rand.IntN(100))
	}
	m, sends := unansweredSends(tags)
	for _, tag := range slices.Concat(rand.Perm(110), rand.Perm(110), tags) {
		want := slices.IndexFunc(sends, func(s *slot) bool { return int(s.tag) == tag && !s.matched })
		m.answered(7, uint64(tag))
		for i, s := range sends {
			if !s.matched && i == want {
				t.Fatalf("an answer with tag %d was not for send %d", tag, i)
			}
		}
		if n := len(slices.DeleteFunc(slices.Clone(sends), func(s *slot) bool { return !s.matched })); want >= 0 {
			sends = slices.Delete(sends, want, want+1)
		} else if n > 0 {
			t.Fatalf("an answer with tag %d was for %d sends, and there is none", tag, n)
		}
	}
	m.answered(7, 1<<64-2) // a stranger's, with what is any tag elsewhere
	m.answered(8, 1)
	for _, s := range sends {
		if s.matched {
			t.Fatalf("a stranger's answer was for send with tag %d", s.tag)
		}
	}
}

// TestAnswerCostsTheSameHoweverManySendsWait.
func TestAnswerCostsTheSameHoweverManySendsWait(t *testing.T) {
	answer := func(n int) time.Duration {
		var tags []int
		for i := range n {
			tags = append(tags, i)
		}
		best := time.Hour
		for range 5 {
			m, _ := unansweredSends(tags)
			begin := time.Now()
			for i := range n {
				m.answered(7, uint64(n-1-i))
			}
			best = min(best, time.Since(begin)/time.Duration(n))
		}
		return best
	}
	few, many := answer(100), answer(20_000)
	if t.Log(few, many); many > 20*few {
		t.Errorf("an answer takes %v where 20000 wait, and %v where 100 do", many, few)
	}
}
