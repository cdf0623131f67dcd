package ob1

import "time"

// The receiver of a single large message cannot measure how long its sender packed the
// fragment of the RTS, so the RTS carries that time.

// packTime estimates the time to pack the first fragment of messages of one class in one mode.
type packTime struct {
	fragments int
	// lastTimedAt is the count of fragments to the process at the last timed one.
	lastTimedAt uint64
	// isUnsure is set if the last time deviates from the estimate.
	isUnsure bool
	last     [3]time.Duration
	usual    time.Duration
}

const (
	// timeEvery is the interval of timed fragments. Two clock readings cost as much as a copy of
	// 2 KiB.
	timeEvery = 16
	// timeFirst is the number of initial fragments that are all timed. The first pass through new
	// memory costs ten times as much.
	timeFirst = 64
	// deviation is the largest ratio of a time to a sure estimate.
	deviation = 1.5
)

// shouldTime reports whether to time the next fragment, which is the count-th single one to the process.
func (k *packTime) shouldTime(count uint64) bool {
	k.fragments = min(k.fragments+1, timeFirst+1)
	return k.fragments <= timeFirst || k.isUnsure || count-k.lastTimedAt >= timeEvery
}

// add adds the measured time of the count-th fragment. The estimate is the median of the last
// three, which hides an interruption, and the very first fragment.
func (k *packTime) add(count uint64, elapsed time.Duration) {
	k.lastTimedAt = count
	k.isUnsure = float64(elapsed) > deviation*float64(k.usual) || float64(k.usual) > deviation*float64(elapsed)
	k.last = [3]time.Duration{k.last[1], k.last[2], elapsed}
	a, b := k.last[0], k.last[1]
	switch k.fragments {
	case 1:
		k.usual = elapsed
	case 2:
		k.usual = min(b, elapsed)
	default:
		k.usual = max(min(a, b), min(max(a, b), elapsed))
	}
}

// packFragment packs the fragment of an RTS, and returns the estimated time. In a window it
// returns 0, since the receiver measures the time between messages.
func (r *request) packFragment(dst []byte) time.Duration {
	if len(dst) == 0 || r.rndv.pattern != single || !r.rndv.isDescribed {
		r.pack(dst, 0, r.rndv.packMode)
		return 0
	}
	p := r.p.proc
	p.outgoing.singlesPacked++
	if p.outgoing.packTimes == nil {
		p.outgoing.packTimes = new([packModes][classes]packTime)
	}
	k := &p.outgoing.packTimes[r.rndv.packMode][classOf(r.buf.Len())]
	if !k.shouldTime(p.outgoing.singlesPacked) {
		r.pack(dst, 0, r.rndv.packMode)
		return k.usual
	}
	began := r.m.now()
	r.pack(dst, 0, r.rndv.packMode)
	k.add(p.outgoing.singlesPacked, r.m.now()-began)
	return k.usual
}
