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
	// Monotonic time of the rank in nanoseconds.
	At    int64 `json:"at"`
	Comms int   `json:"comms"`
	Peers []struct {
		Rank          int    `json:"rank"`
		Transport     string `json:"via"`
		Sent          uint64 `json:"sent"`
		Received      uint64 `json:"received"`
		SentBytes     uint64 `json:"sentBytes"`
		ReceivedBytes uint64 `json:"receivedBytes"`
	} `json:"peers"`
	More int `json:"more"`
}

// counts are the messages of a rank with one peer.
type counts struct{ sent, received, sentBytes, receivedBytes uint64 }

// link identifies the counts of a rank.
type link struct {
	peer      int
	transport string
}

// sample is a report that has arrived.
type sample struct {
	at        int64
	arrivedAt time.Time
	comms     int
	links     map[link]counts
}

// traffic has the reports of all ranks. Page.mu guards it.
type traffic struct {
	requestedAt time.Time
	// Time of the first unanswered request of each rank. Reports of other ranks are dropped.
	pending map[int]time.Time
	// Answers that came before expect.
	isRequesting bool
	early        map[int]bool
	// By rank.
	previous, latest map[int]sample
}

// begin reports whether a request is due, and records it.
func (t *traffic) begin(now time.Time) bool {
	if t.isRequesting || !t.requestedAt.IsZero() && now.Sub(t.requestedAt) < requestInterval {
		return false
	}
	t.requestedAt, t.isRequesting, t.early = now, true, map[int]bool{}
	return true
}

// expect records the ranks that got the request, and drops the counts of others.
func (t *traffic) expect(ranks []int) {
	unanswered, known := t.pending, map[int]bool{}
	t.isRequesting, t.pending = false, map[int]time.Time{}
	for _, r := range ranks {
		known[r] = true
		if since, ok := unanswered[r]; ok && !t.early[r] {
			t.pending[r] = since
		} else if !t.early[r] {
			t.pending[r] = t.requestedAt
		}
	}
	for r := range t.latest {
		if !known[r] {
			delete(t.latest, r)
			delete(t.previous, r)
		}
	}
}

// add takes the report of a rank. An unrequested or invalid one is dropped.
func (t *traffic) add(rank int, body []byte, now time.Time) {
	_, isPending := t.pending[rank]
	switch {
	case t.isRequesting && !t.early[rank]:
		t.early[rank] = true
	case isPending:
		delete(t.pending, rank)
	default:
		return
	}
	var r report
	if len(body) > mostReport || json.Unmarshal(body, &r) != nil {
		return
	}
	s := sample{at: r.At, arrivedAt: now, comms: r.Comms, links: map[link]counts{}}
	for _, p := range r.Peers {
		if p.Rank >= 0 {
			s.links[link{p.Rank, printable(p.Transport)}] = counts{p.Sent, p.Received, p.SentBytes, p.ReceivedBytes}
		}
	}
	if t.latest == nil {
		t.previous, t.latest = map[int]sample{}, map[int]sample{}
	}
	if last, ok := t.latest[rank]; ok {
		t.previous[rank] = last
	}
	t.latest[rank] = s
}

// forget drops the counts and the unanswered request of a rank that opens a session. A process without one answers no request.
func (t *traffic) forget(rank int) {
	delete(t.pending, rank)
	delete(t.previous, rank)
	delete(t.latest, rank)
}

// isOverdue reports whether a rank has left a request unanswered for too long.
func (t *traffic) isOverdue(rank int, now time.Time) bool {
	since, ok := t.pending[rank]
	return ok && now.Sub(since) > answerPatience
}

// rates are numbers per second.
type rates struct {
	Sent          float64 `json:"sent"`
	Received      float64 `json:"received"`
	SentBytes     float64 `json:"sentBytes"`
	ReceivedBytes float64 `json:"receivedBytes"`
}

func (r *rates) add(o rates) {
	r.Sent, r.Received = r.Sent+o.Sent, r.Received+o.Received
	r.SentBytes, r.ReceivedBytes = r.SentBytes+o.SentBytes, r.ReceivedBytes+o.ReceivedBytes
}

// reversed returns the rates as the other process has them.
func (r rates) reversed() rates { return rates{r.Received, r.Sent, r.ReceivedBytes, r.SentBytes} }

// since returns the rates between two counts. Lower counts belong to a new session, and begin at 0.
func (c counts) since(last counts, seconds float64) rates {
	per := func(now, before uint64) float64 {
		if now < before {
			before = 0
		}
		return math.Round(10*float64(now-before)/seconds) / 10
	}
	return rates{per(c.sent, last.sent), per(c.received, last.received), per(c.sentBytes, last.sentBytes), per(c.receivedBytes, last.receivedBytes)}
}

// rankRates returns the rates of each link of a rank. ok is false if the rank has not answered lately, and isRated if two answers are recent.
func (t *traffic) rankRates(rank int, now time.Time) (all map[link]rates, comms int, ok, isRated bool) {
	s, ok := t.latest[rank]
	if !ok || now.Sub(s.arrivedAt) > staleAfter {
		return nil, 0, false, false
	}
	last, hasLast := t.previous[rank]
	isRated = hasLast && s.arrivedAt.Sub(last.arrivedAt) <= staleAfter && s.at > last.at
	all = map[link]rates{}
	for l, c := range s.links {
		if all[l] = (rates{}); isRated {
			all[l] = c.since(last.links[l], float64(s.at-last.at)/1e9)
		}
	}
	return all, s.comms, true, isRated
}

// pair is the traffic of two ranks over one transport. Rates are those of the lower rank A.
type pair struct {
	A         int    `json:"a"`
	B         int    `json:"b"`
	Transport string `json:"via"`
	rates
}

// pairs joins the rates of both ranks of each pair. The report of the lower rank has precedence.
func pairs(byRank map[int]map[link]rates) (all []pair) {
	for a, links := range byRank {
		for l, r := range links {
			if l.peer >= a {
				all = append(all, pair{a, l.peer, l.transport, r})
			} else if _, isKnown := byRank[l.peer][link{a, l.transport}]; !isKnown {
				all = append(all, pair{l.peer, a, l.transport, r.reversed()})
			}
		}
	}
	slices.SortFunc(all, func(x, y pair) int {
		return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B), cmp.Compare(x.Transport, y.Transport))
	})
	return all
}
