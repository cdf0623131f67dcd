// Ring passes a token from rank to rank, each adding one, for the time
// given by -seconds (one lap without it). Rank 0 prints its speed.
//
//	ferry run -n 4 bin/ring -seconds 5
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

func main() {
	seconds := flag.Float64("seconds", 0, "keep the token going for this long")
	flag.Parse()
	if err := run(context.Background(), time.Duration(*seconds*float64(time.Second))); err != nil {
		fmt.Fprintln(os.Stderr, "ring:", err)
		os.Exit(1)
	}
}

// token is the message: the number of its hops, and whether this lap is the last.
type token struct {
	Hops int64
	Last bool
}

func run(ctx context.Context, duration time.Duration) error {
	session, err := mpi.OpenSession(ctx)
	if err != nil {
		return err
	}
	defer session.Close()
	world, err := session.Group(ctx, "mpi://WORLD")
	if err != nil {
		return err
	}
	comm, err := mpi.CommFromGroup(ctx, world, "org.example.ring")
	if err != nil {
		return err
	}
	defer comm.Close()

	rank, size := comm.Rank(), comm.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size
	send, recv := make([]token, 1), make([]token, 1)
	start := time.Now()
	for laps := int64(1); ; laps++ {
		if rank == 0 {
			send[0] = token{Hops: recv[0].Hops + 1, Last: time.Since(start) >= duration}
			// A single rank sends to itself, which needs both at once.
			if _, err := mpi.Sendrecv(ctx, comm, send, next, 0, recv, previous, 0); err != nil {
				return err
			}
		} else {
			if _, err := mpi.Recv(ctx, comm, recv, previous, 0); err != nil {
				return err
			}
			send[0] = token{Hops: recv[0].Hops + 1, Last: recv[0].Last}
			if err := mpi.Send(ctx, comm, send, next, 0); err != nil {
				return err
			}
		}
		if !recv[0].Last {
			continue
		}
		if rank == 0 {
			if want := laps * int64(size); recv[0].Hops != want {
				return fmt.Errorf("the token made %d hops, not %d", recv[0].Hops, want)
			}
			fmt.Printf("%d laps of %d ranks, %v per hop\n", laps, size, time.Since(start)/time.Duration(laps*int64(size)))
		}
		return nil
	}
}
