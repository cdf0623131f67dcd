package hop

import (
	"context"
	"slices"
	"time"
)

// NearFactor is the largest ratio of a near hop to the best hop of the run. The hops of two
// states differ by a factor of 2 to 10, and by 20 % within a state.
const NearFactor = 1.5

const (
	// minFraction is the smallest fraction of hops, as a divisor, that makes a state the
	// reference. Rarer states yield too few samples.
	minFraction = 10

	// outliers is the number of lowest hops that never are the reference.
	outliers = 2
)

// Best estimates the hop of a run's best state as the tenth percentile of all hops. The minimum
// is unsuitable, since a single outlier would make all other hops far. A machine that alternates
// between near and far has the estimate of near if a tenth of its samples are near; a machine
// that is always far has that of far.
//
// Add one hop per sample and the hops of the calibration. Hops of a wait for the near state are
// excluded, since all but the last are far. The zero value is empty.
type Best struct {
	hops []float64 // Sorted.
}

// Add adds a hop in ns. 0 is a missing hop.
func (b *Best) Add(ns float64) {
	if ns > 0 {
		i, _ := slices.BinarySearch(b.hops, ns)
		b.hops = slices.Insert(b.hops, i, ns)
	}
}

// NS returns the estimate in ns, or 0 without hops.
func (b *Best) NS() float64 {
	n := len(b.hops)
	if n == 0 {
		return 0
	}
	// Of at most four hops it is the lower median.
	return b.hops[max((n-1)/minFraction, min(outliers, (n-1)/2))]
}

// Near reports whether a hop is near by the current estimate. A missing hop (0) is near.
func (b *Best) Near(ns float64) bool { return ns <= NearFactor*b.NS() }

// State is the reliability of a figure.
type State string

const (
	// Near has all wanted samples in the near state. Only near samples count.
	Near State = "near"
	// Few has at least half of the wanted samples in the near state. Only near samples count.
	Few State = "few"
	// Far has fewer near samples. All samples count, and the figure is rough.
	Far State = "far"
)

// Classify returns the state of a figure with a number of near samples.
func Classify(near, want int) State {
	switch {
	case near >= want:
		return Near
	case 2*near >= want && near > 0:
		return Few
	}
	return Far
}

const (
	calibrationTime = time.Second
	// calibrationInterval keeps the calibration from outweighing the samples of the run.
	calibrationInterval = 20 * time.Millisecond
	awaitInterval       = 5 * time.Millisecond

	// Patience is the recommended timeout of Await.
	Patience = 400 * time.Millisecond
)

// Calibrate adds the hops of measure for one second.
func (b *Best) Calibrate(ctx context.Context, measure func(context.Context) (float64, error)) error {
	for end := time.Now().Add(calibrationTime); time.Now().Before(end); {
		ns, err := measure(ctx)
		if err != nil {
			return err
		}
		b.Add(ns)
		if err := sleep(ctx, calibrationInterval); err != nil {
			return err
		}
	}
	return nil
}

// Await measures until a hop is near or the timeout passes, and returns the last hop.
func (b *Best) Await(ctx context.Context, timeout time.Duration, measure func(context.Context) (float64, error)) (float64, error) {
	for end := time.Now().Add(timeout); ; {
		ns, err := measure(ctx)
		if err != nil || b.Near(ns) || time.Now().After(end) {
			return ns, err
		}
		if err := sleep(ctx, awaitInterval); err != nil {
			return 0, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
