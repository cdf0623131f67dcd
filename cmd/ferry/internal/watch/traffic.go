package watch

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"
)

const (
	// requestInterval is the least time between two requests to the ranks. Browsers poll once per second.
	requestInterval = 900 * time.Millisecond
	// staleAfter is the largest age of counts that yield rates.
	staleAfter = 3500 * time.Millisecond
	// answerPatience is the time after which a rank without an answer counts as not responding.
	answerPatience = 2 * time.Second
	// mostReport is the number of bytes of a valid report.
	mostReport = 64 << 10
)

// report is the traffic report of a rank (package mpi).
type report struct {
	// Monotonic time of the rank.
	AtNanos   int64 `json:"at"`
	CommCount int   `json:"comms"`
	Peers     []struct {
		Rank          int    `json:"rank"`
		Transport     string `json:"via"`
		Sent          uint64 `json:"sent"`
		Received      uint64 `json:"received"`
		SentBytes     uint64 `json:"sentBytes"`
		ReceivedBytes uint64 `json:"receivedBytes"`
	} `json:"peers"`
	MorePeers int `json:"more"`
}

// counts are the messages of a rank with one peer.
type counts struct{ sentMessages, receivedMessages, sentBytes, receivedBytes uint64 }

// link identifies the counts of a rank.
type link struct {
	peerRank  int
	transport string
}

// sample is a report that has arrived.
type sample struct {
	atNanos      int64
	arrivedAt    time.Time
	commCount    int
	countsByLink map[link]counts
}

// traffic has the reports of all ranks. Page.mu guards it.
type traffic struct {
	requestedAt time.Time
	// First unanswered request of each rank. Reports of other ranks are dropped.
	unansweredSince map[int]time.Time
	// Ranks that answered before expect.
	isRequesting bool
	earlyAnswers map[int]bool
	// By rank.
	previousSamples, latestSamples map[int]sample
}

// begin reports whether a request is due, and records it.
func (t *traffic) begin(now time.Time) bool {
	if t.isRequesting || !t.requestedAt.IsZero() && now.Sub(t.requestedAt) < requestInterval {
		return false
	}
	t.requestedAt, t.isRequesting, t.earlyAnswers = now, true, map[int]bool{}
	return true
}

// expect records the ranks that got the request, and drops the counts of others.
func (t *traffic) expect(ranks []int) {
	unanswered, known := t.unansweredSince, map[int]bool{}
	t.isRequesting, t.unansweredSince = false, map[int]time.Time{}
	for _, r := range ranks {
		known[r] = true
		if since, ok := unanswered[r]; ok && !t.earlyAnswers[r] {
			t.unansweredSince[r] = since
		} else if !t.earlyAnswers[r] {
			t.unansweredSince[r] = t.requestedAt
		}
	}
	for r := range t.latestSamples {
		if !known[r] {
			delete(t.latestSamples, r)
			delete(t.previousSamples, r)
		}
	}
}

// add takes the report of a rank. An unrequested or invalid one is dropped.
func (t *traffic) add(rank int, body []byte, now time.Time) {
	_, isPending := t.unansweredSince[rank]
	switch {
	case t.isRequesting && !t.earlyAnswers[rank]:
		t.earlyAnswers[rank] = true
	case isPending:
		delete(t.unansweredSince, rank)
	default:
		return
	}
	var r report
	if len(body) > mostReport || json.Unmarshal(body, &r) != nil {
		return
	}
	s := sample{atNanos: r.AtNanos, arrivedAt: now, commCount: r.CommCount, countsByLink: map[link]counts{}}
	for _, p := range r.Peers {
		if p.Rank >= 0 {
			s.countsByLink[link{p.Rank, printable(p.Transport)}] = counts{p.Sent, p.Received, p.SentBytes, p.ReceivedBytes}
		}
	}
	if t.latestSamples == nil {
		t.previousSamples, t.latestSamples = map[int]sample{}, map[int]sample{}
	}
	if last, ok := t.latestSamples[rank]; ok {
		t.previousSamples[rank] = last
	}
	t.latestSamples[rank] = s
}

// forget drops the counts and the unanswered request of a rank that opens a session. A process without one answers no request.
func (t *traffic) forget(rank int) {
	delete(t.unansweredSince, rank)
	delete(t.previousSamples, rank)
	delete(t.latestSamples, rank)
}

// isOverdue reports whether a rank has left a request unanswered for too long.
func (t *traffic) isOverdue(rank int, now time.Time) bool {
	since, ok := t.unansweredSince[rank]
	return ok && now.Sub(since) > answerPatience
}

// rates are numbers per second.
type rates struct {
	SentMessages     float64 `json:"sent"`
	ReceivedMessages float64 `json:"received"`
	SentBytes        float64 `json:"sentBytes"`
	ReceivedBytes    float64 `json:"receivedBytes"`
}

func (r *rates) add(o rates) {
	r.SentMessages, r.ReceivedMessages = r.SentMessages+o.SentMessages, r.ReceivedMessages+o.ReceivedMessages
	r.SentBytes, r.ReceivedBytes = r.SentBytes+o.SentBytes, r.ReceivedBytes+o.ReceivedBytes
}

// reversed returns the rates as the other process has them.
func (r rates) reversed() rates {
	return rates{r.ReceivedMessages, r.SentMessages, r.ReceivedBytes, r.SentBytes}
}

// since returns the rates between two counts. Lower counts belong to a new session, and begin at 0.
func (c counts) since(last counts, seconds float64) rates {
	per := func(now, before uint64) float64 {
		if now < before {
			before = 0
		}
		return math.Round(10*float64(now-before)/seconds) / 10
	}
	return rates{per(c.sentMessages, last.sentMessages), per(c.receivedMessages, last.receivedMessages), per(c.sentBytes, last.sentBytes), per(c.receivedBytes, last.receivedBytes)}
}

// rankRates returns the rates of each link of a rank. ok is false if the rank has not answered lately, and isRated if two answers are recent.
func (t *traffic) rankRates(rank int, now time.Time) (all map[link]rates, comms int, ok, isRated bool) {
	s, ok := t.latestSamples[rank]
	if !ok || now.Sub(s.arrivedAt) > staleAfter {
		return nil, 0, false, false
	}
	last, hasLast := t.previousSamples[rank]
	isRated = hasLast && s.arrivedAt.Sub(last.arrivedAt) <= staleAfter && s.atNanos > last.atNanos
	all = map[link]rates{}
	for l, c := range s.countsByLink {
		if all[l] = (rates{}); isRated {
			all[l] = c.since(last.countsByLink[l], float64(s.atNanos-last.atNanos)/1e9)
		}
	}
	return all, s.commCount, true, isRated
}

// pair is the traffic of two ranks over one transport. Rates are those of LowerRank.
type pair struct {
	LowerRank  int    `json:"a"`
	HigherRank int    `json:"b"`
	Transport  string `json:"via"`
	rates
}

// pairs joins the rates of both ranks of each pair. The report of the lower rank has precedence.
func pairs(byRank map[int]map[link]rates) (all []pair) {
	for a, links := range byRank {
		for l, r := range links {
			if l.peerRank >= a {
				all = append(all, pair{a, l.peerRank, l.transport, r})
			} else if _, isKnown := byRank[l.peerRank][link{a, l.transport}]; !isKnown {
				all = append(all, pair{l.peerRank, a, l.transport, r.reversed()})
			}
		}
	}
	slices.SortFunc(all, func(x, y pair) int {
		return cmp.Or(cmp.Compare(x.LowerRank, y.LowerRank), cmp.Compare(x.HigherRank, y.HigherRank), cmp.Compare(x.Transport, y.Transport))
	})
	return all
}
