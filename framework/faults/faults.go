// Package faults is what the wrappers have in common that inject faults into
// components (btlfault, mtlfault): which faults happen follows from a seed and
// from what the program does, never from a clock.
package faults

import (
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Plan says which faults happen, and how often: once in so many messages (frames,
// below a BTL) on average, and never for 0. The zero Plan injects nothing.
type Plan struct {
	Seed uint64 // of the random numbers, together with the process's rank

	// Faults that break a contract.
	Drop      int // a message is lost
	Duplicate int // a message comes twice
	Corrupt   int // one bit of a message's first 64 bytes is turned
	Reorder   int // a message comes behind the next one, if there is one soon

	// Faults that break no contract, and one that ends paths: of BTLs only.
	WouldBlock int // a reservation answers "would block"
	Delay      int // a frame, and those behind it on its path, come late
	MaxDelay   int // by 1 to so many polls of the module; 0 means 16
	KillAfter  int // every path to the process ends after that many frames

	// Faults of a library below, which no protocol survives.
	HangOpen   bool // Open never returns
	HangAfter  int  // after that many messages Poll never returns
	CrashAfter int  // after that many messages the process has a segmentation violation
}

// Count is how many faults there were. It is safe for concurrent use.
type Count struct{ n atomic.Int64 }

// Injected returns how many faults there were so far. A test that saw none has
// shown nothing.
func (c *Count) Injected() int64 { return c.n.Load() }

// Dice decides about the faults of one module. It is not safe for concurrent use.
type Dice struct {
	*rand.Rand
	Plan
	count *Count
}

// Open returns the dice of a module that a process opens: the same for the same seed
// and rank. It does not return where the plan is to hang.
func (p Plan) Open(rank uint32, count *Count) Dice {
	if p.MaxDelay == 0 {
		p.MaxDelay = 16
	}
	d := Dice{rand.New(rand.NewPCG(p.Seed, uint64(rank))), p, count}
	if d.counted(p.HangOpen) {
		hang()
	}
	return d
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

// Passed says that so many messages have gone through the module. It does not return
// where the plan is to hang or to crash by then.
func (d Dice) Passed(messages int) {
	if d.After(d.HangAfter, messages) {
		hang()
	}
	if d.After(d.CrashAfter, messages) {
		crash()
	}
}

// Damaged returns a message as it arrives: as it is, or a copy in which one of the
// first bits is turned.
func (d Dice) Damaged(message []byte) []byte {
	if len(message) > 0 && d.Hit(d.Corrupt) {
		message = slices.Clone(message)
		message[d.IntN(min(len(message), 64))] ^= 1 << d.IntN(8)
	}
	return message
}

// Copies returns how often a message arrives: usually once.
func (d Dice) Copies() int {
	switch {
	case d.Hit(d.Drop):
		return 0
	case d.Hit(d.Duplicate):
		return 2
	}
	return 1
}

// hang does what a library does that waits for what never comes. Its goroutine
// sleeps: one that is blocked for ever Go itself would notice.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}

// crash does what a library does that writes where it may not. The process ends as
// Go ends it: with the signal's name on standard error.
func crash() {
	_ = unix.Kill(os.Getpid(), unix.SIGSEGV) // a process may always send itself a signal
	hang()                                   // until it has come
}
