package area

import (
	"math"

	"github.com/ferrympi/ferry/internal/cpu"
)

// How a member writes larger data is learnt. Stored, they stay in its caches, and the lines are
// fetched from the readers' first, who have them from the last time: that is fast between some
// processors, and on others takes ten times as long as to copy. Streamed, they go past the caches to
// memory, from where readers get them. Either is right at any time, so that each member chooses
// by itself: by what writing takes it, and by what reading takes the others, who say so with
// what they post.

// manner is how data were written.
type manner uint8

const (
	stored manner = iota
	streamed
	manners
)

// uses is how many there are of what is read: it is copied or combined.
const uses = fold - fetch + 1

const (
	// worth is the size from which there is a choice, in bytes: the way through memory is some
	// 0.5 us longer.
	worth = 8 << 10
	// trial is how many pieces in a row are written otherwise, to learn what that costs. Those that
	// come first say nothing: they find slots as they were written before.
	trial = 2 * slots
	// share is the part of the time that trials may take, and by which they prolong it: 1 of so
	// many.
	share = 32
	// spike bounds what one measurement says: it may have been interrupted.
	spike = 2
)

// cost is what it takes to write or read data, in ticks for each KiB; 0: not known.
type cost uint16

// add takes in a measurement.
func (c *cost) add(ticks uint64, n int) {
	now := ticks << 10 / uint64(n)
	if *c == 0 {
		*c = cost(min(now+1, math.MaxUint16))
		return
	}
	old := min(uint64(*c), spike*now+1) // that was the interruption
	*c = cost(min((3*old+min(now, spike*old)+2)/4, math.MaxUint16))
}

// writing is what a member knows of the manners.
type writing struct {
	manner manner
	trying bool // whether the other one is better
	since  int  // pieces since the manner changed
	left   int  // pieces until the next trial, or of this one
	write  [manners]cost
	told   [manners]cost       // what reading takes who reads this member's
	read   [uses][manners]cost // what it takes this one
	use    int                 // how it has read last
}

// next chooses how the next piece is written.
func (w *writing) next() manner {
	switch over := w.left == 0; {
	case over && !w.trying && w.write[w.manner] > 0:
		w.trying, w.left = true, trial
		w.turn()
		w.write[w.manner] = 0
	case over:
		if w.trying && w.costs(w.other()) < w.costs(w.manner) {
			w.turn()
		}
		w.settle()
	case !w.trying && w.since > trial && w.write[w.other()] > 0 && w.costs(w.other())*5 < w.costs(w.manner)*4:
		w.turn() // the one in use takes longer than it did
		w.settle()
	}
	w.left--
	w.since++
	return w.manner
}

func (w *writing) other() manner { return manners - 1 - w.manner }

func (w *writing) turn() { w.manner, w.since = w.other(), 0 }

// settle keeps to the manner for as long as a trial is to be paid by.
func (w *writing) settle() {
	w.trying, w.left = false, trial
	if one, other := w.costs(w.manner), w.costs(w.other()); w.write[w.other()] > 0 {
		w.left *= share * max(1, other/max(1, one))
	}
}

// costs is what data written so take both who writes and who reads.
func (w *writing) costs(m manner) int {
	if w.told[stored] == 0 || w.told[streamed] == 0 { // there is nothing to compare
		return int(w.write[m])
	}
	return int(w.write[m]) + int(w.told[m])
}

// wrote says what a piece took.
func (w *writing) wrote(ticks uint64, n int) {
	if w.since > slots {
		w.write[w.manner].add(ticks, n)
	}
}

// put writes data into a slot, and returns how.
func (w *writing) put(slot, data []byte) manner {
	if !cpu.Streams || len(data) < worth {
		cpu.CopyShared(slot, data)
		return stored
	}
	m, start := w.next(), cpu.Ticks()
	if m == streamed {
		cpu.CopyPast(slot, data)
	} else {
		cpu.CopyShared(slot, data)
	}
	w.wrote(cpu.Ticks()-start, len(data))
	return m
}

// start begins to measure how long reading n bytes takes, if that is of interest.
func (w *writing) start(n int) uint64 {
	if !cpu.Streams || n < worth {
		return 0
	}
	return cpu.Ticks()
}

// took ends it. length is that of the line.
func (w *writing) took(start uint64, use uint8, length uint32, n int) {
	if start > 0 {
		w.use = int(use)
		w.read[use][length/past].add(cpu.Ticks()-start, n)
	}
}
