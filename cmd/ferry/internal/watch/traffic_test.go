package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// at is a moment of a test.
func at(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }

func body(ms int, peers ...string) []byte {
	return fmt.Appendf(nil, `{"at":%d,"comms":2,"peers":[%s]}`, int64(ms)*1e6, strings.Join(peers, ","))
}

func peer(rank int, via string, n int) string {
	return fmt.Sprintf(`{"rank":%d,"via":%q,"sent":%d,"received":%d,"sentBytes":%d,"receivedBytes":%d}`, rank, via, n, 2*n, 8*n, 16*n)
}

// round makes a request, and takes the answers.
func (t *traffic) round(now time.Time, answers map[int][]byte) {
	var ranks []int
	for r := range answers {
		ranks = append(ranks, r)
	}
	t.begin(now)
	t.expect(ranks)
	for r, b := range answers {
		if b != nil {
			t.add(r, b, now)
		}
	}
}

func TestTraffic_TwoReports_GiveRates(t *testing.T) {
	var c traffic
	c.round(at(0), map[int][]byte{0: body(500, peer(1, "shm", 10))})
	if links, comms, ok, isRated := c.rankRates(0, at(0)); !ok || isRated || comms != 2 || links[link{1, "shm"}] != (rates{}) {
		t.Errorf("after one report: %v %d %t %t", links, comms, ok, isRated)
	}
	c.round(at(1000), map[int][]byte{0: body(2500, peer(1, "shm", 30), peer(2, "tcp", 4))}) // 2 s of the rank's clock.
	links, _, _, isRated := c.rankRates(0, at(1000))
	if want := (rates{10, 20, 80, 160}); !isRated || links[link{1, "shm"}] != want {
		t.Errorf("%v, want %v", links, want)
	}
	if want := (rates{2, 4, 16, 32}); links[link{2, "tcp"}] != want {
		t.Errorf("of a new peer %v, want %v", links, want)
	}
	c.round(at(2000), map[int][]byte{0: body(3500, peer(1, "shm", 7))}) // Another session.
	if links, _, _, _ := c.rankRates(0, at(2000)); links[link{1, "shm"}].SentMessages != 7 {
		t.Errorf("of a new session %v", links)
	}
	if _, _, ok, _ := c.rankRates(0, at(2000).Add(staleAfter+1)); ok {
		t.Error("old counts have rates")
	}
}

func TestTraffic_UnrequestedOrInvalidReports_AreDropped(t *testing.T) {
	var c traffic
	c.add(0, body(1), at(0))
	c.round(at(1000), map[int][]byte{0: body(1, peer(1, "shm", 1)), 1: []byte("{"), 2: []byte(`{"peers":[{"rank":-1,"via":"shm"}]}`), 3: body(1, strings.Repeat(peer(1, "shm", 1)+",", 1000)+peer(1, "shm", 1))})
	c.add(0, body(2, peer(1, "shm", 100)), at(1001)) // A second answer.
	if len(c.latestSamples) != 2 || c.latestSamples[0].countsByLink[link{1, "shm"}].sentMessages != 1 || len(c.latestSamples[2].countsByLink) != 0 {
		t.Errorf("reports %+v", c.latestSamples)
	}
}

func TestTraffic_Requests_AreASecondApart(t *testing.T) {
	var c traffic
	var due []int
	for ms := 0; ms < 3000; ms += 100 {
		if c.begin(at(ms)) {
			due = append(due, ms)
			c.expect(nil)
		}
	}
	if fmt.Sprint(due) != "[0 900 1800 2700]" {
		t.Errorf("requests at %v ms", due)
	}
}

func TestTraffic_SilentRank_IsOverdueUntilItAnswers(t *testing.T) {
	var c traffic
	for s := range 4 {
		c.round(at(1000*s), map[int][]byte{0: body(1000 * s), 1: nil})
	}
	if c.isOverdue(0, at(3000)) || !c.isOverdue(1, at(3000)) || c.isOverdue(2, at(3000)) {
		t.Errorf("pending %v", c.unansweredSince)
	}
	c.add(1, body(3000), at(3000))
	if c.isOverdue(1, at(9000)) {
		t.Error("a rank that has answered is overdue")
	}
}

func TestPage_RankOpensASession_EarlierRequestIsForgotten(t *testing.T) {
	p := openPage(t, defaultBounds)
	p.traffic.round(at(0), map[int][]byte{0: body(0), 1: nil})
	p.ObserveProc(server.ProcEvent{Rank: 1, State: server.ProcOpen})
	p.traffic.round(at(60000), map[int][]byte{0: nil, 1: nil})
	if p.traffic.isOverdue(1, at(60000)) || !p.traffic.isOverdue(1, at(63000)) {
		t.Errorf("pending %v", p.traffic.unansweredSince)
	}
}

func TestTraffic_AnswerBeforeExpect_Counts(t *testing.T) {
	var c traffic
	c.begin(at(0))
	c.add(0, body(1), at(0))
	c.expect([]int{0})
	if len(c.unansweredSince) != 0 || len(c.latestSamples) != 1 {
		t.Errorf("pending %v, reports %v", c.unansweredSince, c.latestSamples)
	}
	c.begin(at(1000))
	c.expect(nil) // The rank has no session.
	if len(c.latestSamples) != 0 {
		t.Errorf("reports of a rank without a session: %v", c.latestSamples)
	}
}

func TestPairs_ReportsOfBothRanks_AreJoined(t *testing.T) {
	got := pairs(map[int]map[link]rates{
		0: {link{1, "shm"}: {1, 2, 3, 4}, link{0, "self"}: {5, 5, 5, 5}},
		1: {link{0, "shm"}: {9, 9, 9, 9}, link{0, "tcp"}: {1, 2, 3, 4}},
	})
	if want := "[{0 0 self {5 5 5 5}} {0 1 shm {1 2 3 4}} {0 1 tcp {2 1 4 3}}]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestState_ManyRanksAndPairs_LeavesOutTheQuietest(t *testing.T) {
	s := state{}
	for r := range mostRanks + 3 {
		s.Ranks = append(s.Ranks, rankState{Rank: r, State: "open", rates: rates{SentBytes: float64(r)}})
		s.Pairs = append(s.Pairs, pair{LowerRank: r, HigherRank: r, rates: rates{SentBytes: float64(r)}})
	}
	s.Ranks[0].State = "failed"
	s.trim()
	if s.MoreRanks != 3 || len(s.Ranks) != mostRanks || s.Ranks[0].Rank != 0 || s.Ranks[1].Rank != 4 {
		t.Errorf("%d ranks are left out, the first are %v", s.MoreRanks, s.Ranks[:2])
	}
	if s.MorePairs != 3 || len(s.Pairs) != mostPairs || s.Pairs[0].LowerRank != 3 {
		t.Errorf("%d pairs are left out, the first is %v", s.MorePairs, s.Pairs[0])
	}
}

func TestState_ManyRanks_ShowsRunningOnesBeforeEndedOnes(t *testing.T) {
	s := state{}
	for r := range mostRanks + 3 {
		s.Ranks = append(s.Ranks, rankState{Rank: r, State: server.ProcOpen.String()})
	}
	for r, shown := range []server.ProcState{server.ProcEnded, server.ProcFailed, server.ProcEnded, server.ProcClosed, server.ProcEnded, server.ProcDisconnected} {
		s.Ranks[r].State = shown.String()
	}
	s.trim()
	var first []int
	for _, r := range s.Ranks[:4] {
		first = append(first, r.Rank)
	}
	if want := []int{1, 3, 5, 6}; !slices.Equal(first, want) || len(s.Ranks) != mostRanks {
		t.Errorf("%d ranks begin with %v, want %v", len(s.Ranks), first, want)
	}
}

// FuzzReport decodes reports of hostile ranks.
func FuzzReport(f *testing.F) {
	f.Add(body(5, peer(1, "shm", 3)))
	f.Add([]byte(`{"at":-9223372036854775808,"peers":[{"rank":1e3,"via":"\u0000"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c traffic
		c.round(at(0), map[int][]byte{0: body(1, peer(1, "shm", 3))})
		c.round(at(1000), map[int][]byte{0: b})
		links, _, _, _ := c.rankRates(0, at(1000))
		pairs(map[int]map[link]rates{0: links})
	})
}
