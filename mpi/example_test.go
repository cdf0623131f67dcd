package mpi_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ferrympi/ferry/mpi"
)

// A program that is started by itself is a job of one process; `ferry run -n 4`
// makes it one of four, without a change.
func Example() {
	ctx := context.Background()
	s, err := mpi.OpenSession(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	world, err := s.Group(ctx, "mpi://WORLD")
	if err != nil {
		log.Fatal(err)
	}
	c, err := mpi.CommFromGroup(ctx, world, "example")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	left, right := (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	token := []int{0}
	st, err := mpi.Sendrecv(ctx, c, []int{42}, right, 0, token, left, 0)
	if err != nil {
		log.Fatal(err)
	}
	count, _ := mpi.Count[int](st)
	fmt.Println(c.Size(), token[0], count)
	// Output: 1 42 1
}

// An operation that does not commute is applied in the order of ranks. in has the operand of the lower ranks.
func ExampleNewOp() {
	type affine struct{ A, B float64 } // x -> A*x + B
	compose := mpi.NewOp(func(inout, in []affine) {
		for i, first := range in {
			then := inout[i]
			inout[i] = affine{then.A * first.A, then.A*first.B + then.B}
		}
	}, false)

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
	c, err := mpi.CommFromGroup(ctx, self, "compose")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	all := []affine{{2, 1}}
	if err := mpi.Allreduce(ctx, c, nil, all, compose); err != nil { // nil means in place.
		log.Fatal(err)
	}
	fmt.Println(all)
	// Output: [{2 1}]
}
