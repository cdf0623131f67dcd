package launchers

import (
	"context"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/internal/procstat"
)

// What a process may take more after many rounds than after half of them.
const (
	moreMappings = 8               // the Go runtime's own, once in a while
	moreHeap     = 128 << 10       // bytes that the runtime and pools keep at times
	morePerRound = 8 << 10         // bytes of resident memory, as the slope of many measurements: the runtime settles at 1 to 3 KiB
	slopeRounds  = 1000            // a shorter line shows noise
	lull         = 2 * time.Second // until what closed has let go of all: a peer has a second for its goodbye
)

// Steady calls round n times, and is an error if the process then takes more than when it
// had settled: descriptors, goroutines, mappings or memory (under the race detector the first
// two only). It prints what it has measured.
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
			time.Sleep(lull)
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
	case last.Mappings > first.Mappings+moreMappings:
		return fmt.Errorf("mappings grow from %d to %d", first.Mappings, last.Mappings)
	case last.Heap > first.Heap+moreHeap:
		return fmt.Errorf("the heap grows from %d to %d bytes", first.Heap, last.Heap)
	case n >= slopeRounds && rise > morePerRound:
		return fmt.Errorf("resident memory grows by %.0f bytes a round", rise)
	}
	return nil
}
