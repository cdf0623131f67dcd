package area

import (
	"math"

	"github.com/ferrympi/ferry/internal/cpu"
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

const (
	// minSelectSize is the smallest post with a choice, in bytes. The way through memory costs 0.5 us.
	minSelectSize = 8 << 10
	// probeLength is the number of posts in a probe of the other mode. The first ones are not measured, because they
	// replace data stored in the previous mode.
	probeLength = 2 * slots
	// probeRatio is the least number of probe lengths between two probes.
	probeRatio = 32
	// maxOutlier limits the effect of a measurement that was interrupted.
	maxOutlier = 2
)

// cost is the time to write or read 1 KiB, in ticks. Zero means unknown.
type cost uint16

// update adds a measurement to the moving average.
func (c *cost) update(ticks uint64, n int) {
	now := ticks << 10 / uint64(n)
	if *c == 0 {
		*c = cost(min(now+1, math.MaxUint16))
		return
	}
	old := min(uint64(*c), maxOutlier*now+1) // The old value was an outlier.
	*c = cost(min((3*old+min(now, maxOutlier*old)+2)/4, math.MaxUint16))
}

// storeSelector selects the storeMode of a member.
type storeSelector struct {
	current   storeMode
	isProbing bool
	// Posts in the current mode.
	sinceSwitch int
	// Posts until the next probe starts or this one ends.
	untilDecision int
	writeCost     [storeModes]cost
	// Published by the last reader.
	peerRead [storeModes]cost
	readCost [readUses][storeModes]cost // Of this member.
	// Index in readCost.
	lastUse int
}

// nextMode returns the mode of the next post.
func (w *storeSelector) nextMode() storeMode {
	switch isDue := w.untilDecision == 0; {
	case isDue && !w.isProbing && w.writeCost[w.current] > 0:
		w.isProbing, w.untilDecision = true, probeLength
		w.switchMode()
		w.writeCost[w.current] = 0
	case isDue:
		if w.isProbing && w.totalCost(w.otherMode()) < w.totalCost(w.current) {
			w.switchMode()
		}
		w.finishProbe()
	case !w.isProbing && w.sinceSwitch > probeLength && w.writeCost[w.otherMode()] > 0 && w.totalCost(w.otherMode())*5 < w.totalCost(w.current)*4:
		w.switchMode() // The cost of the current mode has risen.
		w.finishProbe()
	}
	w.untilDecision--
	w.sinceSwitch++
	return w.current
}

func (w *storeSelector) otherMode() storeMode { return storeModes - 1 - w.current }

func (w *storeSelector) switchMode() { w.current, w.sinceSwitch = w.otherMode(), 0 }

// finishProbe schedules the next probe. A dearer alternative is probed less often.
func (w *storeSelector) finishProbe() {
	w.isProbing, w.untilDecision = false, probeLength
	if current, other := w.totalCost(w.current), w.totalCost(w.otherMode()); w.writeCost[w.otherMode()] > 0 {
		w.untilDecision *= probeRatio * max(1, other/max(1, current))
	}
}

// totalCost returns the cost of writing and reading.
func (w *storeSelector) totalCost(m storeMode) int {
	if w.peerRead[stored] == 0 || w.peerRead[streamed] == 0 {
		return int(w.writeCost[m])
	}
	return int(w.writeCost[m]) + int(w.peerRead[m])
}

func (w *storeSelector) recordWrite(ticks uint64, n int) {
	if w.sinceSwitch > slots {
		w.writeCost[w.current].update(ticks, n)
	}
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
	w.recordWrite(cpu.Ticks()-start, len(data))
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
