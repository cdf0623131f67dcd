package threads

import (
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/cpu"
)

// Codes of steps of kind Own. The first step of an operation begins it. Except for awaitPost, Peer
// is the operation's code and N its total size.
const (
	enter         = iota // Does nothing.
	publish              // Publishes Buf.At bytes of From in the next phase, without an arrival.
	arrive               // Arrives in the next phase.
	arriveWith           // Arrives with N bytes of From. The result is written to Buf unless that is in slot In.
	awaitPost            // Waits until Peer has published Buf.At bytes in the next phase. From.At is the code.
	awaitAll             // Waits until all ranks have posted in this phase, if flat.
	awaitGathered        // Waits until all ranks have arrived in this phase.
	awaitWork            // Like awaitGathered, or waits until the phase is complete if this rank is about to sleep.
	awaitComplete        // Waits until this phase is complete, and copies the result of N bytes in the gate to Buf.
	complete             // Completes this phase.
	leave                // Does nothing.

	actions = 1<<4 - 1
	// Actions of the last rank that arrives.
	thenComplete = 0 << 4 // Completes the phase.
	thenGather   = 1 << 4 // Wakes the leader, which completes the phase later.
	thenWork     = 2 << 4 // Opens the work, whose end completes the phase.
	modes        = 3 << 4

	leaves = 1 << 7 // Flag of the last step.
)

// PollStep implements coll.Instance. An arrival costs an atomic operation at one level of the tree, and
// rarely more. A poll costs a load.
func (x *Instance) PollStep(s *coll.Step, c *coll.Call) (done bool, err error) {
	if n := len(x.pendingOps); n == 0 || int32(c.Sequence-x.pendingOps[n-1].sequence) > 0 { // The step may be polled again.
		x.pendingOps = append(x.pendingOps, newPendingOp(s, c))
	}
	if x.pendingOps[0].sequence != c.Sequence {
		return false, nil
	}
	if done, err := x.executeStep(s, c); !done {
		if err == nil {
			err = x.waitError()
		}
		return false, err
	}
	if s.Do >= leaves {
		if x.isLost {
			return false, errWithdrawn
		}
		x.pendingOps = x.pendingOps[:copy(x.pendingOps, x.pendingOps[1:])]
	}
	return true, nil
}

func newPendingOp(s *coll.Step, c *coll.Call) pendingOp {
	code := int(s.Peer)
	if s.Do&actions == awaitPost {
		code = s.From.At
	}
	return pendingOp{c.Sequence, uint32(code), uint64(s.N)}
}

// waitError returns the error of a wait that cannot end.
func (x *Instance) waitError() error {
	if x.isLost {
		return errWithdrawn
	}
	return x.team.failureErr()
}

func (x *Instance) executeStep(s *coll.Step, c *coll.Call) (done bool, err error) {
	t := x.team
	if x.isLost { // The others would use slices that this rank has not written.
		return false, errWithdrawn
	}
	switch s.Do & actions {
	case publish:
		x.publish(c.Out, uint64(s.Buf.At))
	case arrive, arriveWith:
		if !x.isComplete(c) {
			return false, nil
		}
		if s.Do&actions == arriveWith {
			x.postOperand(s, c)
		} else {
			x.postNext(0)
		}
		return x.arrive(s.Do & modes)
	case awaitPost:
		return x.hasPosted(int(s.Peer), x.arrivedPhase+1, uint64(s.Buf.At), c)
	case awaitAll:
		return x.allPosted(c)
	case awaitGathered:
		return x.hasGateReached(gatheredGateIndex, c), nil
	case awaitWork:
		if hasReached(t.gatheredGate.reachedPhase.Load(), x.arrivedPhase) {
			return true, nil
		}
		return x.hasGateReached(releasedGateIndex, c), nil
	case awaitComplete:
		if !x.hasGateReached(releasedGateIndex, c) {
			return false, nil
		}
		if s.N > 0 && s.Buf.Slot != coll.In {
			copy(c.At(s.Buf, s.N), t.releasedGate.inlineResult[:s.N])
		}
	case complete:
		t.completePhase(x.arrivedPhase)
	}
	return true, nil
}

// isComplete reports whether the phase in which this rank arrived last is complete.
func (x *Instance) isComplete(c *coll.Call) bool {
	if !x.layout.isFlat {
		return x.hasGateReached(releasedGateIndex, c)
	}
	if x.knownPhase == x.arrivedPhase {
		return true
	}
	for localRank := range x.team.ranks {
		l := &x.team.posts[slotOf(localRank, x.arrivedPhase)]
		for !hasReached(atomic.LoadUint32(&l.phase), x.arrivedPhase) {
			if !c.IsWaiterAsleep || !x.team.listForPost(x.localRank, localRank) {
				return false
			}
		}
	}
	x.knownPhase = x.arrivedPhase
	return true
}

// hasGateReached reports whether a gate has reached this phase. A rank that is about to sleep is listed
// there.
func (x *Instance) hasGateReached(gate int, c *coll.Call) bool {
	for !hasReached(x.team.gate(gate).reachedPhase.Load(), x.arrivedPhase) {
		if !c.IsWaiterAsleep || !x.team.listSleeper(x.localRank, gate) {
			return false
		}
	}
	return true
}

// nextPost returns this rank's post for the next phase, and whether it has been posted.
func (x *Instance) nextPost() (l *post, isPosted bool) {
	l = &x.team.posts[slotOf(x.localRank, x.arrivedPhase+1)]
	return l, l.phase == x.arrivedPhase+1
}

// publish publishes the first ready bytes of a slice. Later calls publish more of it.
func (x *Instance) publish(out []byte, ready uint64) {
	l, isPosted := x.nextPost()
	if !isPosted {
		x.team.publishedSlices[slotOf(x.localRank, x.arrivedPhase+1)] = published{in: out}
		x.postNext(ready)
		return
	}
	atomic.StoreUint64(&l.readyBytes, ready)
	x.team.wakeForPost(x.localRank)
}

// postOperand posts this rank's operand in the next phase, in the post itself if it is small.
func (x *Instance) postOperand(s *coll.Step, c *coll.Call) {
	l, isPosted := x.nextPost()
	if isPosted {
		return
	}
	if s.N <= maxInline {
		copy(l.inlineOperand[:], c.At(s.From, s.N))
	} else {
		p := published{in: c.At(s.From, s.N)}
		if s.Buf.Slot != coll.In {
			p.out = c.At(s.Buf, s.N)
		}
		x.team.publishedSlices[slotOf(x.localRank, x.arrivedPhase+1)] = p
	}
	x.postNext(uint64(s.N))
}

// postNext posts this rank's post for the next phase, and wakes the ranks that wait for it.
func (x *Instance) postNext(ready uint64) {
	l, isPosted := x.nextPost()
	if isPosted {
		return
	}
	l.opCode, l.totalBytes = x.pendingOps[0].opCode, x.pendingOps[0].totalBytes
	cpu.Store64(&l.readyBytes, ready)
	atomic.StoreUint32(&l.phase, x.arrivedPhase+1)
	x.team.wakeForPost(x.localRank)
	if x.layout.isFlat { // Other cores own the next post. It is fetched while they poll this one.
		cpu.PrefetchWrite(&x.team.posts[slotOf(x.localRank, x.arrivedPhase+2)].totalBytes)
	}
}

// arrive arrives in the next phase, in which this rank has posted.
func (x *Instance) arrive(mode uint8) (done bool, err error) {
	t := x.team
	x.arrivedPhase++
	if x.layout.isFlat {
		return true, nil
	}
	o := &x.pendingOps[0]
	add := checksum(o.opCode, o.totalBytes)
	x.checksumTotal += add
	last, err := t.arrive(x.localRank, x.arrivedPhase, add, x.checksumTotal)
	if err != nil {
		return false, err
	}
	if !last {
		return true, nil
	}
	switch mode {
	case thenComplete:
		t.completePhase(x.arrivedPhase)
	case thenGather:
		t.gatheredGate.reachedPhase.Store(x.arrivedPhase)
		t.gatheredGate.wake()
	case thenWork:
		t.work.doneChunks.Store(0)
		t.work.chunkClaims.Store(uint64(x.arrivedPhase) << 32)
		t.gatheredGate.reachedPhase.Store(x.arrivedPhase)
		if o.totalBytes > maxInline && o.totalBytes*uint64(len(t.ranks)) >= wakeForWorkFrom {
			t.releasedGate.wake()
		}
	}
	return true, nil
}

// wakeForWorkFrom is the total size of the operands from which sleeping ranks are woken to help. The work
// then takes far longer than the wake-ups.
const wakeForWorkFrom = 8 << 20

// allPosted reports whether all ranks have posted in this phase.
func (x *Instance) allPosted(c *coll.Call) (bool, error) {
	for ; x.nextAwaited < len(x.team.ranks); x.nextAwaited++ {
		if done, err := x.hasPosted(x.nextAwaited, x.arrivedPhase, 0, c); !done {
			return false, err
		}
	}
	x.nextAwaited, x.knownPhase = 0, x.arrivedPhase
	return true, nil
}

// hasPosted reports whether a rank has published ready bytes in a phase. It returns an error if that
// is for another operation.
func (x *Instance) hasPosted(localRank int, phase uint32, ready uint64, c *coll.Call) (bool, error) {
	l := &x.team.posts[slotOf(localRank, phase)]
	for {
		if now := atomic.LoadUint32(&l.phase); hasReached(now, phase) {
			o := &x.pendingOps[0]
			if now != phase || l.opCode != o.opCode || l.totalBytes != o.totalBytes {
				return false, x.failDifferent(localRank, l)
			}
			if atomic.LoadUint64(&l.readyBytes) >= ready {
				return true, nil
			}
		}
		if !c.IsWaiterAsleep || !x.team.listForPost(x.localRank, localRank) {
			return false, nil
		}
	}
}

func (x *Instance) failDifferent(localRank int, l *post) error {
	o := &x.pendingOps[0]
	return x.team.fail(differError(x.team.ranks[x.localRank], &post{opCode: o.opCode, totalBytes: o.totalBytes}, x.team.ranks[localRank], l))
}

// AwaitedRank implements coll.BlockReporter.
func (x *Instance) AwaitedRank(s *coll.Step) int {
	t := x.team
	if s.Do&actions == awaitPost {
		return t.ranks[s.Peer]
	}
	for localRank := range t.ranks {
		at := slotOf(localRank, x.arrivedPhase)
		if localRank != x.localRank && !hasReached(atomic.LoadUint32(&t.posts[at].phase), x.arrivedPhase) {
			return t.ranks[localRank]
		}
	}
	return t.ranks[x.localRank] // All ranks have arrived, and the leader exchanges messages.
}
