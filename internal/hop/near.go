package hop

import (
	"context"
	"slices"
	"time"
)

// NearFactor: a sample was taken in the near state if its raw hop is at most
// this many times the best of the run. States lie a factor of 2 to 10 apart,
// and within one the hop varies by 20 %.
const NearFactor = 1.5

const (
	// A state that is rarer than one hop in share is no measure for the others: in the
	// time that there is, it does not give enough samples.
	share = 10

	// lucky is how many of the lowest hops don't count, though a tenth be fewer.
	lucky = 2
)

// Best estimates the raw hop of a run's best state: the one that a tenth of all
// hops don't exceed. The least hop says less: one that is too good to be true
// would make all others far. A machine that moves between near and far gets that of
// near, if it is near in one sample of ten; one that is always far gets that of far.
//
// It is told one hop for each sample, and some before. Those of a wait for the near
// state are not among them: there are many, and all but the last are far. The zero
// value has seen nothing.
type Best struct{ hops []float64 } // sorted

// See takes note of a hop, in ns. 0 is one that was not taken.
func (b *Best) See(ns float64) {
	if ns > 0 {
		i, _ := slices.BinarySearch(b.hops, ns)
		b.hops = slices.Insert(b.hops, i, ns)
	}
}

// NS is the estimate, in ns; 0: no hop was seen.
func (b *Best) NS() float64 {
	n := len(b.hops)
	if n == 0 {
		return 0
	}
	// Of four hops or fewer it is the lower one in the middle.
	return b.hops[max((n-1)/share, min(lucky, (n-1)/2))]
}

// Near judges a sample's hop by what was seen so far. One that was not taken (0) says
// nothing against the sample.
func (b *Best) Near(ns float64) bool { return ns <= NearFactor*b.NS() }

// A State says how far a figure can be trusted.
type State string

// The states. Few and Far are those of a machine that was seldom or never near.
const (
	Near State = "near" // as many samples as wanted were near; they alone count
	Few  State = "few"  // at least half as many were; they alone count
	Far  State = "far"  // fewer: all samples count, and the figure is a rough one
)

// Judge is the state of a figure of which so many samples were near.
func Judge(near, want int) State {
	switch {
	case near >= want:
		return Near
	case 2*near >= want && near > 0:
		return Few
	}
	return Far
}

const (
	calibration = time.Second
	interval    = 20 * time.Millisecond // between its hops: one second must not outweigh the run
	step        = 5 * time.Millisecond  // between the hops of Await

	// Patience is how long to wait for the near state to come back.
	Patience = 400 * time.Millisecond
)

// Calibrate sees hops that take takes, so that the first samples can be judged.
func (b *Best) Calibrate(ctx context.Context, take func(context.Context) (float64, error)) error {
	for end := time.Now().Add(calibration); time.Now().Before(end); {
		ns, err := take(ctx)
		if err != nil {
			return err
		}
		b.See(ns)
		if err := pause(ctx, interval); err != nil {
			return err
		}
	}
	return nil
}

// Await returns when a hop is near, or when that lasts too long, with the hop.
func (b *Best) Await(ctx context.Context, patience time.Duration, take func(context.Context) (float64, error)) (float64, error) {
	for end := time.Now().Add(patience); ; {
		ns, err := take(ctx)
		if err != nil || b.Near(ns) || time.Now().After(end) {
			return ns, err
		}
		if err := pause(ctx, step); err != nil {
			return 0, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
