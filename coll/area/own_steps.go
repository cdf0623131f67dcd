package area

import (
	"fmt"
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/cpu"
)

// Actions of steps. A Ref with slot Shared is an offset in posted data.
const (
	actBegin     = iota // Begin an operation of N bytes with the code Peer.
	actBeginPost        // Begin an operation of Buf.At bytes and post.
	actBeginPass        // Begin an operation of Buf.At bytes and pass.
	actFill             // Copy N bytes from From to Buf of the next post, which has Peer bytes.
	actPost             // Post N bytes from From, or the filled bytes.
	actPass             // Begin a phase without a post.
	actAwait            // Wait until all members have posted.
	actFetch            // Copy N bytes at From of the post of Peer to Buf.
	actFold             // Combine N bytes at From of the post of Peer into Buf.

	flagEnd = 1 << 7 // The step ends the operation.
)

// PollStep implements coll.Instance. A post costs one store without a fence and a load of each bell. A poll costs
// one load.
func (x *Instance) PollStep(s *coll.Step, c *coll.Call) (done bool, err error) {
	do := s.Do &^ flagEnd
	if do <= actBeginPass {
		total := s.Buf.At
		if do == actBegin {
			total = s.N
		}
		if n := len(x.operations); n == 0 || int32(c.Sequence-x.operations[n-1].sequence) > 0 { // The first poll of the step.
			x.operations = append(x.operations, operation{c.Sequence, uint32(s.Peer), uint64(total)})
		}
	}
	if s.Do != actBegin && x.operations[0].sequence != c.Sequence {
		return false, nil
	}
	switch do {
	case actFill:
		if !x.canPost() {
			return false, nil
		}
		cpu.CopyShared(x.slotData(x.nextSlot(), int(s.Peer))[s.Buf.At:], c.At(s.From, s.N))
	case actPass, actBeginPass:
		if x.phase+1-x.lastPosted < maxPasses {
			x.phase++
			break
		}
		fallthrough
	case actPost, actBeginPost:
		if !x.canPost() {
			return false, nil
		}
		x.publish(s, c)
	case actAwait:
		if done, err := x.haveAllPosted(c); !done {
			return false, err
		}
	case actFetch, actFold:
		localRank, phase := x.readSource(s)
		if done, err := x.hasPosted(localRank, phase, c); !done {
			return false, err
		}
		at := x.slotIndex(localRank, phase-1)
		length := x.lines[at].length
		n := int(length &^ pastCaches)
		if n > x.layout.chunk || s.From.At+s.N > n {
			return false, x.mismatchError(localRank, phase)
		}
		from, to := x.slotData(at, n)[s.From.At:][:s.N], c.At(s.Buf, s.N)
		start := x.writer.startRead(s.N)
		if do == actFetch {
			cpu.CopyShared(to, from)
		} else {
			c.Apply(to, from)
		}
		x.writer.recordRead(start, do-actFetch, length, s.N)
	}
	if s.Do >= flagEnd {
		x.operations = x.operations[:copy(x.operations, x.operations[1:])]
	}
	return true, nil
}

// IsAwaitedByPeers implements coll.Notifier. Other members wait for posts, and for phases without data.
func (x *Instance) IsAwaitedByPeers(s *coll.Step) bool {
	switch s.Do &^ flagEnd {
	case actAwait, actFetch, actFold:
		return false
	}
	return true
}

// AwaitedRank implements coll.BlockReporter.
func (x *Instance) AwaitedRank(s *coll.Step) int {
	switch s.Do &^ flagEnd {
	case actFetch, actFold:
		localRank, _ := x.readSource(s)
		return x.ranks[localRank]
	case actAwait:
		return x.ranks[x.awaited%len(x.ranks)]
	}
	for localRank := range x.ranks { // The slowest reader blocks a post.
		if !x.hasReached(localRank, x.requiredPhase()) {
			return x.ranks[localRank]
		}
	}
	return x.ranks[x.localRank] // Behind another operation.
}

// readSource returns the local rank and the phase that a step reads. Phases count from 1.
func (x *Instance) readSource(s *coll.Step) (localRank int, phase uint32) {
	if localRank = int(s.Peer); localRank < len(x.ranks) {
		return localRank, x.phase
	}
	return localRank - len(x.ranks)*maxPhasesBack, x.phase - maxPhasesBack
}

// slotIndex returns the slot of a member for a phase that counts from 0.
func (x *Instance) slotIndex(localRank int, phase uint32) int {
	return localRank*slots + int(phase%slots)
}

func (x *Instance) nextSlot() int { return x.slotIndex(x.localRank, x.phase) }

// slotData returns the memory for n bytes of a slot.
func (x *Instance) slotData(at, n int) []byte {
	if l := &x.lines[at]; n <= len(l.data) {
		return l.data[:n]
	}
	return x.data[at*x.layout.chunk:][:n]
}

// requiredPhase returns the phase that all members must have posted before the next slot is free.
func (x *Instance) requiredPhase() uint32 { return x.phase - slots + 2 + maxPhasesBack }

// canPost reports whether the next slot is free.
func (x *Instance) canPost() bool {
	need := x.requiredPhase()
	if int32(x.allPosted-need) >= 0 {
		return true
	}
	for localRank := range x.ranks {
		if !x.hasReached(localRank, need) {
			return false
		}
	}
	x.allPosted = need
	return true
}

// hasReached reports whether a member has posted this phase or a later one. Phases count from 1.
func (x *Instance) hasReached(localRank int, phase uint32) bool {
	for i := range uint32(slots) { // It may have passed.
		if int32(atomic.LoadUint32(&x.lines[x.slotIndex(localRank, phase-1+i)].posted)-phase) >= 0 {
			return true
		}
	}
	return localRank == x.localRank
}

// publish stores the post and rings the other members.
func (x *Instance) publish(s *coll.Step, c *coll.Call) {
	at, o := x.nextSlot(), &x.operations[0]
	l := &x.lines[at]
	l.code, l.total, l.length, l.readCost = o.code, o.total, uint32(s.N), x.writer.readCost[x.writer.lastUse]
	if s.From.Slot != coll.Shared && x.writer.writeSlot(x.slotData(at, s.N), c.At(s.From, s.N)) == streamed {
		l.length |= pastCaches
	}
	x.phase++
	x.lastPosted = x.phase
	cpu.Store32(&l.posted, x.phase)
	if x.isOrdered {
		cpu.Barrier()
	}
	for _, b := range x.bells { // Without a fence, see progress.Lagging.
		b.Ring()
	}
	// The next slot is in the caches of the readers.
	cpu.PrefetchWrite(&x.lines[x.nextSlot()].total)
}

// haveAllPosted reports whether all members have posted the current phase.
func (x *Instance) haveAllPosted(c *coll.Call) (bool, error) {
	for ; x.awaited < len(x.ranks); x.awaited++ {
		if done, err := x.hasPosted(x.awaited, x.phase, c); !done {
			return false, err
		}
	}
	x.awaited, x.allPosted = 0, x.phase
	return true, nil
}

// pollsBeforeCheck is the number of empty polls before a member checks whether the awaited one has skipped the post.
// The check loads other lines, which makes their stores slower. 640 polls with a PAUSE of 25 ns take 16 us. A
// member about to sleep checks at once.
const pollsBeforeCheck = 640

// hasPosted reports whether a member has posted that phase for the same operation. Phases count from 1.
func (x *Instance) hasPosted(localRank int, phase uint32, c *coll.Call) (bool, error) {
	l := &x.lines[x.slotIndex(localRank, phase-1)]
	ahead := int32(atomic.LoadUint32(&l.posted) - phase)
	if ahead < 0 {
		if x.emptyPolls++; x.emptyPolls < pollsBeforeCheck && !c.IsWaiterAsleep || localRank == x.localRank || !x.hasReached(localRank, phase+1) {
			return false, nil
		}
		// It may have posted both phases in between.
		if ahead = int32(atomic.LoadUint32(&l.posted) - phase); ahead < 0 {
			return false, fmt.Errorf("rank %d contributed no data; pass equal arguments in all ranks", x.ranks[localRank])
		}
	}
	x.emptyPolls = 0
	x.writer.peerRead = l.readCost
	if o := &x.operations[0]; ahead > 0 || l.code != o.code || l.total != o.total {
		return false, x.mismatchError(localRank, phase)
	}
	return true, nil
}

func (x *Instance) mismatchError(localRank int, phase uint32) error {
	o, l := &x.operations[0], &x.lines[x.slotIndex(localRank, phase-1)]
	return fmt.Errorf("rank %d called %s with %d bytes, this rank called %s with %d; pass equal arguments in all ranks",
		x.ranks[localRank], operationName(l.code), l.total, operationName(o.code), o.total)
}

func operationCode(op coll.Operation, root int) uint32 { return uint32(op) | uint32(root)<<8 }

func operationName(c uint32) string {
	if c&0xff >= uint32(coll.Operations) {
		return "an unknown operation"
	}
	return fmt.Sprintf("%v (root %d)", coll.Operation(c&0xff), c>>8)
}
