package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mpi/mpitest"
)

// exchange is the shared state of two ranks that are goroutines of a test.
type exchange struct {
	requests    chan mpi.Request // of rank 1's receive
	sendRequest chan int         // tag of the message that rank 1 sends
}

// Rank 0 waits for a receive of its own and
// for one of rank 1, which has another engine. Rank 1 is in no call of the library.
func TestWaitAny_RequestsOfTwoProcesses_ReturnsEach(t *testing.T) {
	for _, pml := range []string{"ob1", "cm"} {
		t.Run(pml, func(t *testing.T) {
			x := exchange{requests: make(chan mpi.Request), sendRequest: make(chan int)}
			mpitest.Job{Size: 2, Params: map[string]string{"pml": pml}}.Run(t, func(ctx context.Context, c *mpi.Comm) error {
				if c.Rank() == 1 {
					defer close(x.requests)
					return x.peer(ctx, c)
				}
				defer close(x.sendRequest)
				return x.waits(ctx, c)
			})
		})
	}
}

// peer is rank 1: it starts a receive for each message that it sends.
func (x *exchange) peer(ctx context.Context, c *mpi.Comm) error {
	for {
		q, err := c.Irecv(make([]byte, 1), 0, 0)
		if err != nil {
			return err
		}
		select {
		case x.requests <- q:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		tag, more := <-x.sendRequest
		if !more {
			return errors.Join(q.Cancel(), second(q.Wait(ctx)))
		}
		if err := c.Send(ctx, []byte{1}, 0, tag); err != nil {
			return err
		}
	}
}

func second[T any](_ T, err error) error { return err }

func (x *exchange) waits(ctx context.Context, c *mpi.Comm) error {
	for round := range 20 {
		own, err := c.Irecv(make([]byte, 1), 1, round)
		if err != nil {
			return err
		}
		other, ok := <-x.requests
		if !ok {
			return errors.New("rank 1 has ended")
		}
		reqs := []mpi.Request{own, other}
		if done, err := mpi.TestAll(reqs, nil); done || err != nil {
			return fmt.Errorf("TestAll before any message: %v, %w", done, err)
		}
		if _, _, done, err := mpi.TestAny(reqs); done || err != nil {
			return fmt.Errorf("TestAny before any message: %v, %w", done, err)
		}
		if err := c.Send(ctx, []byte{1}, 1, 0); err != nil {
			return err
		}
		if round%2 == 0 {
			x.sendRequest <- round
			if err := mpi.WaitAll(ctx, reqs, nil); err != nil {
				return err
			}
			continue
		}
		if i, _, err := mpi.WaitAny(ctx, reqs); i != 1 || err != nil {
			return fmt.Errorf("WaitAny: %d, %w", i, err)
		}
		x.sendRequest <- round
		done, st := make([]int, 2), make([]mpi.Status, 2)
		if n, err := mpi.WaitSome(ctx, reqs, done, st); n != 1 || done[0] != 0 || st[0].Tag != round || err != nil {
			return fmt.Errorf("WaitSome: %d %v %v, %w", n, done, st, err)
		}
	}
	<-x.requests // one that no message is for
	return nil
}
