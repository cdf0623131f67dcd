package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// ferryRanks is the instrument that takes the raw hop inside our jobs.
const ferryRanks = "ferry"

// attempts limits the pairs of a series to this many times those wanted.
const attempts = 3

// A pair is a sample of ours and the peer's sample that followed at once.
type pair struct {
	Ours sample `json:"ours"`
	Peer sample `json:"peer"`
	Near bool   `json:"near"`
}

// A series is what was measured of one figure beside one setting of a peer.
type series struct {
	fig     figure
	peer    peer
	setting setting
	pairs   []pair
	failed  int    // pairs of which a sample failed
	why     string // the last failure, or why nothing was measured
}

// judge says of each pair whether it counts, by all that is known now, and
// returns how many do.
func (s *series) judge(b bests) int {
	near := 0
	for i := range s.pairs {
		s.pairs[i].Near = b.pair(s.pairs[i])
		if s.pairs[i].Near {
			near++
		}
	}
	return near
}

// needs says whether to take one more pair.
func (s *series) needs(b bests, want int, late bool) bool {
	taken := len(s.pairs) + s.failed
	if late {
		return taken < want
	}
	return s.judge(b) < want && taken < attempts*want
}

// comparison takes all samples.
type comparison struct {
	*runner
	*gauge
	want int
	end  time.Time
	note func(format string, a ...any)
}

// measure measures each figure beside each setting that may change it. Figures
// whose samples turn out to be far, by a hop that was seen only later, get
// another chance at the end.
func (c *comparison) measure(ctx context.Context, figs []figure, peers []peer) ([]*series, error) {
	missing, err := c.missing(ctx, figs)
	if err != nil {
		return nil, err
	}
	var all []*series
	byFigure := make([][]*series, len(figs))
	for i, f := range figs {
		for _, p := range peers {
			for _, st := range p.Settings {
				if f.Size < st.FromBytes {
					continue
				}
				s := &series{fig: f, peer: p, setting: st, why: missing[f.Name]}
				all = append(all, s)
				if s.why == "" {
					byFigure[i] = append(byFigure[i], s)
				}
			}
		}
	}
	for round := range 2 {
		for i, list := range byFigure {
			started := time.Now()
			if err := c.figure(ctx, list); err != nil {
				return nil, err
			}
			if took := time.Since(started); round == 0 || took > time.Second {
				c.note("%s: %s (%.1f s)", figs[i].Name, c.glance(list, missing[figs[i].Name]), took.Seconds())
			}
		}
	}
	for _, s := range all {
		s.judge(c.best)
	}
	return all, nil
}

// figure takes pairs in turn for each of the list, until none needs more.
func (c *comparison) figure(ctx context.Context, list []*series) error {
	for more := true; more; {
		more = false
		for _, s := range list {
			if !s.needs(c.best, c.want, time.Now().After(c.end)) {
				continue
			}
			more = true
			p, err := c.pair(ctx, s)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				s.failed++
				s.why = err.Error()
				c.note("%s: a sample failed: %v", s.fig.Name, err)
				continue
			}
			s.pairs = append(s.pairs, p)
		}
	}
	return nil
}

// pair takes ours, then theirs.
func (c *comparison) pair(ctx context.Context, s *series) (p pair, err error) {
	if p.Ours, err = c.between(ctx, s.fig, c.ours(s.fig), ferryRanks); err != nil {
		return p, err
	}
	p.Peer, err = c.between(ctx, s.fig, c.theirs(s.peer, s.setting, s.fig), s.peer.Name)
	return p, err
}

// between takes a sample between two hops.
func (c *comparison) between(ctx context.Context, f figure, args []string, instrument string) (sample, error) {
	wait := patience
	if time.Now().After(c.end) {
		wait = 0
	}
	before, err := c.await(ctx, wait)
	if err != nil {
		return sample{}, err
	}
	s, err := c.take(ctx, f, args, instrument)
	if err != nil {
		return s, err
	}
	after, err := c.now(ctx)
	s.Outside = max(before, after)
	c.best.see(instrument, s.Hop)
	return s, err
}

// missing says which figures can't be measured, since our benchmark has no such
// flag.
func (c *comparison) missing(ctx context.Context, figs []figure) (map[string]string, error) {
	out := map[string]string{}
	for _, f := range figs {
		if f.flag == "" {
			continue
		}
		help, _, err := c.command(ctx, []string{c.ferry, "bench", f.Bench, "--help"})
		if err != nil {
			return nil, err
		}
		if !strings.Contains(help, f.flag+" ") {
			out[f.Name] = fmt.Sprintf("`ferry bench %s` has no %s", f.Bench, f.flag)
		}
	}
	return out, nil
}

// glance is a line for whoever waits.
func (c *comparison) glance(list []*series, missing string) string {
	if missing != "" {
		return "not measured: " + missing
	}
	var out []string
	for _, s := range list {
		near := s.judge(c.best)
		r, ok := s.result(c.want)
		if !ok {
			out = append(out, fmt.Sprintf("%s %s failed", s.peer.Title, s.setting.Title))
			continue
		}
		out = append(out, fmt.Sprintf("%.2f of %s %s (near %d of %d)", r.Ratio, s.peer.Title, s.setting.Title, near, len(s.pairs)))
	}
	return strings.Join(out, "; ")
}
