package area

import (
	"fmt"
	"sync/atomic"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/internal/cpu"
)

// What steps do. From or Buf with slot Shared is a place in what is posted.
const (
	enter     = iota // begins an operation of N bytes; Peer is its code
	enterPost        // that, of Buf.At bytes, and post
	enterPass        // and pass
	fill             // puts N bytes of From at Buf of what will be posted, Peer bytes in all
	post             // posts N bytes of From, or what was filled in
	pass             // begins a round without data, of which nobody wants to hear
	await            // until all have posted
	fetch            // copies N bytes at From of what Peer has posted to Buf
	fold             // Buf = what Peer has posted op Buf

	leave = 1 << 7 // a flag of the last one: it ends the operation
)

// Try implements coll.Instance. Cost of a post: a store for which nothing waits, and a load
// of each other member's bell; of a look: a load.
func (x *Instance) Try(s *coll.Step, c *coll.Call) (over bool, err error) {
	do := s.Do &^ leave
	if do <= enterPass {
		total := s.Buf.At
		if do == enter {
			total = s.N
		}
		if n := len(x.queue); n == 0 || int32(c.Turn-x.queue[n-1].turn) > 0 { // it may be tried again
			x.queue = append(x.queue, op{c.Turn, uint32(s.Peer), uint64(total)})
		}
	}
	if s.Do != enter && x.queue[0].turn != c.Turn {
		return false, nil
	}
	switch do {
	case fill:
		if !x.free() {
			return false, nil
		}
		cpu.CopyShared(x.room(x.own(), int(s.Peer))[s.Buf.At:], c.At(s.From, s.N))
	case pass, enterPass:
		if x.round+1-x.last < mostPass {
			x.round++
			break
		}
		fallthrough
	case post, enterPost:
		if !x.free() {
			return false, nil
		}
		x.post(s, c)
	case await:
		if over, err := x.all(c); !over {
			return false, err
		}
	case fetch, fold:
		seat, round := x.source(s)
		if over, err := x.has(seat, round, c); !over {
			return false, err
		}
		at := x.slot(seat, round-1)
		length := x.lines[at].length
		n := int(length &^ past)
		if n > x.l.chunk || s.From.At+s.N > n {
			return false, x.differs(seat, round)
		}
		from, to := x.room(at, n)[s.From.At:][:s.N], c.At(s.Buf, s.N)
		start := x.w.start(s.N)
		if do == fetch {
			cpu.CopyShared(to, from)
		} else {
			c.Apply(to, from)
		}
		x.w.took(start, do-fetch, length, s.N)
	}
	if s.Do >= leave {
		x.queue = x.queue[:copy(x.queue, x.queue[1:])]
	}
	return true, nil
}

// Gives implements coll.Giver. Other members wait for posts, and for rounds without data.
func (x *Instance) Gives(s *coll.Step) bool {
	switch s.Do &^ leave {
	case await, fetch, fold:
		return false
	}
	return true
}

// Awaits implements coll.Awaiter.
func (x *Instance) Awaits(s *coll.Step) int {
	switch s.Do &^ leave {
	case fetch, fold:
		seat, _ := x.source(s)
		return x.ranks[seat]
	case await:
		return x.ranks[x.next%len(x.ranks)]
	}
	for seat := range x.ranks { // whose reading holds up a post
		if !x.reached(seat, x.needed()) {
			return x.ranks[seat]
		}
	}
	return x.ranks[x.seat] // it stands behind another operation
}

// source returns the seat of which a step reads, and the round, counted from 1.
func (x *Instance) source(s *coll.Step) (seat int, round uint32) {
	if seat = int(s.Peer); seat < len(x.ranks) { // without a division
		return seat, x.round
	}
	return seat - len(x.ranks)*mostBack, x.round - mostBack
}

// slot returns the index of a member's slot for a round, which is counted from 0.
func (x *Instance) slot(seat int, round uint32) int { return seat*slots + int(round%slots) }

// own is the slot for what this member posts next.
func (x *Instance) own() int { return x.slot(x.seat, x.round) }

// room returns the memory for n bytes of data of a slot.
func (x *Instance) room(at, n int) []byte {
	if l := &x.lines[at]; n <= len(l.data) {
		return l.data[:n]
	}
	return x.data[at*x.l.chunk:][:n]
}

// needed is the round that all must have posted, or a later one, before this member posts
// the next one: then they have read what was in its slot.
func (x *Instance) needed() uint32 { return x.round - slots + 2 + mostBack }

// free reports whether the slot for the next post is.
func (x *Instance) free() bool {
	need := x.needed()
	if int32(x.known-need) >= 0 {
		return true
	}
	for seat := range x.ranks {
		if !x.reached(seat, need) {
			return false
		}
	}
	x.known = need
	return true
}

// reached reports whether a member has posted a round, counted from 1, or a later one.
func (x *Instance) reached(seat int, round uint32) bool {
	for i := range uint32(slots) { // it may have passed in some
		if int32(atomic.LoadUint32(&x.lines[x.slot(seat, round-1+i)].posted)-round) >= 0 {
			return true
		}
	}
	return seat == x.seat // which has read what it wanted
}

// post posts, and wakes who may wait for it.
func (x *Instance) post(s *coll.Step, c *coll.Call) {
	at, o := x.own(), &x.queue[0]
	l := &x.lines[at]
	l.code, l.total, l.length, l.read = o.code, o.total, uint32(s.N), x.w.read[x.w.use]
	if s.From.Slot != coll.Shared && x.w.put(x.room(at, s.N), c.At(s.From, s.N)) == streamed {
		l.length |= past
	}
	x.round++
	x.last = x.round
	cpu.Store32(&l.posted, x.round)
	if x.isOrdered {
		cpu.Barrier()
	}
	for _, b := range x.bells { // without waiting until they see it: see progress.Lagging
		b.Ring()
	}
	// The others have what was in the next slot: it is fetched while they look at this one.
	cpu.PrefetchWrite(&x.lines[x.own()].total)
}

// all reports whether all have posted the round that this member has posted last.
func (x *Instance) all(c *coll.Call) (bool, error) {
	for ; x.next < len(x.ranks); x.next++ {
		if over, err := x.has(x.next, x.round, c); !over {
			return false, err
		}
	}
	x.next, x.known = 0, x.round
	return true, nil
}

// patience is how many looks a member waits for another one before it looks whether that has
// gone on without posting: looks at other lines than the one that is awaited make those dearer
// to write. It is some 16 microseconds, with a PAUSE of 25 ns between looks. Who is about to sleep
// has none.
const patience = 640

// has reports whether a member has posted that round, counted from 1, for the same operation
// as this one.
func (x *Instance) has(seat int, round uint32, c *coll.Call) (bool, error) {
	l := &x.lines[x.slot(seat, round-1)]
	ahead := int32(atomic.LoadUint32(&l.posted) - round)
	if ahead < 0 {
		if x.looks++; x.looks < patience && !c.Asleep || seat == x.seat || !x.reached(seat, round+1) {
			return false, nil
		}
		// It may have posted both meanwhile.
		if ahead = int32(atomic.LoadUint32(&l.posted) - round); ahead < 0 {
			return false, fmt.Errorf("rank %d went on and contributed nothing: members must pass equal arguments", x.ranks[seat])
		}
	}
	x.looks = 0
	x.w.told = l.read
	if o := &x.queue[0]; ahead > 0 || l.code != o.code || l.total != o.total {
		return false, x.differs(seat, round)
	}
	return true, nil
}

func (x *Instance) differs(seat int, round uint32) error {
	o, l := &x.queue[0], &x.lines[x.slot(seat, round-1)]
	return fmt.Errorf("rank %d is in %s of %d bytes where this one is in %s of %d: members must pass equal arguments",
		x.ranks[seat], codeName(l.code), l.total, codeName(o.code), o.total)
}

// code names an operation and its root.
func code(op coll.Operation, root int) uint32 { return uint32(op) | uint32(root)<<8 }

func codeName(c uint32) string {
	if c&0xff >= uint32(coll.Operations) {
		return "no operation"
	}
	return fmt.Sprintf("%v (root %d)", coll.Operation(c&0xff), c>>8)
}
