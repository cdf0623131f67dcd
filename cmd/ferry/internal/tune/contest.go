package tune

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/montanaflynn/stats"

	"github.com/ferrympi/ferry/internal/hop"
)

const (
	// leastGain is how much better a value must be than the present one, as a
	// logarithm: 5 %. Less isn't worth a machine that differs from others.
	leastGain = 0.049

	// safety times the error of a median is what noise seldom reaches; what has won
	// has to win again.
	safety = 3

	// worstLoss: no size may become slower by more than 10 %, whatever the others
	// gain.
	worstLoss = -0.105

	attempts = 3 // rounds that are taken at most, in terms of those wanted
)

// arm is one of the settings that a contest compares, and what it is to carry.
type arm struct {
	setting setting
	loads   []load
}

// contest compares arms by samples that alternate: each round has one of every
// arm, in turns forwards and backwards.
type contest struct {
	m      *meter
	arms   []arm
	rounds [][]sweep // by round and arm
}

// contest takes rounds until there are enough in the near state, or the time is up.
// There is one at least: a path without a figure would be a table without a row.
func (m *meter) contest(ctx context.Context, arms ...arm) (*contest, error) {
	c := &contest{m: m, arms: arms}
	end := time.Now().Add(m.share)
	if m.end.Before(end) {
		end = m.end
	}
	for len(c.rounds) == 0 || len(c.rounds) < attempts*m.wanted && !c.enough() && time.Now().Before(end) {
		if _, err := m.bestHop.Await(ctx, m.patience, m.hop); err != nil {
			return nil, err
		}
		round := make([]sweep, len(arms))
		for turn := range arms {
			i := turn
			if len(c.rounds)%2 == 1 {
				i = len(arms) - 1 - turn
			}
			var err error
			if round[i], err = m.sweep(ctx, arms[i].setting, arms[i].loads); err != nil {
				return nil, err
			}
		}
		c.rounds = append(c.rounds, round)
	}
	for _, round := range c.rounds {
		for _, arm := range round {
			for _, x := range arm {
				m.samples++
				if m.bestHop.Near(x.hop) {
					m.counted++
				}
			}
		}
	}
	return c, nil
}

// enough reports whether every arm has as many samples beside the first as are
// wanted.
func (c *contest) enough() bool {
	if len(c.rounds) < c.m.wanted {
		return false
	}
	for j := 1; j < len(c.arms); j++ {
		for _, p := range c.points(0, j) {
			if n, _ := c.pairs(0, j, p); len(n) < c.m.wanted {
				return false
			}
		}
	}
	return true
}

// points returns what arms i and j both have measured, in order.
func (c *contest) points(i, j int) []point {
	var out []point
	if len(c.rounds) > 0 {
		for p := range c.rounds[0][i] {
			if _, both := c.rounds[0][j][p]; both {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b point) int { return cmp.Or(cmp.Compare(a.bench, b.bench), cmp.Compare(a.size, b.size)) })
	return out
}

// pairs returns by how much arm j was better than arm i at a point, in each round
// in which both samples count, and which rounds those are.
func (c *contest) pairs(i, j int, p point) (gains []float64, rounds []int) {
	for r, round := range c.rounds {
		a, b := round[i][p], round[j][p]
		if near := c.m.bestHop.Near; near(a.hop) && near(b.hop) {
			gains = append(gains, a.cost-b.cost)
			rounds = append(rounds, r)
		}
	}
	return gains, rounds
}

// score is how much better one arm was than another, as logarithms.
type score struct {
	gain   float64
	margin float64 // what it takes to be believed
	known  bool    // there were enough samples
}

// again holds the contest once more, and returns why it does not confirm that arm
// j is better than arm i, or "".
func (c *contest) again(ctx context.Context, i, j int, keep func(point) bool) (why string, err error) {
	second, err := c.m.contest(ctx, c.arms...)
	if err != nil {
		return "", err
	}
	switch x := second.score(i, j, keep); {
	case !x.known:
		why = "too few samples in the near state for a second contest"
	case !x.passes():
		why = fmt.Sprintf("not in a second contest: %+.1f %%", 100*part(x.gain))
	}
	return why, nil
}

// passes reports whether the difference counts.
func (s score) passes() bool { return s.known && s.gain >= s.margin }

// fails reports whether it counts the other way round.
func (s score) fails() bool { return s.known && s.gain <= -s.margin }

// score compares arm j with arm i at the points that keep accepts. The gain is
// the mean over the points of the median over the rounds. Rounds drift as a whole,
// so that the error comes from their deviations, each the mean over the points.
func (c *contest) score(i, j int, keep func(point) bool) score {
	var s score
	deviations := map[int][]float64{} // by round
	n := 0
	for _, p := range c.points(i, j) {
		if !keep(p) {
			continue
		}
		gains, rounds := c.pairs(i, j, p)
		if !c.m.suffice(len(gains)) {
			continue
		}
		mid := median(gains)
		s.gain += mid
		n++
		for k, r := range rounds {
			deviations[r] = append(deviations[r], gains[k]-mid)
		}
	}
	if n == 0 {
		return s
	}
	s.gain /= float64(n)
	var off []float64
	for _, d := range deviations {
		mean, _ := stats.Mean(d) // there is one at least
		off = append(off, math.Abs(mean))
	}
	// Three quarters of a normal distribution lie within 1.15 of its standard
	// deviation, and the median of n samples has 1.25 times the error of their mean.
	slices.Sort(off)
	deviation := off[3*len(off)/4] / 1.15
	s.margin = max(leastGain, safety*1.25*deviation/math.Sqrt(float64(len(off))))
	s.known = true
	return s
}

// worst returns the size at which arm j does worst beside arm i.
func (c *contest) worst(i, j int) (size int, gain float64) {
	for _, at := range sizesOf(c, i, j, 0) {
		if s := c.score(i, j, func(p point) bool { return p.size == at }); s.known && (size == 0 || s.gain < gain) {
			size, gain = at, s.gain
		}
	}
	return size, gain
}

// figure returns the median of an arm's samples that count; 0 if nobody has taken any.
func (c *contest) figure(i int, p point) (value float64, state hop.State) {
	var all, counted []float64
	for _, round := range c.rounds {
		x, ok := round[i][p]
		if !ok {
			return 0, hop.Near
		}
		all = append(all, x.value)
		if c.m.bestHop.Near(x.hop) {
			counted = append(counted, x.value)
		}
	}
	if state = hop.Judge(len(counted), c.m.wanted); state == hop.Far {
		counted = all
	}
	return median(counted), state
}

// suffice reports whether so many samples will do: two thirds of those wanted.
func (m *meter) suffice(n int) bool { return 3*n >= 2*m.wanted }

// median of a list that is not empty; of the two in the middle it is the mean.
func median(v []float64) float64 {
	m, _ := stats.Median(v) // fails for an empty list only
	return m
}
