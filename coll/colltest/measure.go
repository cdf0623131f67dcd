package colltest

import (
	"context"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/simd"
	"github.com/ferrympi/ferry/progress"
)

// Sum64 is the sum of int64 by vector instructions, as in package mpi.
var Sum64 = coll.Reducer{IsQuick: true, Name: "sum", Apply: sum64}

var kernel = simd.Of[int64](simd.Sum)

func sum64(inout, in []byte) {
	n := 0
	if kernel != nil {
		n = kernel.Run(inout, in)
	}
	elements[0].apply(inout[n:], in[n:])
}

// batch is the number of operations between two readings of the clock.
const batch = 50

// Measure returns the time of an operation of a component among n goroutines as ranks, over count
// operations. It is the time of the fastest batch of rank 0, because other work may disturb the
// machine.
func Measure(ctx context.Context, c coll.Component, n int, op coll.Operation, size, count int) (fastest time.Duration, err error) {
	team, err := NewTeam(c, kittest.Params(c, nil), n, progress.Options{})
	if err != nil {
		return 0, err
	}
	defer team.Close()
	args := coll.Args{Size: size, OwnSize: size, ElemSize: 8, IsQuick: true}
	fastest = time.Hour
	err = team.Run(func(r *Rank) error {
		s, err := team.Plan(r, op, args)
		if err != nil {
			return err
		}
		b := coll.Buffers{In: make([]byte, size), Out: make([]byte, size)}
		for range max(count/batch, 2) {
			start := time.Now()
			for range batch {
				if err := r.Execute(ctx, s, b, Sum64); err != nil {
					return err
				}
			}
			if elapsed := time.Since(start); r.Rank == 0 {
				fastest = min(fastest, elapsed)
			}
		}
		return nil
	})
	return fastest / batch, err
}
