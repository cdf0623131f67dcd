package hop

import (
	"context"
	"time"
)

// NearFactor: a sample was taken in the near state if its raw hop is at most
// this many times the best that was seen in the run. States lie a factor of 2
// to 10 apart, and within one the hop varies by 20 %.
const NearFactor = 1.5

// Best is the best raw hop that was seen, in ns; 0: none so far.
type Best float64

// See takes note of a hop, and says whether it is the best. 0 is one that was not taken.
func (b *Best) See(ns float64) bool {
	if ns <= 0 || *b > 0 && ns >= float64(*b) {
		return false
	}
	*b = Best(ns)
	return true
}

// Near judges a sample's hop by what was seen so far. One that was not taken (0) says
// nothing against the sample.
func (b Best) Near(ns float64) bool { return ns <= NearFactor*float64(b) }

const (
	calibration = time.Second
	step        = 5 * time.Millisecond // between the hops of Await

	// Patience is how long to wait for the near state to come back.
	Patience = 400 * time.Millisecond
)

// Calibrate looks for the near state by hops that take takes and sees, so that the
// first samples can be judged.
func Calibrate(ctx context.Context, take func(context.Context) (float64, error)) error {
	for end := time.Now().Add(calibration); time.Now().Before(end); {
		if _, err := take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Await returns when a hop is near, or when that lasts too long, with the hop.
func Await(ctx context.Context, patience time.Duration, take func(context.Context) (float64, error), near func(float64) bool) (float64, error) {
	for end := time.Now().Add(patience); ; {
		ns, err := take(ctx)
		if err != nil || near(ns) || time.Now().After(end) {
			return ns, err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(step):
		}
	}
}
