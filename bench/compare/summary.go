package main

import (
	"github.com/montanaflynn/stats"

	"github.com/ferrympi/ferry/internal/hop"
)

// twoFigures are the values of the best pair, which has the best product of both values: the quietest
// moment of the run.
type twoFigures struct {
	Ours  float64 `json:"ours"`
	Peer  float64 `json:"peer"`
	Ratio float64 `json:"ratio"`
}

// medians summarize the samples of one state, or all.
type medians struct {
	// 0 without samples.
	Ours float64 `json:"ours"`
	// 0 without samples.
	Theirs float64 `json:"peers"`
	// Ours / Theirs, or 0 if one is missing.
	Ratio    float64     `json:"ratio"`
	BestPair *twoFigures `json:"best_pair,omitempty"`
	RawHopNS float64     `json:"raw_hop_ns"`
	// Busy with other processes.
	OtherProcessors float64 `json:"others"`
	OursTaken       int     `json:"ours_taken"`
	PeersTaken      int     `json:"peers_taken"`
}

// A result summarizes a series. Samples are compared with samples of the same state, near or far, and both states are
// reported. The figure uses the near samples. If there are too few, it uses
// all samples.
type result struct {
	Peer      string `json:"peer"`
	Setting   string `json:"setting"`
	IsDefault bool   `json:"default"`
	medians
	State       hop.State `json:"state"`          // of the figure
	NearMedians *medians  `json:"near,omitempty"` // nil without near samples
	FarMedians  *medians  `json:"far,omitempty"`  // nil without others
	FailedPairs int       `json:"failed"`
	Pairs       []pair    `json:"pairs"`
}

func nearOnes(s sample) bool  { return s.IsNear }
func farOnes(s sample) bool   { return !s.IsNear }
func allOfThem(s sample) bool { return true }

// in returns the medians of the samples that are in a state.
func (s *series) in(state func(sample) bool) medians {
	var m medians
	var ours, theirs, hops, load []float64
	for _, p := range s.pairs {
		if state(p.Ours) {
			ours, hops, load = append(ours, p.Ours.Value), append(hops, p.Ours.hop()), append(load, p.Ours.OtherProcessors)
		}
		if state(p.Peer) {
			theirs, load = append(theirs, p.Peer.Value), append(load, p.Peer.OtherProcessors)
		}
		if state(p.Ours) && state(p.Peer) && (m.BestPair == nil || s.fig.better(p.Ours.Value*p.Peer.Value, m.BestPair.Ours*m.BestPair.Peer)) {
			m.BestPair = &twoFigures{p.Ours.Value, p.Peer.Value, p.Ours.Value / p.Peer.Value}
		}
	}
	m.Ours, m.Theirs, m.RawHopNS, m.OtherProcessors = median(ours), median(theirs), median(hops), median(load)
	m.OursTaken, m.PeersTaken = len(ours), len(theirs)
	if m.Theirs > 0 {
		m.Ratio = m.Ours / m.Theirs
	}
	return m
}

// result summarizes the judged samples. ok is false without a pair.
func (s *series) result(want int) (r result, ok bool) {
	if len(s.pairs) == 0 {
		return r, false
	}
	r = result{Peer: s.peer.Title, Setting: s.setting.Title, IsDefault: s.setting.IsDefault, FailedPairs: s.failedPairs, Pairs: s.pairs}
	near, far := s.in(nearOnes), s.in(farOnes)
	r.State = hop.Classify(min(near.OursTaken, near.PeersTaken), want)
	r.medians = near
	if r.State == hop.Far {
		r.medians = s.in(allOfThem)
	}
	if near.OursTaken+near.PeersTaken > 0 {
		r.NearMedians = &near
	}
	if far.OursTaken+far.PeersTaken > 0 {
		r.FarMedians = &far
	}
	return r, true
}

// Other is the state beside that of the figure, if a sample was taken in it.
func (r *result) Other() *medians {
	if r.State == hop.Far {
		return r.NearMedians
	}
	return r.FarMedians
}

// OtherState names it.
func (r *result) OtherState() hop.State {
	if r.State == hop.Far {
		return hop.Near
	}
	return hop.Far
}

// hop is the one that was taken nearest to the loop.
func (s sample) hop() float64 {
	if s.RawHopNS > 0 {
		return s.RawHopNS
	}
	return s.OutsideHopNS
}

// median returns the median of a list, or 0 of an empty one.
func median(list []float64) float64 {
	m, err := stats.Median(list)
	if err != nil { // an empty list
		return 0
	}
	return m
}

// A standing is ours beside the strongest of some peers, and whether that is as
// good as is wanted.
type standing struct {
	*result     `json:"-"`
	Peer        string  `json:"peer"`
	Setting     string  `json:"setting"`
	Ratio       float64 `json:"ratio"`
	WantedRatio float64 `json:"wanted"`
	IsMet       bool    `json:"met"`
}

// A row is a figure with its results.
type row struct {
	figure
	Results         []result  `json:"results"`
	DefaultStanding *standing `json:"default"` // beside the peer that is best as it comes
	BestStanding    *standing `json:"best"`    // beside the best of all settings
	NotMeasured     string    `json:"not_measured,omitempty"`
}

// beside returns ours beside the peer with the best figure; nil if none was
// measured.
func (w *row) beside(wanted float64, only func(result) bool) *standing {
	var r *result
	for i, x := range w.Results {
		if only(x) && (r == nil || w.better(x.Theirs, r.Theirs)) {
			r = &w.Results[i]
		}
	}
	if r == nil {
		return nil
	}
	return &standing{r, r.Peer, r.Setting, r.Ratio, wanted, w.Within(wanted).meets(r.Ratio)}
}

// A report is everything that is written.
type report struct {
	machineInfo
	WantedPairs int                `json:"pairs_wanted"`
	BestHopsNS  map[string]float64 `json:"best_raw_hops_ns"` // by instrument
	Rows        []row              `json:"rows"`
	AloneRows   []own              `json:"alone"`
	Protocols   []protocolPoint    `json:"ways,omitempty"`
	MemoryRows  []memoryRow        `json:"rank_memory"`
	Curves      []*curve           `json:"curves"`
}

// summarize makes rows of series; those of one figure follow one another.
func summarize(a machineInfo, all []*series, hops bests, want int) *report {
	rep := &report{machineInfo: a, WantedPairs: want, BestHopsNS: hops.ns()}
	for _, s := range all {
		if s.fig.versusVariant != nil {
			rep.AloneRows = append(rep.AloneRows, pairsOfOurs(s, want))
			continue
		}
		n := len(rep.Rows)
		if n == 0 || rep.Rows[n-1].Name != s.fig.Name {
			rep.Rows = append(rep.Rows, row{figure: s.fig, Results: []result{}})
			n++
		}
		w := &rep.Rows[n-1]
		if r, ok := s.result(want); ok {
			w.Results = append(w.Results, r)
		} else {
			w.NotMeasured = s.lastFailure
		}
	}
	rep.stand()
	return rep
}

// stand finds who is the strongest peer of each row.
func (rep *report) stand() {
	for i := range rep.Rows {
		w := &rep.Rows[i]
		w.DefaultStanding = w.beside(w.WantedDefault, func(r result) bool { return r.IsDefault })
		w.BestStanding = w.beside(w.WantedBest, func(result) bool { return true })
	}
}

// Never reports whether no figure has enough near samples.
func (rep *report) Never() bool {
	states := map[hop.State]bool{}
	for _, w := range rep.Rows {
		for _, r := range w.Results {
			states[r.State] = true
		}
	}
	return states[hop.Far] && len(states) == 1
}
