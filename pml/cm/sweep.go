package cm

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// sweeper matches the receives of a plane in this process instead of the network, from the death of a member, and while a
// receive or a probe from any source waits.
//
// If the network matched a receive with a message of the dead process, the rest of that message could be lost, and some
// versions of libfabric crash. So the receives that the network has, from the oldest one from any source on, are withdrawn,
// the youngest first. No younger one takes a message of an older one that is withdrawn already. Later receives wait here too. A sweep
// pulls the messages of one member after another (pull.go). A probe that names a live source does not meet messages of
// the dead process.
//
// A sweep that begins after an event also pulls the messages of processes that have ended, as far as they are here. At its end,
// receives whose message cannot come end, and those from any source are suspended if there is a reason.
type sweeper struct {
	c     *comm
	plane pml.Plane

	mustRecall  bool       // The network has receives that are to be withdrawn.
	withdrawing int        // Receives that the network has not given back.
	gathered    []*request // Receives that wait until it has.

	isRunning bool
	cursor    int    // Rank that is pulled next.
	left      int    // Ranks that are left in this sweep.
	hasEnded  bool   // This sweep includes processes that have ended.
	seesEnded bool   // The next one does.
	isPartial bool   // This sweep has left messages of a process that has ended.
	begun     uint64 // Sweeps.
	done      uint64 // Sweeps that are over.
	latest    uint64 // Module.postings at the beginning of this sweep.
	searched  uint64 // Receives up to this one have been searched for.
	probes    int    // Probes that wait for a sweep.
	found     bool   // A message, in this sweep.
	pulls     int    // Members that were asked in this sweep.
	failed    int    // Members for which the network returned an error.
	err       error  // The last such error.
	gap       time.Duration
	due       time.Time // Beginning of the next sweep.
}

const (
	firstSweepGap = 10 * time.Microsecond
	lastSweepGap  = time.Millisecond
)

// sweeper returns that of a plane, and makes it if there is none. Lock held.
func (c *comm) sweeper(plane pml.Plane) *sweeper {
	s := c.sweepers[plane]
	if s == nil {
		s = &sweeper{c: c, plane: plane}
		c.sweepers[plane] = s
		c.m.sweepers = append(c.m.sweepers, s)
		c.m.engine.Nudge()
	}
	return s
}

// isSwept reports whether a receive or a probe waits for a sweep.
func (c *comm) isSwept(src int, plane pml.Plane) bool {
	return c.sweepers[plane] != nil || c.hasDead && src == pml.AnySource
}

// isRecalling reports whether receives are being withdrawn from the network. A message that is pulled meanwhile would miss them.
func (c *comm) isRecalling(plane pml.Plane) bool {
	s := c.sweepers[plane]
	return s != nil && s.withdrawing > 0
}

// isDead reports whether the bootstrap has reported the death of a process whose messages on this communicator are cm's.
func (c *comm) isDead(p *proc) bool {
	return p.Presence() == base.Died && c.Has(p) && !c.Spec.IsElsewhere(c.Ranks(p)[0])
}

// lastDead returns the error of a receive that has matched a message of the member that died last. nil: none has died.
func (c *comm) lastDead() error {
	var last *proc
	for p := range c.Failed() {
		if c.isDead(p) && (last == nil || last.death < p.death) {
			last = p
		}
	}
	if last == nil {
		return nil
	}
	return c.Explain(last.Err, c.Ranks(last)[0])
}

// ended handles the end of a process that may be a member. Lock held.
func (c *comm) ended(p *proc) {
	if c.isDead(p) {
		c.hasDead = true
		for plane := range pml.Plane(pml.Planes) {
			c.dropLost(p, plane)
			if c.hasPostedAny(plane) {
				c.sweeper(plane).mustRecall = true
			}
		}
	}
	if c.Has(p) {
		c.hurrySweeps()
	}
}

func (c *comm) hurrySweeps() {
	for _, s := range c.sweepers {
		if s != nil {
			s.hurry()
		}
	}
}

// isPosted reports whether the network has a receive of this plane, for its user.
func (r *request) isPosted(c *comm, plane pml.Plane) bool {
	return r.c == c && r.plane == plane && r.state == posted && r != c.m.quick && r.why == nil && !r.user
}

func (c *comm) hasPostedAny(plane pml.Plane) bool {
	return slices.ContainsFunc(c.m.requests, func(r *request) bool { return r.p == nil && r.isPosted(c, plane) })
}

// isLost reports whether a part of a message was still with its sender when that died.
func (msg *message) isLost() bool {
	return msg.from.proc.Presence() == base.Died && (msg.isHead || msg.op.Bytes > msg.c.m.caps.Eager)
}

// dropLost drops such messages from the unexpected queue.
func (c *comm) dropLost(p *proc, plane pml.Plane) {
	c.queues[plane].Unexpected(func(e *match.Message[message]) {
		if e.Owner.from.proc == p && e.Owner.isLost() {
			c.unkeep(e, plane).discard()
		}
	})
}

// recall withdraws receives from the network.
func (s *sweeper) recall() {
	s.mustRecall = false
	c, m := s.c, s.c.m
	var all []*request
	oldest := uint64(math.MaxUint64)
	for _, r := range m.requests {
		if r.isPosted(c, s.plane) {
			all = append(all, r)
			if r.p == nil {
				oldest = min(oldest, r.posting)
			}
		}
	}
	for e := c.deferred[s.plane].First(); e != nil; e = c.deferred[s.plane].First() { // A pull has ended.
		e.Owner.unwait()
		s.gather(e.Owner)
	}
	slices.SortFunc(all, func(a, b *request) int { return cmp.Compare(b.posting, a.posting) })
	for _, r := range all {
		if r.posting >= oldest {
			r.state = recalled
			s.withdrawing++
			m.mtl.Cancel(&r.op)
		}
	}
	if s.withdrawing == 0 {
		s.settle()
	}
}

// gather makes a receive wait for the end of the withdrawal.
func (s *sweeper) gather(r *request) {
	r.state = gathered
	s.gathered = append(s.gathered, r)
}

// ungather takes a receive out of those.
func (r *request) ungather() {
	s := r.c.sweepers[r.plane]
	i := slices.Index(s.gathered, r)
	s.gathered = slices.Delete(s.gathered, i, i+1)
}

// recallDone takes a receive back from the network, unless it has matched, or ends. Lock held.
func (r *request) recallDone(res *mtl.Result) {
	s := r.c.sweepers[r.plane]
	if res.Canceled && r.why == nil && !r.user {
		s.gather(r)
	} else {
		r.state = posted
		r.received(res)
	}
	if s.withdrawing--; s.withdrawing == 0 {
		s.settle()
	}
}

// settle queues the receives that were withdrawn or posted meanwhile, in the order of the calls.
func (s *sweeper) settle() {
	all := s.gathered
	s.gathered = nil
	slices.SortFunc(all, func(a, b *request) int { return cmp.Compare(a.posting, b.posting) })
	for _, r := range all {
		r.wait()
	}
	s.hurry()
}

// sweep makes a receive wait here.
func (r *request) sweep() {
	s := r.c.sweeper(r.plane)
	if s.withdrawing > 0 {
		s.gather(r)
		return
	}
	r.wait()
	s.hurry()
}

// wanted reports whether a receive or a probe needs sweeps.
func (s *sweeper) wanted() bool {
	return s.probes > 0 || s.c.queues[s.plane].FirstPosted(nil) != nil
}

// hurry begins a sweep now, which includes the processes that have ended, or does so at the end of this one. Lock held.
func (s *sweeper) hurry() {
	s.seesEnded, s.gap, s.due = true, 0, time.Time{}
	s.begin()
}

// begin begins a sweep, or ends the sweeper.
func (s *sweeper) begin() {
	c := s.c
	if s.isRunning || s.withdrawing > 0 || c.pulling[s.plane].left > 0 || c.m.closed {
		return
	}
	if s.mustRecall {
		s.recall()
		return
	}
	if !s.wanted() {
		s.stop()
		return
	}
	s.isRunning, s.found, s.left, s.latest = true, false, c.Len(), c.m.postings
	s.hasEnded, s.seesEnded = s.seesEnded, false
	s.pulls, s.failed, s.err, s.isPartial = 0, 0, nil, false
	s.begun++
	s.next()
}

// next pulls the messages of the next member, or ends the sweep.
func (s *sweeper) next() {
	for s.left > 0 && s.wanted() {
		rank := s.cursor
		s.cursor = (rank + 1) % s.c.Len()
		s.left--
		if p := s.source(rank); p != nil {
			s.pulls++
			s.c.beginPull(s.plane, p)
			return
		}
	}
	s.end()
}

// source returns a member whose messages may be in the network.
func (s *sweeper) source(rank int) *peer {
	c := s.c
	if c.Spec.IsElsewhere(rank) {
		return nil
	}
	switch p := c.Proc(rank); {
	case p.Gone() && !(s.hasEnded && p.connected):
		return nil
	case !p.connected && p.introduce() != nil:
		return nil
	}
	return c.peer(rank)
}

// pullDone goes on after a pull, which may be that of a process that leaves.
func (s *sweeper) pullDone() {
	if s.c.Over(s.plane) != nil {
		s.c.discardKept(s.plane)
	}
	if s.isRunning {
		s.next()
	} else {
		s.begin()
	}
}

// refused takes the error of the network for a member. Named receives of its messages end as others do that the network
// fails.
func (s *sweeper) refused(p *peer, err error) {
	if !s.isRunning {
		return
	}
	s.failed++
	s.err = err
	for _, r := range s.c.m.requests {
		if r.c == s.c && r.plane == s.plane && r.state == deferred && r.p == p {
			r.unwait()
			r.doubt(err)
		}
	}
}

// end ends a sweep.
func (s *sweeper) end() {
	if s.left == 0 {
		s.done = s.begun
		switch {
		case s.isPartial:
			s.seesEnded = true
		case s.hasEnded || s.failed > 0:
			s.resolve()
		}
	}
	s.isRunning = false
	switch {
	case !s.wanted():
		s.stop()
		return
	case s.found || s.seesEnded:
		s.gap = 0
	default:
		s.gap = min(max(2*s.gap, firstSweepGap), lastSweepGap)
	}
	s.due = time.Time{}
	if s.gap > 0 {
		s.due = time.Now().Add(s.gap)
	}
}

// resolve ends the receives whose message this sweep has not found and cannot come, and suspends those from any source.
func (s *sweeper) resolve() {
	c, m := s.c, s.c.m
	any := c.cannotCome(pml.AnySource, s.plane)
	if any == nil && s.failed == s.pulls {
		any = s.err
	}
	s.searched = s.latest
	for _, r := range m.requests {
		if r.c != c || r.plane != s.plane || r.state != deferred || r.posting > s.latest {
			continue
		}
		why := any
		if r.p != nil {
			why = c.cannotCome(r.p.rank, s.plane)
		}
		switch {
		case why != nil:
			r.unwait()
			r.miss()
			r.fail(why)
		case r.p == nil:
			r.SetSuspended(c.Suspended[s.plane])
		}
	}
}

// stop gives the receives that are left back to the network.
func (s *sweeper) stop() {
	c, m := s.c, s.c.m
	c.sweepers[s.plane] = nil
	m.sweepers = slices.DeleteFunc(m.sweepers, func(x *sweeper) bool { return x == s })
	c.postDeferred(s.plane)
}

// sweep begins the sweeps that are due. Lock held.
func (m *Module) sweep() {
	var now time.Time
	for i := len(m.sweepers) - 1; i >= 0; i-- {
		if i >= len(m.sweepers) {
			continue
		}
		s := m.sweepers[i]
		if !s.due.IsZero() {
			if now.IsZero() {
				now = time.Now()
			}
			if now.Before(s.due) {
				continue
			}
		}
		s.begin()
	}
}

// sweepGap returns the time until the next sweep, at least that of a probe. Lock held.
func (m *Module) sweepGap() time.Duration {
	gap := lastSweepGap
	for _, s := range m.sweepers {
		gap = min(gap, max(s.gap, probeInterval))
	}
	return gap
}

// Suspend implements pml.Comm. A receive from any source that no sweep has searched for yet is suspended when one has.
func (c *comm) Suspend(plane pml.Plane, why error) {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	c.SetSuspended(plane, why)
	s := c.sweepers[plane]
	none := c.CannotCome(pml.AnySource, plane) // asks no member
	for _, r := range m.requests {
		if r.c != c || r.plane != plane || r.send || r.p != nil {
			continue
		}
		switch r.state {
		case posted:
			if r.SetSuspended(why); none != nil {
				r.end(none)
			}
		case recalled, gathered:
			r.SetSuspended(why)
		case deferred:
			if why == nil || s != nil && r.posting <= s.searched {
				r.SetSuspended(why)
			}
		}
	}
	if s != nil {
		s.hurry()
	}
	m.wakeProbes()
}
