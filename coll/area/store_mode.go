package area

import (
	"math"

	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/learner"
)

// storeMode selects the stores for large posts. Cached stores leave the data in the caches of the writer, but
// fetch the lines from the caches of the readers first, which takes ten times a copy between some processors.
// Streaming stores go to memory, from where readers fetch the data. Each member selects a mode for itself from its
// own write costs and the read costs that the others publish with their posts.
type storeMode uint8

const (
	stored storeMode = iota
	streamed
	storeModes
)

// readUses is the number of ways to read data, which are copying and combining.
const readUses = actFold - actFetch + 1

// minSelectSize is the smallest post with a choice, in bytes. The way through memory costs 0.5 us.
const minSelectSize = 8 << 10

// storeShape measures posts after those that replace data stored in the previous mode.
var storeShape = learner.Shape{Options: int(storeModes), Probe: 2 * slots, Skip: slots, Run: slots}

// cost is the time to read 1 KiB, in ticks. Zero means unknown.
type cost uint16

// update adds a measurement to the moving average. One that was interrupted counts for at most twice the average.
func (c *cost) update(ticks uint64, n int) {
	now := ticks << 10 / uint64(n)
	if *c == 0 {
		*c = cost(min(now+1, math.MaxUint16))
		return
	}
	old := min(uint64(*c), 2*now+1) // The old value was an outlier.
	*c = cost(min((3*old+min(now, 2*old)+2)/4, math.MaxUint16))
}

// storeSelector selects the storeMode of a member.
type storeSelector struct {
	modes learner.Selector[storeMode]
	// Published by the last reader.
	peerRead [storeModes]cost
	readCost [readUses][storeModes]cost // Of this member.
	// Index in readCost.
	lastUse int
}

func newStoreSelector() storeSelector {
	return storeSelector{modes: learner.New(storeShape, stored)}
}

// nextMode returns the mode of the next post.
func (w *storeSelector) nextMode() storeMode {
	m, _ := w.modes.Select(learner.Of(stored, streamed))
	return m
}

// recordWrite records a post, at the cost of writing and reading. A mode that was not read yet is not compared
// with one that was.
func (w *storeSelector) recordWrite(m storeMode, ticks uint64, n int) {
	isComparable := w.peerRead[m] > 0 || w.peerRead[storeModes-1-m] == 0
	w.modes.Record(m, int64(n), int64(ticks)+int64(w.peerRead[m])*int64(n)>>10, isComparable)
}

// writeSlot copies data into a slot and returns the mode.
func (w *storeSelector) writeSlot(slot, data []byte) storeMode {
	if !cpu.Streams || len(data) < minSelectSize {
		cpu.CopyShared(slot, data)
		return stored
	}
	m, start := w.nextMode(), cpu.Ticks()
	if m == streamed {
		cpu.CopyPast(slot, data)
	} else {
		cpu.CopyShared(slot, data)
	}
	w.recordWrite(m, cpu.Ticks()-start, len(data))
	return m
}

// startRead returns the start of a measured read, 0 if reads of n bytes are not measured.
func (w *storeSelector) startRead(n int) uint64 {
	if !cpu.Streams || n < minSelectSize {
		return 0
	}
	return cpu.Ticks()
}

// recordRead ends the measurement. length is the field of the line.
func (w *storeSelector) recordRead(start uint64, use uint8, length uint32, n int) {
	if start > 0 {
		w.lastUse = int(use)
		w.readCost[use][length/pastCaches].update(cpu.Ticks()-start, n)
	}
}
