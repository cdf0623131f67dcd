package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// goodStories are those of a storm in which all went as it should: the faulty rank did
// nothing with the others before its fault.
func goodStories(s *storm) []*story {
	all := make([]*story, s.ranks)
	for rank := range all {
		st := &story{Rank: rank, Sent: map[int]string{}, Got: map[int]string{}, Peers: make([]chapter, s.ranks), Bye: map[int]string{}}
		for i, stream := range s.streams {
			if stream.from != rank && stream.to != rank {
				continue
			}
			var sent, got strings.Builder
			for _, m := range stream.messages {
				a, b := rune(accepted), rune(received)
				if m.hold == never {
					a, b = left, left
				}
				if concerned := s.faulty(stream.from) || s.faulty(stream.to); concerned && s.kind != "shortage" {
					a, b = untried, untried
					if s.kind != "close" || !s.faulty(rank) {
						peer := stream.from + stream.to - rank
						a = rune(judgeOf(s).classes(rank, peer)[0])
						b = a
					}
				}
				sent.WriteRune(a)
				got.WriteRune(b)
			}
			if stream.from == rank {
				st.Sent[i] = sent.String()
			}
			if stream.to == rank {
				st.Got[i] = got.String()
			}
		}
		all[rank] = st
	}
	if s.kind == "kill" {
		all[s.fault.rank] = nil
	}
	return all
}

func judgeOf(s *storm) *judge { return &judge{storm: s} }

// endings are how ranks with such stories end.
func endings(s *storm, stories []*story) []ending {
	ends := make([]ending, s.ranks)
	for rank, st := range stories {
		if st == nil {
			ends[rank].err = errors.New("signal: killed")
			continue
		}
		text, err := json.Marshal(st)
		if err != nil {
			panic(err)
		}
		ends[rank].out = fmt.Sprintf("\n%s%s\n", storyMark, text)
	}
	return ends
}

// TestStoriesThatDontAgreeAreFound: the judge of storms finds each thing that a storm
// looks for, and nothing where all is well.
func TestStoriesThatDontAgreeAreFound(t *testing.T) {
	// set changes what is said of the first message between two ranks of a class.
	set := func(s *storm, stories []*story, sent bool, k byte, from, to func(int) bool) {
		for i, st := range s.streams {
			if from(st.from) && to(st.to) && st.messages[0].hold == 0 {
				if sent {
					stories[st.from].Sent[i] = string(k) + stories[st.from].Sent[i][1:]
				} else {
					stories[st.to].Got[i] = string(k) + stories[st.to].Got[i][1:]
				}
				return
			}
		}
		t.Fatalf("%v has no such stream", s)
	}
	for _, c := range []struct {
		kind, want string
		change     func(s *storm, stories []*story, faulty, healthy func(int) bool)
	}{
		{"kill", "", nil},
		{"close", "", nil},
		{"cut", "", nil},
		{"kill", "lost", func(s *storm, stories []*story, _, healthy func(int) bool) {
			set(s, stories, false, untried, healthy, healthy)
		}},
		{"kill", "class of a receive: T", func(s *storm, stories []*story, faulty, healthy func(int) bool) {
			set(s, stories, false, transport, faulty, healthy)
		}},
		{"kill", "class of a send: P", func(s *storm, stories []*story, _, healthy func(int) bool) {
			set(s, stories, true, procFailed, healthy, healthy)
		}},
		{"kill", "accepted", func(s *storm, stories []*story, faulty, healthy func(int) bool) {
			set(s, stories, true, tooLate, healthy, faulty)
		}},
		{"kill", "hang: recv", func(s *storm, stories []*story, _, healthy func(int) bool) {
			stories[other(s)].Hangs = []chapter{{Op: "recv 3 of stream 4", At: 1}}
		}},
		{"kill", "crash", func(s *storm, stories []*story, _, _ func(int) bool) { stories[other(s)] = nil }},
		{"kill", "wrong: contents", func(s *storm, stories []*story, _, _ func(int) bool) {
			stories[other(s)].Wrong = []string{"contents: of message 3"}
		}},
		{"kill", "no farewell", func(s *storm, stories []*story, _, _ func(int) bool) { stories[other(s)].Bye[0] = "P" }},
		{"kill", "no communicator of the rest", func(s *storm, stories []*story, _, _ func(int) bool) { stories[other(s)].Rest = "deadline" }},
		{"kill", "innocent pair", func(s *storm, stories []*story, _, healthy func(int) bool) {
			for peer := range s.ranks {
				if peer != other(s) && healthy(peer) {
					stories[other(s)].Peers[peer] = chapter{Class: "P"}
				}
			}
		}},
		{"kill", "class of late ssend", func(s *storm, stories []*story, _, _ func(int) bool) {
			stories[other(s)].Late = []chapter{{Op: "ssend", Class: "C", Peer: s.fault.rank}}
		}},
		{"kill", "close", func(s *storm, stories []*story, _, _ func(int) bool) {
			stories[other(s)].Closed = "session.linger"
		}},
		{"close", "lost", func(s *storm, stories []*story, faulty, healthy func(int) bool) {
			set(s, stories, true, accepted, faulty, healthy)
		}},
		{"close", "lost", func(s *storm, stories []*story, faulty, healthy func(int) bool) {
			set(s, stories, true, open, faulty, healthy)
		}},
		{"close", "", func(s *storm, stories []*story, faulty, healthy func(int) bool) {
			stories[s.fault.rank].Closed = "session.linger=1s"
			set(s, stories, true, open, faulty, healthy)
		}},
		{"close", "received, not sent", func(s *storm, stories []*story, faulty, healthy func(int) bool) {
			set(s, stories, false, received, faulty, healthy)
		}},
		{"close", "class of a receive: P", func(s *storm, stories []*story, faulty, healthy func(int) bool) {
			set(s, stories, false, procFailed, faulty, healthy)
		}},
		{"shortage", "one end", func(s *storm, stories []*story, _, _ func(int) bool) {
			stories[0].Peers[1] = chapter{Class: "T"}
		}},
		{"shortage", "", func(s *storm, stories []*story, _, _ func(int) bool) {
			stories[0].Peers[1], stories[1].Peers[0] = chapter{Class: "T"}, chapter{Class: "T"}
		}},
	} {
		seed := uint64(0) // of one with four ranks, all of which exchange something
		s := newStorm(c.kind, "ob1+shm", seed)
		for s.ranks != 4 || s.comms != 1 || s.fault.early || s.fault.rank == everywhere || s.orderly(s.fault.rank) || len(s.streams) < 12 || s.noFallback {
			seed++
			s = newStorm(c.kind, "ob1+shm", seed)
		}
		stories := goodStories(s)
		if c.change != nil {
			c.change(s, stories, s.faulty, func(rank int) bool { return !s.faulty(rank) })
		}
		findings, _ := compare(s, endings(s, stories))
		switch {
		case c.want == "" && len(findings) > 0:
			t.Errorf("%v: %v where all is well", s, findings[0])
		case c.want != "" && !slices.ContainsFunc(findings, func(f finding) bool { return strings.Contains(f.kind, c.want) }):
			t.Errorf("%v: %v, want %q", s, findings, c.want)
		}
	}
}

// TestRankThatLeavesWhileOthersMeetIsNoFinding: a rank dies in the first barrier, which ends
// with an error in one of the others and without in the rest, whichever comes first.
func TestRankThatLeavesWhileOthersMeetIsNoFinding(t *testing.T) {
	seed := uint64(0)
	s := newStorm("kill", "ob1+tcp", seed)
	for !s.fault.early || s.ranks != 4 || s.fault.rank != 1 {
		seed++
		s = newStorm("kill", "ob1+tcp", seed)
	}
	for _, leaver := range []int{0, 3} {
		stories := goodStories(s)
		for rank, st := range stories {
			if st == nil || rank == leaver {
				continue
			}
			st.Peers[leaver] = chapter{Op: "recv", Class: string(peerClosed)}
			st.Bye[leaver] = string(peerClosed)
			st.Rest = "failed"
		}
		stories[leaver].Opened = "first barrier: P: process failed: rank 1"
		if findings, _ := compare(s, endings(s, stories)); len(findings) > 0 {
			t.Errorf("rank %d leaves: %v", leaver, findings)
		}
	}
}

// other is a rank without a fault.
func other(s *storm) int { return (s.fault.rank + 1) % s.ranks }
