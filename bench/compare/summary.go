package main

import (
	"github.com/montanaflynn/stats"

	"github.com/ferrympi/ferry/internal/hop"
)

// twoFigures are those of the best pair: the one whose two figures together are the best: the quietest
// moment of the run, whoever gains by it.
type twoFigures struct {
	Ours  float64 `json:"ours"`
	Peer  float64 `json:"peer"`
	Ratio float64 `json:"ratio"`
}

// A result is what a series comes to.
type result struct {
	Peer    string     `json:"peer"`
	Setting string     `json:"setting"`
	Default bool       `json:"default"`
	Ours    float64    `json:"ours"`  // median
	Theirs  float64    `json:"peers"` // median
	Ratio   float64    `json:"ratio"` // ours / theirs
	Best    twoFigures `json:"best_pair"`
	State   hop.State  `json:"state"`
	Hop     float64    `json:"raw_hop_ns"` // median over the pairs that count
	Others  float64    `json:"others"`     // median of processors that worked for others, of all samples that count
	Kept    int        `json:"kept"`
	Dropped int        `json:"dropped"`
	Failed  int        `json:"failed"`
	Pairs   []pair     `json:"pairs"`
}

// result makes one of what was judged last; ok is false if there is no pair.
func (s *series) result(want int) (r result, ok bool) {
	if len(s.pairs) == 0 {
		return r, false
	}
	var counted []pair
	for _, p := range s.pairs {
		if p.Near {
			counted = append(counted, p)
		}
	}
	state := hop.Judge(len(counted), want)
	if state == hop.Far {
		counted = s.pairs
	}
	r = result{
		Peer: s.peer.Title, Setting: s.setting.Title, Default: s.setting.Default, State: state,
		Kept: len(counted), Dropped: len(s.pairs) - len(counted), Failed: s.failed, Pairs: s.pairs,
	}
	var ours, theirs, hops, load []float64
	quiet := counted[0]
	for _, p := range counted {
		ours, theirs = append(ours, p.Ours.Value), append(theirs, p.Peer.Value)
		hops, load = append(hops, p.Ours.hop()), append(load, p.Ours.Others, p.Peer.Others)
		if s.fig.better(p.Ours.Value*p.Peer.Value, quiet.Ours.Value*quiet.Peer.Value) {
			quiet = p
		}
	}
	r.Ours, r.Theirs, r.Hop, r.Others = median(ours), median(theirs), median(hops), median(load)
	r.Ratio = r.Ours / r.Theirs
	r.Best = twoFigures{quiet.Ours.Value, quiet.Peer.Value, quiet.Ours.Value / quiet.Peer.Value}
	return r, true
}

// hop is the one that was taken nearest to the loop.
func (s sample) hop() float64 {
	if s.Hop > 0 {
		return s.Hop
	}
	return s.Outside
}

// median of a list that is not empty; of the two in the middle it is the mean.
func median(list []float64) float64 {
	m, _ := stats.Median(list) // fails for an empty list only
	return m
}

// A standing is ours beside the strongest of some peers, and whether that is as
// good as is wanted.
type standing struct {
	*result `json:"-"`
	Peer    string  `json:"peer"`
	Setting string  `json:"setting"`
	Ratio   float64 `json:"ratio"`
	Wanted  float64 `json:"wanted"`
	Met     bool    `json:"met"`
}

// A row is a figure with its results.
type row struct {
	figure
	Results     []result  `json:"results"`
	Default     *standing `json:"default"` // beside the peer that is best as it comes
	Best        *standing `json:"best"`    // beside the best of all settings
	NotMeasured string    `json:"not_measured,omitempty"`
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
	about
	Pairs  int                `json:"pairs_wanted"`
	Hops   map[string]float64 `json:"best_raw_hops_ns"` // by instrument
	Rows   []row              `json:"rows"`
	Alone  []own              `json:"alone"`
	Kept   []memoryRow        `json:"rank_memory"`
	Curves []*curve           `json:"curves"`
}

// summarize makes rows of series; those of one figure follow one another.
func summarize(a about, all []*series, hops bests, want int) *report {
	rep := &report{about: a, Pairs: want, Hops: hops.ns()}
	for _, s := range all {
		if s.fig.versus != nil {
			rep.Alone = append(rep.Alone, pairsOfOurs(s, want))
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
			w.NotMeasured = s.why
		}
	}
	rep.stand()
	return rep
}

// stand finds who is the strongest peer of each row.
func (rep *report) stand() {
	for i := range rep.Rows {
		w := &rep.Rows[i]
		w.Default = w.beside(w.Wanted, func(r result) bool { return r.Default })
		w.Best = w.beside(w.WantedBest, func(result) bool { return true })
	}
}

// Never says whether the whole run was far.
func (rep *report) Never() bool {
	states := map[hop.State]bool{}
	for _, w := range rep.Rows {
		for _, r := range w.Results {
			states[r.State] = true
		}
	}
	return states[hop.Far] && len(states) == 1
}
