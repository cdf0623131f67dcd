package watch

import (
	"cmp"
	"slices"

	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/internal/text"
)

// Limits of a state. A larger job is shown in part.
const (
	mostSets  = 60
	mostRanks = 1024
	mostPairs = 1024
	// Ranks of a set in the text of its members.
	mostMembers = 256
)

// state is the content of the page, as JSON.
type state struct {
	Program  string `json:"program"`
	IsEnding bool   `json:"isEnding"`
	// Since the start of the job.
	AtMillis  int64       `json:"at"`
	Ranks     []rankState `json:"ranks"`
	MoreRanks int         `json:"moreRanks"`
	Pairs     []pair      `json:"pairs"`
	MorePairs int         `json:"morePairs"`
	Sets      []setState  `json:"sets"`
	OlderSets int         `json:"olderSets"`
	// Those that the browser does not have.
	Changes []change `json:"changes"`
	// Of a divided job, else 0 or 1.
	NodeCount int `json:"nodes"`
}

// rankState is the condition of one rank.
type rankState struct {
	Rank      int    `json:"rank"`
	PID       int    `json:"pid"`
	Node      int    `json:"node"`
	State     string `json:"state"`
	CommCount int    `json:"comms"`
	// Whether CommCount and the pairs are known.
	IsKnown bool `json:"isKnown"`
	// Whether the rates are known.
	IsRated bool `json:"isRated"`
	rates
}

// setState is a process set that exists.
type setState struct {
	Name        string `json:"name"`
	MemberCount int    `json:"size"`
	MemberRanks string `json:"members"` // Such as 0-3,7.
}

// stateUnresponsive is the state of a rank with a session that does not answer a request for its counts.
const stateUnresponsive = "not responding"

// state returns the state of the job with the changes after one with a serial. It requests new counts from the ranks.
func (p *Page) state(after int64) state {
	p.mu.Lock()
	j := p.liveJob
	p.mu.Unlock()
	var snapshot server.Snapshot
	s := state{Ranks: []rankState{}, Pairs: []pair{}, Sets: []setState{}, Changes: []change{}}
	if j != nil {
		p.requestTraffic(j)
		snapshot = j.Snapshot(mostSets)
		s.IsEnding = j.IsEnding()
	}
	for _, set := range snapshot.Psets {
		s.Sets = append(s.Sets, describeSet(set))
	}
	s.OlderSets = snapshot.OlderPsets
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.currentTime()
	s.Program, s.NodeCount = printable(p.commandLine), p.nodeCount
	s.AtMillis = now.Sub(p.startedAt).Milliseconds()
	s.Changes = append(s.Changes, p.history.since(after)...)
	byRank := map[int]map[link]rates{}
	for _, proc := range snapshot.Procs {
		r := rankState{Rank: proc.Rank, PID: proc.PID, Node: proc.Node, State: proc.State.String()}
		links, comms, hasAnswered, isRated := p.traffic.rankRates(proc.Rank, now)
		if hasAnswered && proc.State == server.ProcOpen {
			byRank[proc.Rank], r.CommCount, r.IsKnown, r.IsRated = links, comms, true, isRated
			for _, l := range links {
				r.rates.add(l)
			}
		} else if proc.State == server.ProcOpen && p.traffic.isOverdue(proc.Rank, now) {
			r.State = stateUnresponsive
		}
		s.Ranks = append(s.Ranks, r)
	}
	s.Pairs = append(s.Pairs, pairs(byRank)...)
	s.trim()
	return s
}

// trim drops the ranks and pairs over the limits, those with the least to show.
func (s *state) trim() {
	if s.MoreRanks = max(0, len(s.Ranks)-mostRanks); s.MoreRanks > 0 {
		slices.SortStableFunc(s.Ranks, func(a, b rankState) int {
			return cmp.Or(cmp.Compare(a.precedence(), b.precedence()), cmp.Compare(b.SentBytes, a.SentBytes))
		})
		s.Ranks = s.Ranks[:mostRanks]
		slices.SortFunc(s.Ranks, func(a, b rankState) int { return cmp.Compare(a.Rank, b.Rank) })
	}
	if s.MorePairs = max(0, len(s.Pairs)-mostPairs); s.MorePairs > 0 {
		slices.SortStableFunc(s.Pairs, func(a, b pair) int { return cmp.Compare(b.SentBytes+b.ReceivedBytes, a.SentBytes+a.ReceivedBytes) })
		s.Pairs = s.Pairs[:mostPairs]
		slices.SortFunc(s.Pairs, func(a, b pair) int {
			return cmp.Or(cmp.Compare(a.LowerRank, b.LowerRank), cmp.Compare(a.HigherRank, b.HigherRank))
		})
	}
}

// precedence orders ranks over the limit. Those in trouble come first, and those that have ended last.
func (r *rankState) precedence() int {
	switch r.State {
	case server.ProcFailed.String(), server.ProcDisconnected.String(), stateUnresponsive:
		return 0
	case server.ProcEnded.String():
		return 2
	}
	return 1
}

// describeSet returns a set for the page, with the first of its members.
func describeSet(set server.PsetInfo) setState {
	ranks := make([]int, min(len(set.Ranks), mostMembers))
	for i := range ranks {
		ranks[i] = int(set.Ranks[i])
	}
	members := text.Numbers(ranks)
	if len(set.Ranks) > len(ranks) {
		members += ",..."
	}
	return setState{printable(set.Name), len(set.Ranks), members}
}
