package bench

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// settle is how long the players of any_lat wait until those that only wait have
// gone to sleep: 63 of them yield some milliseconds each before that.
const settle = 200 * time.Millisecond

// anyLatency is latency's loop between ranks 0 and 1, where rank 0 receives from
// any source. The first --connected of the other ranks have sent it a message
// before, and the rest has not. All but the two are blocked in a receive until the
// end. There is no barrier, since that would connect more ranks.
func (r *rank) anyLatency(ctx context.Context) error {
	const hello, bye = 2, 3
	c := r.comm
	connected := r.o.connected
	if connected == 0 {
		connected = c.Size() - 1
	}
	switch me := c.Rank(); {
	case me > 1:
		if me <= connected {
			if err := c.Send(ctx, nil, 0, hello); err != nil {
				return err
			}
		}
		_, err := c.Recv(ctx, nil, 0, bye)
		return err
	case me == 0:
		for peer := 2; peer <= connected; peer++ {
			if _, err := c.Recv(ctx, nil, peer, hello); err != nil {
				return err
			}
		}
		time.Sleep(settle)
	}
	err := r.sizes(func(size int) error {
		return r.row(ctx, size, func() (Row, error) { return r.latencyFrom(ctx, size, mpi.AnySource) })
	})
	for peer := 2; peer < c.Size() && c.Rank() == 0 && err == nil; peer++ {
		err = c.Send(ctx, nil, peer, bye)
	}
	return err
}
