package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// correctReports returns the reports of a storm without errors. The faulty rank has no operation with
// the others before its fault.
func correctReports(s *storm) []*rankReport {
	all := make([]*rankReport, s.ranks)
	for rank := range all {
		st := &rankReport{Rank: rank, Sent: map[int]string{}, Received: map[int]string{}, Peers: make([]outcome, s.ranks), Farewell: map[int]string{}}
		for i, stream := range s.streams {
			if stream.from != rank && stream.to != rank {
				continue
			}
			var sent, got strings.Builder
			for _, m := range stream.messages {
				a, b := rune(outcomeSent), rune(outcomeReceived)
				if m.receivedAfter == never {
					a, b = outcomeNotReceived, outcomeNotReceived
				}
				if concerned := s.isFaulty(stream.from) || s.isFaulty(stream.to); concerned && s.kind != "shortage" {
					a, b = outcomeUntried, outcomeUntried
					if s.kind != "close" || !s.isFaulty(rank) {
						peer := stream.from + stream.to - rank
						a = rune(newCrossCheck(s).allowedClasses(rank, peer)[0])
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
				st.Received[i] = got.String()
			}
		}
		all[rank] = st
	}
	if s.kind == "kill" {
		all[s.fault.rank] = nil
	}
	return all
}

func newCrossCheck(s *storm) *crossCheck { return &crossCheck{storm: s} }

// exitsFor returns the exits of ranks with these reports.
func exitsFor(s *storm, stories []*rankReport) []rankExit {
	ends := make([]rankExit, s.ranks)
	for rank, st := range stories {
		if st == nil {
			ends[rank].err = errors.New("signal: killed")
			continue
		}
		text, err := json.Marshal(st)
		if err != nil {
			panic(err)
		}
		ends[rank].out = fmt.Sprintf("\n%s%s\n", reportPrefix, text)
	}
	return ends
}

// The checker of storms finds each kind of error, and none in a correct storm.
func TestCrossCheck_Contradictions_AreFound(t *testing.T) {
	// set changes the outcome of the first message between two ranks of a class.
	set := func(s *storm, stories []*rankReport, sent bool, k byte, from, to func(int) bool) {
		for i, st := range s.streams {
			if from(st.from) && to(st.to) && st.messages[0].receivedAfter == 0 {
				if sent {
					stories[st.from].Sent[i] = string(k) + stories[st.from].Sent[i][1:]
				} else {
					stories[st.to].Received[i] = string(k) + stories[st.to].Received[i][1:]
				}
				return
			}
		}
		t.Fatalf("%v lacks the stream", s)
	}
	for _, c := range []struct {
		kind, want string
		change     func(s *storm, stories []*rankReport, faulty, healthy func(int) bool)
	}{
		{"kill", "", nil},
		{"close", "", nil},
		{"cut", "", nil},
		{"kill", "lost", func(s *storm, stories []*rankReport, _, healthy func(int) bool) {
			set(s, stories, false, outcomeUntried, healthy, healthy)
		}},
		{"kill", "class of a receive: T", func(s *storm, stories []*rankReport, faulty, healthy func(int) bool) {
			set(s, stories, false, outcomeTransport, faulty, healthy)
		}},
		{"kill", "class of a send: P", func(s *storm, stories []*rankReport, _, healthy func(int) bool) {
			set(s, stories, true, outcomeProcFailed, healthy, healthy)
		}},
		{"kill", "accepted", func(s *storm, stories []*rankReport, faulty, healthy func(int) bool) {
			set(s, stories, true, outcomeTooLate, healthy, faulty)
		}},
		{"kill", "hang: recv", func(s *storm, stories []*rankReport, _, healthy func(int) bool) {
			stories[other(s)].Hangs = []outcome{{Op: "recv 3 of stream 4", At: 1}}
		}},
		{"kill", "crash", func(s *storm, stories []*rankReport, _, _ func(int) bool) { stories[other(s)] = nil }},
		{"kill", "wrong: contents", func(s *storm, stories []*rankReport, _, _ func(int) bool) {
			stories[other(s)].Wrong = []string{"contents: of message 3"}
		}},
		{"kill", "no farewell", func(s *storm, stories []*rankReport, _, _ func(int) bool) { stories[other(s)].Farewell[0] = "P" }},
		{"kill", "no communicator of the rest", func(s *storm, stories []*rankReport, _, _ func(int) bool) { stories[other(s)].RestError = "deadline" }},
		{"kill", "innocent pair", func(s *storm, stories []*rankReport, _, healthy func(int) bool) {
			for peer := range s.ranks {
				if peer != other(s) && healthy(peer) {
					stories[other(s)].Peers[peer] = outcome{Class: "P"}
				}
			}
		}},
		{"kill", "class of late ssend", func(s *storm, stories []*rankReport, _, _ func(int) bool) {
			stories[other(s)].Late = []outcome{{Op: "ssend", Class: "C", Peer: s.fault.rank}}
		}},
		{"kill", "close", func(s *storm, stories []*rankReport, _, _ func(int) bool) {
			stories[other(s)].CloseError = "session.linger"
		}},
		{"close", "lost", func(s *storm, stories []*rankReport, faulty, healthy func(int) bool) {
			set(s, stories, true, outcomeSent, faulty, healthy)
		}},
		{"close", "lost", func(s *storm, stories []*rankReport, faulty, healthy func(int) bool) {
			set(s, stories, true, outcomePendingAtClose, faulty, healthy)
		}},
		{"close", "", func(s *storm, stories []*rankReport, faulty, healthy func(int) bool) {
			stories[s.fault.rank].CloseError = "session.linger=1s"
			set(s, stories, true, outcomePendingAtClose, faulty, healthy)
		}},
		{"close", "received, not sent", func(s *storm, stories []*rankReport, faulty, healthy func(int) bool) {
			set(s, stories, false, outcomeReceived, faulty, healthy)
		}},
		{"close", "class of a receive: P", func(s *storm, stories []*rankReport, faulty, healthy func(int) bool) {
			set(s, stories, false, outcomeProcFailed, faulty, healthy)
		}},
		{"shortage", "one end", func(s *storm, stories []*rankReport, _, _ func(int) bool) {
			stories[0].Peers[1] = outcome{Class: "T"}
		}},
		{"shortage", "", func(s *storm, stories []*rankReport, _, _ func(int) bool) {
			stories[0].Peers[1], stories[1].Peers[0] = outcome{Class: "T"}, outcome{Class: "T"}
		}},
	} {
		seed := uint64(0) // A storm of four ranks, all of which exchange messages.
		s := newStorm(c.kind, "ob1+shm", seed)
		for s.ranks != 4 || s.comms != 1 || s.fault.fromStart || s.fault.rank == everywhere || s.mayHaveClosed(s.fault.rank) || len(s.streams) < 12 || s.noFallback {
			seed++
			s = newStorm(c.kind, "ob1+shm", seed)
		}
		stories := correctReports(s)
		if c.change != nil {
			c.change(s, stories, s.isFaulty, func(rank int) bool { return !s.isFaulty(rank) })
		}
		findings, _ := compareReports(s, exitsFor(s, stories))
		switch {
		case c.want == "" && len(findings) > 0:
			t.Errorf("%v: finding %v in a correct storm", s, findings[0])
		case c.want != "" && !slices.ContainsFunc(findings, func(f finding) bool { return strings.Contains(f.kind, c.want) }):
			t.Errorf("%v: %v, want %q", s, findings, c.want)
		}
	}
}

// A rank dies in the first barrier, which fails in one of the others and succeeds in the rest, in
// either order.
func TestCrossCheck_DeathInFirstBarrier_IsNoFinding(t *testing.T) {
	seed := uint64(0)
	s := newStorm("kill", "ob1+tcp", seed)
	for !s.fault.fromStart || s.ranks != 4 || s.fault.rank != 1 {
		seed++
		s = newStorm("kill", "ob1+tcp", seed)
	}
	for _, leaver := range []int{0, 3} {
		stories := correctReports(s)
		for rank, st := range stories {
			if st == nil || rank == leaver {
				continue
			}
			st.Peers[leaver] = outcome{Op: "recv", Class: string(outcomePeerClosed)}
			st.Farewell[leaver] = string(outcomePeerClosed)
			st.RestError = "failed"
		}
		stories[leaver].OpenError = "first barrier: P: process failed: rank 1"
		if findings, _ := compareReports(s, exitsFor(s, stories)); len(findings) > 0 {
			t.Errorf("rank %d leaves: %v", leaver, findings)
		}
	}
}

// other returns a rank without a fault.
func other(s *storm) int { return (s.fault.rank + 1) % s.ranks }
