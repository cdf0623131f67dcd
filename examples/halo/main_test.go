package main

import (
	"fmt"
	"testing"

	"github.com/ferrympi/ferry/mpi/mpitest"
)

// With few ranks, several neighbors are one process or the rank itself.
func TestStencil_AnyNumberOfRanks_EqualsSerialRun(t *testing.T) {
	*edge, *steps = 3, 4
	for _, n := range []int{1, 2, 4, 6} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { mpitest.Run(t, n, stencil) })
	}
}

// The cells around the block are zero.
func TestCompare_StepWithoutExchange_FindsTheDifference(t *testing.T) {
	*edge, *steps = 3, 1
	b := newBlock(*edge)
	b.each(func(x, y, z int) { b.set(x, y, z, initial(x, y, z)) })
	if wrong := compare(b.step(), []int{1, 1, 1}, []int{0, 0, 0}); wrong == 0 {
		t.Error("a step without an exchange equals the serial run")
	}
}
