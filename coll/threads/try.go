package threads

import (
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/cpu"
)

// What steps of kind Own do. The first step of an operation begins it. In all of these but
// awaitPost, Peer is the operation's code and N its total.
const (
	enter         = iota // nothing
	publish              // publishes Buf.At bytes of From in the next round, without arriving
	arrive               // arrives in the next round
	arriveWith           // likewise with N bytes of From; the result comes to Buf unless that is in slot In
	awaitPost            // until Peer has published Buf.At bytes in the next round; From.At is the code
	awaitAll             // until all have posted in this round; flat only
	awaitGathered        // until all have arrived in this round
	awaitWork            // likewise, or if this rank is to sleep, until the round is complete
	awaitComplete        // until this round is complete; copies the result in the gate, N bytes, to Buf
	complete             // completes this round
	leave                // nothing

	actions = 1<<4 - 1
	// What the last rank that arrives does.
	thenComplete = 0 << 4 // completes the round
	thenGather   = 1 << 4 // wakes the leader, which will complete it
	thenWork     = 2 << 4 // opens the work, which will complete it
	modes        = 3 << 4

	leaves = 1 << 7 // a flag of the last step
)

// Try implements coll.Instance. Cost of an arrival: an atomic operation at one level of the tree, and
// rarely more; of a poll: a load.
func (x *Instance) Try(s *coll.Step, c *coll.Call) (over bool, err error) {
	if n := len(x.queue); n == 0 || int32(c.Turn-x.queue[n-1].turn) > 0 { // it may be tried again
		x.queue = append(x.queue, begun(s, c))
	}
	if x.queue[0].turn != c.Turn {
		return false, nil
	}
	if over, err := x.act(s, c); !over {
		if err == nil {
			err = x.waits()
		}
		return false, err
	}
	if s.Do >= leaves {
		if x.isLost {
			return false, errLost
		}
		x.queue = x.queue[:copy(x.queue, x.queue[1:])]
	}
	return true, nil
}

func begun(s *coll.Step, c *coll.Call) op {
	code := int(s.Peer)
	if s.Do&actions == awaitPost {
		code = s.From.At
	}
	return op{c.Turn, uint32(code), uint64(s.N)}
}

// waits returns the error of a wait that can't end.
func (x *Instance) waits() error {
	if x.isLost {
		return errLost
	}
	return x.t.failed()
}

func (x *Instance) act(s *coll.Step, c *coll.Call) (over bool, err error) {
	t := x.t
	if x.isLost { // the others would take slices that this rank has not written
		return false, errLost
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
			x.post(0)
		}
		return x.arrive(s.Do & modes)
	case awaitPost:
		return x.posted(int(s.Peer), x.round+1, uint64(s.Buf.At), c)
	case awaitAll:
		return x.all(c)
	case awaitGathered:
		return x.await(gatheredGate, c), nil
	case awaitWork:
		if reached(t.gathered.word.Load(), x.round) {
			return true, nil
		}
		return x.await(releasedGate, c), nil
	case awaitComplete:
		if !x.await(releasedGate, c) {
			return false, nil
		}
		if s.N > 0 && s.Buf.Slot != coll.In {
			copy(c.At(s.Buf, s.N), t.released.result[:s.N])
		}
	case complete:
		t.release(x.round)
	}
	return true, nil
}

// isComplete reports whether the round in which this rank arrived last is complete.
func (x *Instance) isComplete(c *coll.Call) bool {
	if !x.l.flat {
		return x.await(releasedGate, c)
	}
	if x.known == x.round {
		return true
	}
	for seat := range x.t.ranks {
		l := &x.t.lines[slotOf(seat, x.round)]
		for !reached(atomic.LoadUint32(&l.posted), x.round) {
			if !c.Asleep || !x.t.listForPost(x.seat, seat) {
				return false
			}
		}
	}
	x.known = x.round
	return true
}

// await reports whether a gate has reached this round. If the rank is about to sleep, it is
// listed there.
func (x *Instance) await(gate int, c *coll.Call) bool {
	for !reached(x.t.gate(gate).word.Load(), x.round) {
		if !c.Asleep || !x.t.list(x.seat, gate) {
			return false
		}
	}
	return true
}

// line returns this rank's line for the next round. Its posted is that round if it has
// published in it.
func (x *Instance) line() (l *line, isPosted bool) {
	l = &x.t.lines[slotOf(x.seat, x.round+1)]
	return l, l.posted == x.round+1
}

// publish publishes the first bytes of a slice, or more of it than before.
func (x *Instance) publish(out []byte, ready uint64) {
	l, isPosted := x.line()
	if !isPosted {
		x.t.slices[slotOf(x.seat, x.round+1)] = published{in: out}
		x.post(ready)
		return
	}
	atomic.StoreUint64(&l.ready, ready)
	x.t.hasPosted(x.seat)
}

// postOperand posts this rank's operand in the next round, in the line if it is small.
func (x *Instance) postOperand(s *coll.Step, c *coll.Call) {
	l, isPosted := x.line()
	if isPosted {
		return
	}
	if s.N <= inlineMost {
		copy(l.data[:], c.At(s.From, s.N))
	} else {
		p := published{in: c.At(s.From, s.N)}
		if s.Buf.Slot != coll.In {
			p.out = c.At(s.Buf, s.N)
		}
		x.t.slices[slotOf(x.seat, x.round+1)] = p
	}
	x.post(uint64(s.N))
}

// post posts this rank's line for the next round, and wakes those that wait for it.
func (x *Instance) post(ready uint64) {
	l, isPosted := x.line()
	if isPosted {
		return
	}
	l.code, l.total = x.queue[0].code, x.queue[0].total
	cpu.Store64(&l.ready, ready)
	atomic.StoreUint32(&l.posted, x.round+1)
	x.t.hasPosted(x.seat)
	if x.l.flat { // the others have the next line: it is fetched while they poll this one
		cpu.PrefetchWrite(&x.t.lines[slotOf(x.seat, x.round+2)].total)
	}
}

// arrive arrives in the next round, in which this rank has posted.
func (x *Instance) arrive(mode uint8) (over bool, err error) {
	t := x.t
	x.round++
	if x.l.flat {
		return true, nil
	}
	o := &x.queue[0]
	add := checksum(o.code, o.total)
	x.sum += add
	last, err := t.arrive(x.seat, x.round, add, x.sum)
	if err != nil {
		return false, err
	}
	if !last {
		return true, nil
	}
	switch mode {
	case thenComplete:
		t.release(x.round)
	case thenGather:
		t.gathered.word.Store(x.round)
		t.gathered.wake()
	case thenWork:
		t.work.done.Store(0)
		t.work.claims.Store(uint64(x.round) << 32)
		t.gathered.word.Store(x.round)
		if o.total > inlineMost && o.total*uint64(len(t.ranks)) >= helpFrom {
			t.released.wake()
		}
	}
	return true, nil
}

// helpFrom is the size of all operands together from which sleeping ranks are woken to help: the
// work then takes far longer than to wake them.
const helpFrom = 8 << 20

// all reports whether all have posted in this round.
func (x *Instance) all(c *coll.Call) (bool, error) {
	for ; x.next < len(x.t.ranks); x.next++ {
		if over, err := x.posted(x.next, x.round, 0, c); !over {
			return false, err
		}
	}
	x.next, x.known = 0, x.round
	return true, nil
}

// posted reports whether a seat has published so many bytes in a round, for the same operation as
// this one.
func (x *Instance) posted(seat int, round uint32, ready uint64, c *coll.Call) (bool, error) {
	l := &x.t.lines[slotOf(seat, round)]
	for {
		if now := atomic.LoadUint32(&l.posted); reached(now, round) {
			o := &x.queue[0]
			if now != round || l.code != o.code || l.total != o.total {
				return false, x.differs(seat, l)
			}
			if atomic.LoadUint64(&l.ready) >= ready {
				return true, nil
			}
		}
		if !c.Asleep || !x.t.listForPost(x.seat, seat) {
			return false, nil
		}
	}
}

func (x *Instance) differs(seat int, l *line) error {
	o := &x.queue[0]
	return x.t.fail(different(x.t.ranks[x.seat], &line{code: o.code, total: o.total}, x.t.ranks[seat], l))
}

// Awaits implements coll.Awaiter.
func (x *Instance) Awaits(s *coll.Step) int {
	t := x.t
	if s.Do&actions == awaitPost {
		return t.ranks[s.Peer]
	}
	for seat := range t.ranks {
		at := slotOf(seat, x.round)
		if seat != x.seat && !reached(atomic.LoadUint32(&t.lines[at].posted), x.round) {
			return t.ranks[seat]
		}
	}
	return t.ranks[x.seat] // all have arrived, and the leader exchanges messages
}
