package hop

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// series returns n hops in random order that vary by 20 % around the levels of percents.
func series(n int, percents map[float64]int) (hops []float64) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	var deck []float64
	for level, percent := range percents {
		for range percent {
			deck = append(deck, level)
		}
	}
	for i := range n {
		if i%len(deck) == 0 {
			rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		hops = append(hops, deck[i%len(deck)]*(0.9+0.2*rng.Float64()))
	}
	return hops
}

func best(hops ...float64) *Best {
	var b Best
	for _, ns := range hops {
		b.Add(ns)
	}
	return &b
}

func (b *Best) countNear(hops []float64) (n int) {
	for _, ns := range hops {
		if b.Near(ns) {
			n++
		}
	}
	return n
}

// Two low outliers once made 1641 of 1728 samples far.
func TestBest_TwoLowOutliers_AreIgnored(t *testing.T) {
	hops := series(1700, map[float64]int{42: 100})
	for _, n := range []int{5, 50, 1700} {
		for _, after := range []int{0, n / 2, n} {
			var b Best
			for i, ns := range hops[:n] {
				if i == after {
					b.Add(19)
					b.Add(21)
				}
				b.Add(ns)
			}
			if got := b.countNear(hops[:n]); got != n {
				t.Errorf("%d hops, the lucky ones after %d: %d are near, best %.0f ns", n, after, got, b.NS())
			}
		}
	}
	if b := best(40, 19, 41); !b.Near(40) || !b.Near(41) {
		t.Errorf("of three: best %.0f ns", b.NS())
	}
}

func TestBest_NearInOverATenth_IsNear(t *testing.T) {
	for _, percent := range []int{90, 50, 30, 15} {
		hops := series(1000, map[float64]int{25: percent, 250: 100 - percent})
		b := best(hops...)
		if got := b.countNear(hops); got != 10*percent || b.NS() > 28 {
			t.Errorf("near in %d %%: %d of 1000, best %.0f ns", percent, got, b.NS())
		}
	}
	// Hops that were near by the first estimate become far.
	far, later := series(80, map[float64]int{250: 100}), series(60, map[float64]int{25: 70, 250: 30})
	b := best(far...)
	if b.countNear(far) != len(far) {
		t.Errorf("only far hops: best %.0f ns", b.NS())
	}
	for _, ns := range later {
		b.Add(ns)
	}
	if got := b.countNear(far); got != 0 {
		t.Errorf("%d of the far ones count, best %.0f ns", got, b.NS())
	}
}

func TestBest_RarelyNear_IsFar(t *testing.T) {
	for _, percent := range []int{0, 5} {
		hops := series(1000, map[float64]int{25: percent, 250: 100 - percent})
		if b := best(hops...); b.countNear(hops) != len(hops) || b.NS() < 225 {
			t.Errorf("near in %d %%: %d of %d, best %.0f ns", percent, b.countNear(hops), len(hops), b.NS())
		}
	}
	// More than one hop in ten is near for any distribution.
	wide := series(1000, map[float64]int{20: 5, 30: 10, 45: 20, 70: 25, 100: 20, 200: 20})
	if b := best(wide...); b.countNear(wide) < 100 {
		t.Errorf("%d are near, best %.0f ns", b.countNear(wide), b.NS())
	}
}

func TestBest_MissingHop_IsIgnored(t *testing.T) {
	b := best(0, 30, 0)
	if b.NS() != 30 || !b.Near(0) || !b.Near(44) || b.Near(46) {
		t.Errorf("best %.0f ns", b.NS())
	}
	if b = best(); b.NS() != 0 || b.Near(30) || !b.Near(0) {
		t.Errorf("no hops: best %.0f ns", b.NS())
	}
}

func TestClassify_NearSamples_DetermineState(t *testing.T) {
	for near, want := range map[int]State{0: Far, 3: Far, 4: Few, 6: Few, 7: Near, 8: Near} {
		if got := Classify(near, 7); got != want {
			t.Errorf("%d of 7: %s, want %s", near, got, want)
		}
	}
	if got := Classify(0, 0); got != Near {
		t.Errorf("none wanted: %s", got)
	}
}

func TestAwait_FarHops_AreNotAdded(t *testing.T) {
	b := best(25, 25, 25, 26, 27)
	left := 3
	take := func(context.Context) (float64, error) {
		if left--; left > 0 {
			return 250, nil
		}
		return 26, nil
	}
	if ns, err := b.Await(t.Context(), time.Hour, take); err != nil || ns != 26 || left != 0 || len(b.hops) != 5 {
		t.Errorf("%g ns, %v, %d hops left; %v", ns, err, left, b.hops)
	}
	far := func(context.Context) (float64, error) { return 250, nil }
	if ns, err := b.Await(t.Context(), 0, far); err != nil || ns != 250 {
		t.Errorf("without a timeout: %g ns, %v", ns, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stop")
	cancel(why)
	if _, err := b.Await(ctx, time.Hour, far); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	if err := b.Calibrate(ctx, far); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}
