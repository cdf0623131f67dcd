// Package faults decides about the faults that btlfault and mtlfault inject into components. Decisions depend on a seed and
// on the operations of the program, not on a clock.
package faults

import (
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Plan configures the faults. A rate of n injects one fault in n messages on average (frames, below a BTL), and zero
// disables the fault.
type Plan struct {
	// Of the random numbers, combined with the rank.
	Seed uint64

	// Faults that break a contract.
	Drop      int
	Duplicate int
	// Flips one bit in the first 64 bytes.
	Corrupt int
	// Swaps a message with the next one, if it follows soon.
	Reorder int

	// Faults of BTLs within the contract. KillAfter ends paths.
	WouldBlock int // A reservation returns "would block".
	// Delays a frame and those behind it by 1 to MaxDelay polls.
	Delay    int
	MaxDelay int // Zero means 16.
	// Ends every path to the process after that many frames.
	KillAfter int

	// Faults of the library below the component, which no protocol survives.
	HangOpen bool
	// Poll blocks forever after that many messages.
	HangAfter int
	// Raises SIGSEGV after that many messages.
	CrashAfter int
}

// Count counts injected faults. It is safe for concurrent use.
type Count struct{ n atomic.Int64 }

// Injected returns the number of faults so far. A test that injected no fault proves no property.
func (c *Count) Injected() int64 { return c.n.Load() }

// Dice decides on the faults of one module. It is not safe for concurrent use.
type Dice struct {
	*rand.Rand
	Plan
	count *Count
}

// Open returns the dice of a module, which depend on seed and rank only. It blocks forever if HangOpen is set.
func (p Plan) Open(rank uint32, count *Count) Dice {
	if p.MaxDelay == 0 {
		p.MaxDelay = 16
	}
	d := Dice{rand.New(rand.NewPCG(p.Seed, uint64(rank))), p, count}
	if d.record(p.HangOpen) {
		hang()
	}
	return d
}

// Hit decides on a fault with a rate of n.
func (d Dice) Hit(n int) bool { return d.record(n > 0 && d.IntN(n) == 0) }

// After decides on a fault that is injected once done has reached n. Zero disables it.
func (d Dice) After(n, done int) bool { return d.record(n > 0 && done >= n) }

func (d Dice) record(isFault bool) bool {
	if isFault {
		d.count.n.Add(1)
	}
	return isFault
}

// Passed records the number of messages of the module. It does not return if the plan hangs or crashes at that number.
func (d Dice) Passed(messages int) {
	if d.After(d.HangAfter, messages) {
		hang()
	}
	if d.After(d.CrashAfter, messages) {
		crash()
	}
}

// Damaged returns the message, or a copy with one flipped bit.
func (d Dice) Damaged(message []byte) []byte {
	if len(message) > 0 && d.Hit(d.Corrupt) {
		message = slices.Clone(message)
		message[d.IntN(min(len(message), 64))] ^= 1 << d.IntN(8)
	}
	return message
}

// Copies returns the number of deliveries of a message, usually one.
func (d Dice) Copies() int {
	switch {
	case d.Hit(d.Drop):
		return 0
	case d.Hit(d.Duplicate):
		return 2
	}
	return 1
}

// hang blocks forever like a library call. It sleeps, because the Go runtime detects blocked goroutines as a deadlock.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// crash raises SIGSEGV like an invalid write of a library. The Go runtime prints the signal and ends the process.
func crash() {
	_ = unix.Kill(os.Getpid(), unix.SIGSEGV)
	hang() // Until the signal arrives.
}
