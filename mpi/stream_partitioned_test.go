package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/mpi"
)

// The stream has no other communicator, so that it ends after the round that is active at Close.
func TestStream_PartitionedRoundAtClose_CompletesAndStreamEnds(t *testing.T) {
	onStreamJobs(t, 2, func(ctx context.Context, s *mpi.Session, world *mpi.Comm) error {
		c, err := withNewStream(ctx, s, world)
		if err != nil {
			return err
		}
		const partitions, size, tag = 4, 1 << 16, 3
		other := 1 - world.Rank()
		out, in := make([]byte, size), make([]byte, size)
		send, err := c.PsendInit(out, partitions, other, tag)
		if err != nil {
			return err
		}
		recv, err := c.PrecvInit(in, partitions, other, tag)
		if err != nil {
			return err
		}
		for _, isLast := range []bool{false, true} {
			copy(out, bytes.Repeat([]byte{byte(world.Rank() + 1)}, size))
			clear(in)
			if err := errors.Join(recv.Start(), send.Start()); err != nil {
				return err
			}
			if isLast {
				if err := c.Close(); err != nil {
					return err
				}
			}
			if err := send.PreadyRange(0, partitions-1); err != nil {
				return err
			}
			_, sendErr := send.Wait(ctx)
			_, recvErr := recv.Wait(ctx)
			if err := errors.Join(sendErr, recvErr); err != nil {
				return err
			}
			if !bytes.Equal(in, bytes.Repeat([]byte{byte(other + 1)}, size)) {
				return fmt.Errorf("wrong bytes of rank %d, last round %t", other, isLast)
			}
		}
		return awaitStreams(ctx, s)
	})
}
