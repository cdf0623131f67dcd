package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ferrympi/ferry/internal/hop"
)

// ferryRanks is the instrument that takes the raw hop inside our jobs.
const ferryRanks = "ferry"

// attempts limits the pairs of a series to this many times those wanted.
const attempts = 3

// A pair is a sample of ours and the peer's sample that followed at once.
type pair struct {
	Ours sample `json:"ours"`
	Peer sample `json:"peer"`
}

// A side is a command that gives a sample.
type side struct {
	args          []string
	hopInstrument string
}

// A series has the samples of one figure beside one setting of a peer, or beside a variant of
// ferry.
type series struct {
	fig     figure
	peer    peer
	setting setting
	ours    side
	theirs  side
	pairs   []pair
	// Pairs with a failed sample.
	failedPairs int
	lastFailure string
}

// series returns the series of a figure: one per relevant setting of each
// peer, or one beside a variant of ferry.
func (o *options) series(f figure, peers []peer) []*series {
	ours := side{o.job(o.ferryPath, f, f.ferryFlags, f.commandLine), ferryRanks}
	if v := f.versusVariant; v != nil {
		return []*series{{
			fig: f, peer: peer{Title: "ferry"}, setting: setting{Title: v.Title},
			ours: ours, theirs: side{o.job(cmp.Or(v.programPath, o.ferryPath), f, v.ferryFlags, v.commandLine), ferryRanks},
		}}
	}
	if at := slices.IndexFunc(peers, func(p peer) bool { return p.Name == f.launcherPeer }); at >= 0 {
		ours.args = o.oursUnder(peers[at], f)
	} else if f.launcherPeer != "" {
		return nil
	}
	var out []*series
	for _, p := range peers {
		if f.onlyPeer != "" && p.Name != f.onlyPeer {
			continue
		}
		for _, st := range p.Settings {
			if st.OnlyNetwork == f.networkName && f.MessageBytes >= st.FromBytes {
				out = append(out, &series{fig: f, peer: p, setting: st, ours: ours, theirs: side{o.theirs(p, st, f), p.Name}})
			}
		}
	}
	return out
}

// opposite describes the rows of the other side.
func (s *series) opposite() figure {
	if v := s.fig.versusVariant; v != nil && v.rowFigure != nil {
		return *v.rowFigure
	}
	return s.fig
}

// judge sets the state of each sample by all raw hops so far,
// and returns the smaller number of near samples of both sides.
func (s *series) judge(b bests) int {
	for i := range s.pairs {
		p := &s.pairs[i]
		p.Ours.IsNear, p.Peer.IsNear = b.sample(p.Ours), b.sample(p.Peer)
	}
	near := s.in(nearOnes)
	return min(near.OursTaken, near.PeersTaken)
}

// needs reports whether the series needs another pair.
func (s *series) needs(b bests, want int, late bool) bool {
	taken := len(s.pairs) + s.failedPairs
	if len(s.pairs) == 0 && s.failedPairs >= want { // It may take the time limit of a sample each time.
		return false
	}
	if late {
		return taken < want
	}
	return s.judge(b) < want && taken < attempts*want
}

// comparison takes all samples.
type comparison struct {
	*options
	*gauge
	// Empty for a comparison with an earlier ferry.
	comparedPeers     []peer
	extraSamplesUntil time.Time
	note              func(format string, a ...any)

	// Called before each row.
	onRowStart func(what string)
	memoryRows []memoryRow // Measured so far.
}

// measure measures each figure beside each relevant setting. Figures with
// samples that a later raw hop turns into far ones are measured again at
// the end.
func (c *comparison) measure(ctx context.Context, figs []figure) ([]*series, error) {
	var all []*series
	byFigure := make([][]*series, len(figs))
	for i, f := range figs {
		byFigure[i] = c.series(f, c.comparedPeers)
		all = append(all, byFigure[i]...)
	}
	for round := range 2 {
		for i, list := range byFigure {
			started := time.Now()
			if round == 0 {
				c.onRowStart(figs[i].Name)
			}
			if err := c.figure(ctx, list); err != nil {
				return nil, err
			}
			if elapsed := time.Since(started); round == 0 || elapsed > time.Second {
				c.note("%s: %s (%.1f s)", figs[i].Name, c.glance(list), elapsed.Seconds())
			}
		}
	}
	return all, nil
}

// figure takes pairs in turn for each of the list, until none needs more.
func (c *comparison) figure(ctx context.Context, list []*series) error {
	for more := true; more; {
		more = false
		for _, s := range list {
			if !s.needs(c.bestHops, c.pairCount, time.Now().After(c.extraSamplesUntil)) {
				continue
			}
			more = true
			p, err := c.pair(ctx, s)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				s.failedPairs++
				s.lastFailure = err.Error()
				c.note("%s: a sample failed: %v", s.fig.Name, err)
				continue
			}
			s.pairs = append(s.pairs, p)
		}
	}
	return nil
}

func (c *comparison) pair(ctx context.Context, s *series) (p pair, err error) {
	ours, err := c.between(ctx, s.fig, s.ours)
	if err != nil {
		return p, err
	}
	theirs, err := c.between(ctx, s.opposite(), s.theirs)
	if err != nil {
		return p, err
	}
	return pair{Ours: ours[0], Peer: theirs[0]}, nil
}

// between takes samples between two hops.
func (c *comparison) between(ctx context.Context, f figure, from side) ([]sample, error) {
	patience := hop.Patience
	if time.Now().After(c.extraSamplesUntil) {
		patience = 0
	}
	before, err := c.bestHops.of(outside).Await(ctx, patience, c.now)
	if err != nil {
		return nil, err
	}
	list, err := c.take(ctx, f, from)
	if err != nil {
		return nil, err
	}
	after, err := c.now(ctx)
	around := max(before, after)
	c.bestHops.of(outside).Add(around)
	for i := range list {
		list[i].OutsideHopNS = around
		c.bestHops.of(from.hopInstrument).Add(list[i].RawHopNS)
	}
	return list, err
}

// glance returns a line of progress.
func (c *comparison) glance(list []*series) string {
	var out []string
	for _, s := range list {
		near := s.judge(c.bestHops)
		r, ok := s.result(c.pairCount)
		if !ok {
			out = append(out, fmt.Sprintf("%s %s failed", s.peer.Title, s.setting.Title))
			continue
		}
		out = append(out, fmt.Sprintf("%.2f of %s %s (near %d of %d)", r.Ratio, s.peer.Title, s.setting.Title, near, len(s.pairs)))
	}
	return strings.Join(out, "; ")
}
