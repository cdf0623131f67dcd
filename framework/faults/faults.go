// Package faults is what the wrappers have in common that inject faults into
// components (btlfault, mtlfault): which faults happen follows from a seed and
// from what the program does, never from a clock.
package faults

import (
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Count is how many faults there were. It is safe for concurrent use.
type Count struct{ n atomic.Int64 }

// Injected returns how many faults there were so far. A test that saw none has
// shown nothing.
func (c *Count) Injected() int64 { return c.n.Load() }

// Dice decides about the faults of one module. It is not safe for concurrent use.
type Dice struct {
	*rand.Rand
	count *Count
}

// NewDice returns the dice of a process: the same for the same seed and rank.
func NewDice(seed uint64, rank uint32, count *Count) Dice {
	return Dice{rand.New(rand.NewPCG(seed, uint64(rank))), count}
}

// Hit decides about a fault that happens once in n times on average, and never
// for 0.
func (d Dice) Hit(n int) bool { return d.counted(n > 0 && d.IntN(n) == 0) }

// After decides about a fault that happens whenever done has reached n, and never
// for 0.
func (d Dice) After(n, done int) bool { return d.counted(n > 0 && done >= n) }

func (d Dice) counted(fault bool) bool {
	if fault {
		d.count.n.Add(1)
	}
	return fault
}

// Flip turns one of the first bits of data, which is not empty.
func (d Dice) Flip(data []byte, first int) { data[d.IntN(min(len(data), first))] ^= 1 << d.IntN(8) }

// Hang does what a library does that waits for what never comes. Its goroutine
// sleeps: one that is blocked for ever Go itself would notice.
func Hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// Crash does what a library does that writes where it may not. The process ends as
// Go ends it: with the signal's name on standard error.
func Crash() {
	_ = unix.Kill(os.Getpid(), unix.SIGSEGV) // a process may always send itself a signal
	Hang()                                   // until it has come
}
