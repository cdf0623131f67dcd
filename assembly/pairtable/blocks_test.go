package pairtable

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/assembly"
)

func TestTable_EqualPairs_ArePrintedOnce(t *testing.T) {
	all := func(n int, in func(from, to int) bool) pairs {
		p := pairs{}
		for from := range n {
			for to := range n {
				if in(from, to) {
					p[from] = append(p[from], end{rank: to})
				}
			}
		}
		return p
	}
	node := func(r int) int { return r / 4 }
	for want, p := range map[string]pairs{
		"0-31 x 0-31, 0-31 x itself":   all(32, func(int, int) bool { return true }),
		"0-31 x 0-31":                  all(32, func(from, to int) bool { return from != to }),
		"0-31 x itself":                all(32, func(from, to int) bool { return from == to }),
		"0-3 x 4-7, 4-7 x 0-3":         all(8, func(from, to int) bool { return node(from) != node(to) }),
		"0-3 x 0-3, 4-7 x 4-7":         all(8, func(from, to int) bool { return from != to && node(from) == node(to) }),
		"1 x 0":                        all(2, func(from, to int) bool { return from > to }),
		"0-1 x 0-1":                    all(2, func(from, to int) bool { return from != to }),
		"0,2,4 x 0,2,4":                all(5, func(from, to int) bool { return from != to && from%2+to%2 == 0 }),
		"0-1 x 1-2 of job7":            {0: {{namespace: "job7", rank: 1}, {namespace: "job7", rank: 2}}, 1: {{namespace: "job7", rank: 1}, {namespace: "job7", rank: 2}}},
		"0 x 1 of job7, 1 x 0 of job7": {0: {{namespace: "job7", rank: 1}}, 1: {{namespace: "job7", rank: 0}}},
	} {
		if got := strings.Join(p.blocks(), ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestBlocks_Streams_AreNamed(t *testing.T) {
	on := func(own, other int) [2]int { return [2]int{own, other} }
	for want, p := range map[string]pairs{
		"0-1 x 0-1, 0-1 x 0-1 on streams 1-2, 0-1 x itself, 0-1 x itself on streams 1-2": {
			0: {{rank: 1}, {}, {rank: 1, streams: on(1, 1)}, {streams: on(1, 1)}, {rank: 1, streams: on(2, 2)}, {streams: on(2, 2)}},
			1: {{}, {rank: 1}, {streams: on(1, 1)}, {rank: 1, streams: on(1, 1)}, {streams: on(2, 2)}, {rank: 1, streams: on(2, 2)}},
		},
		"0 x 1 stream 2, 0 stream 1 x 0, 1 x 0 on stream 1": {
			0: {{streams: on(1, 0)}, {rank: 1, streams: on(0, 2)}},
			1: {{streams: on(1, 1)}},
		},
	} {
		if got := strings.Join(p.blocks(), ", "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestBlocks_RandomPairs_CoverExactlyThese(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(9)
		oneJob := r.IntN(2) == 0
		want, given := map[[2]int]bool{}, map[int][]int{}
		for from := range n {
			for to := range n {
				if r.IntN(10) < int(seed%11) && !(oneJob && from == to) {
					want[[2]int{from, to}] = true
					given[from] = append(given[from], to)
				}
			}
		}
		got := map[[2]int]bool{}
		for _, b := range split(given, oneJob) {
			for _, from := range b.from {
				for _, to := range b.to {
					if pair := [2]int{from, to}; !(oneJob && from == to) {
						if got[pair] {
							t.Errorf("seed %d: %v appears twice", seed, pair)
						}
						got[pair] = true
					}
				}
			}
		}
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d pairs, want %d", seed, len(got), len(want))
		}
		for pair := range want {
			if !got[pair] {
				t.Fatalf("seed %d: %v is lost", seed, pair)
			}
		}
	}
}

func TestBlocks_PortsDiffer_AreMerged(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.0.5:41234 to 10.1.0.6:40017, called": "10.1.0.5 to 10.1.0.6, called",
		"[fd00::2]:1 to [fd00::3]:2":               "fd00::2 to fd00::3",
		"one copy: on, from 8KiB":                  "one copy: on, from 8KiB",
	} {
		if got := withoutPorts(text); got != want {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	var out strings.Builder
	Write(&out, 1000, &assembly.Explanation{Pairs: []assembly.Pair{
		{FromRank: 0, ToRank: 1, PML: "ob1", Transport: "tcp", Device: "10.1.0.5:1 to 10.1.0.6:2"},
		{FromRank: 1, ToRank: 0, PML: "ob1", Transport: "tcp", Device: "10.1.0.5:3 to 10.1.0.6:4"},
	}})
	if !strings.Contains(out.String(), "0-1 x 0-1  ob1  tcp") {
		t.Error(&out)
	}
}
