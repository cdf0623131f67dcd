package bench

import (
	"context"
	"sync"

	"github.com/ferrympi/ferry/mpi"
)

// mostFilling is the number of goroutines that fill a buffer, each a part of equal length, and of partitions.
const mostFilling = 4

// partitioned compares a partitioned send, with partitions that goroutines fill and mark as ready, and a send after all of them have
// filled their parts. The time is that of rank 0 from the start until an empty message of the receiver.
func (r *rank) partitioned(ctx context.Context, size int) (Row, error) {
	buf, err := r.buffer(size)
	if err != nil {
		return Row{}, err
	}
	parts := mostFilling
	for size%parts != 0 {
		parts--
	}
	whole, err := r.filled(ctx, size, func(fill func(func(int) error) error) error {
		if r.comm.Rank() == 1 {
			_, err := r.comm.Recv(ctx, buf, 0, 0)
			return err
		}
		if err := fill(func(int) error { return nil }); err != nil {
			return err
		}
		return r.comm.Send(ctx, buf, 1, 0)
	}, buf, parts)
	if err != nil {
		return Row{}, err
	}
	init := r.comm.PsendInit
	if r.comm.Rank() == 1 {
		init = r.comm.PrecvInit
	}
	p, err := init(buf, parts, 1-r.comm.Rank(), 0)
	if err != nil {
		return Row{}, err
	}
	row, err := r.filled(ctx, size, func(fill func(func(int) error) error) error {
		if err := p.Start(); err != nil {
			return err
		}
		if r.comm.Rank() == 0 {
			if err := fill(p.Pready); err != nil {
				return err
			}
		}
		_, err := p.Wait(ctx)
		return err
	}, buf, parts)
	row.PureTime = whole.Avg
	if err == nil {
		err = p.Free()
	}
	return row, err
}

// filled times a transfer. Its argument fills the parts of buf by a goroutine each, which then calls the given function.
func (r *rank) filled(ctx context.Context, size int, transfer func(fill func(func(int) error) error) error, buf []byte, parts int) (Row, error) {
	each, errs := len(buf)/parts, make([]error, parts)
	value := byte(0)
	fill := func(then func(int) error) error {
		value++
		var all sync.WaitGroup
		for i := range parts {
			all.Go(func() {
				part := buf[i*each : (i+1)*each]
				for at := range part {
					part[at] = value
				}
				errs[i] = then(i)
			})
		}
		all.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	}
	s, err := r.o.loop(size, 1000, 100, 100, 10).time(func(n int) error {
		for range n {
			if err := transfer(fill); err != nil {
				return err
			}
			if r.comm.Rank() == 1 {
				if err := r.comm.Send(ctx, nil, 0, 1); err != nil {
					return err
				}
			} else if _, err := r.comm.Recv(ctx, nil, 1, 1); err != nil {
				return err
			}
		}
		return nil
	}, func() error { return mpi.Barrier(ctx, r.comm) })
	if err != nil {
		return Row{}, err
	}
	return s.times(Row{Unit: "us"}, 1e-3), nil
}
