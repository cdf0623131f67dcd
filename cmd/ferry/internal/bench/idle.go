package bench

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// idle has all ranks but the first wait in a receive for a second at a time: how
// much of a processor does each of them use meanwhile?
func (r *rank) idle(ctx context.Context, _ int) (Row, error) {
	const tag = 1
	l := r.o.loop(0, 3, 0, 0, 0)
	c := r.comm
	var used []float64
	for i := range l.warmup + l.iterations {
		if c.Rank() == 0 {
			time.Sleep(time.Second)
			for peer := 1; peer < c.Size(); peer++ {
				if err := c.Send(ctx, nil, peer, tag); err != nil {
					return Row{}, err
				}
			}
			continue
		}
		before, err := processorTime()
		if err != nil {
			return Row{}, err
		}
		start := time.Now()
		if _, err := c.Recv(ctx, nil, 0, tag); err != nil {
			return Row{}, err
		}
		whole := time.Since(start)
		after, err := processorTime()
		if err != nil {
			return Row{}, err
		}
		if i >= l.warmup {
			used = append(used, 100*(after-before).Seconds()/whole.Seconds())
		}
	}
	all, err := r.gather(ctx, used)
	if err != nil || c.Rank() != 0 {
		return Row{}, err
	}
	return ofValues(Row{Unit: "%"}, all), nil
}

// processorTime is how much of processors this process has used so far.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("use of the processor: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
