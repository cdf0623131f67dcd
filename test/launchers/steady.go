package launchers

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/internal/procstat"
)

// Limits of the growth between the settled state and the last round.
const (
	maxMappingsGrowth = 8               // The Go runtime creates mappings occasionally.
	maxHeapGrowth     = 128 << 10       // Bytes that the runtime and pools retain occasionally.
	maxGrowthPerRound = 8 << 10         // Bytes of resident memory, as a slope. The runtime settles at 1 to 3 KiB.
	slopeRounds       = 1000            // Fewer rounds are dominated by noise.
	settleTime        = 2 * time.Second // Time until closed peers have released everything. A goodbye has a second.
)

// Steady calls round n times. It returns an error if descriptors, goroutines, mappings or memory
// have grown since the settled state. Under the race detector it checks the first two only. It
// prints the measurements.
func Steady(ctx context.Context, n int, round func(ctx context.Context, i int) error) error {
	settled, every := n/2, max(n/100, 1)
	var x, resident []float64
	var first, last procstat.Usage
	for i := range n {
		if err := round(ctx, i); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		if i < settled || (i-settled)%every != 0 && i != n-1 {
			continue
		}
		if len(x) == 0 || i == n-1 {
			time.Sleep(settleTime)
		}
		last = procstat.Measure()
		if len(x) == 0 {
			first = last
		}
		x, resident = append(x, float64(i)), append(resident, float64(last.Resident))
	}
	rise := procstat.Slope(x, resident)
	fmt.Printf("after %d rounds %+v, after %d %+v; resident memory per round: %+.0f B\n", settled+1, first, n, last, rise)
	switch {
	case last.Descriptors > first.Descriptors:
		return fmt.Errorf("descriptors grow from %d to %d", first.Descriptors, last.Descriptors)
	case last.Goroutines > first.Goroutines:
		return fmt.Errorf("goroutines grow from %d to %d", first.Goroutines, last.Goroutines)
	case raceDetector:
		return nil
	case last.Mappings > first.Mappings+maxMappingsGrowth:
		return fmt.Errorf("mappings grow from %d to %d", first.Mappings, last.Mappings)
	case last.Heap > first.Heap+maxHeapGrowth:
		return fmt.Errorf("the heap grows from %d to %d bytes", first.Heap, last.Heap)
	case n >= slopeRounds && rise > maxGrowthPerRound:
		return fmt.Errorf("resident memory grows by %.0f bytes a round", rise)
	}
	return nil
}
