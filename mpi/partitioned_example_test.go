package mpi_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/ferrympi/ferry/mpi"
)

// Four goroutines fill a partition each, and the library sends it as soon as it is ready. The rank sends to itself. The
// receiver has two partitions.
func ExamplePsendInit() {
	ctx := context.Background()
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	self, err := s.Group(ctx, "mpi://SELF")
	if err != nil {
		log.Fatal(err)
	}
	c, err := mpi.CommFromGroup(ctx, self, "partitions")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	out, in := make([]int, 8), make([]int, 8)
	send, err := mpi.PsendInit(c, out, 4, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	recv, err := mpi.PrecvInit(c, in, 2, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	for round := range 2 {
		if err := mpi.StartAll([]*mpi.Persistent{recv, send}); err != nil {
			log.Fatal(err)
		}
		var fill sync.WaitGroup
		for i := range 4 {
			fill.Go(func() {
				out[2*i], out[2*i+1] = round, i
				if err := send.Pready(i); err != nil {
					log.Print(err)
				}
			})
		}
		if _, err := recv.Wait(ctx); err != nil {
			log.Fatal(err)
		}
		if _, err := send.Wait(ctx); err != nil {
			log.Fatal(err)
		}
		fill.Wait()
		fmt.Println(in)
	}
	// Output:
	// [0 0 0 1 0 2 0 3]
	// [1 0 1 1 1 2 1 3]
}
