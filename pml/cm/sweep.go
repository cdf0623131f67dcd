package cm

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// sweeper matches the receives of a plane in this process instead of the network. It exists
// after the failure of a member, while a receive or a probe from any source waits.
//
// If the network matched a receive with a message of the failed process, the rest of that message could be lost, and some
// versions of libfabric crash. Therefore receives that the network has, from the oldest one from any source on, are withdrawn,
// the youngest first, so that no receive takes the message of an older one that is withdrawn already. Later receives wait
// here too. A sweep pulls the messages of one member after another (pull.go). Probes that name a live source cannot match
// messages of the failed process.
//
// A sweep that starts after an event also pulls messages of processes that have ended, as far as they have arrived. At its
// end, receives whose message cannot come fail, and receives from any source are suspended if there is a reason.
type sweeper struct {
	c     *comm
	plane pml.Plane
	recallState
	sweepState
	// seesEnded is hasEnded of the next sweep.
	seesEnded bool
	// startedSweeps and finishedSweeps count sweeps.
	startedSweeps  uint64
	finishedSweeps uint64
	// searchedPosting is lastPosting of the last sweep that has covered all members.
	searchedPosting uint64
	// waitingProbes counts the probes that wait for a sweep.
	waitingProbes int
	// notBefore is the start of the next sweep.
	sweepInterval time.Duration
	notBefore     time.Time
}

// recallState is the withdrawal of receives from the network.
type recallState struct {
	// mustRecall is set if the network has receives to be withdrawn.
	mustRecall bool
	// gatheredRecvs holds the receives that wait until pendingWithdrawals is 0.
	pendingWithdrawals int
	gatheredRecvs      []*request
}

// sweepState is the sweep in progress, or the last one.
type sweepState struct {
	isRunning bool
	// nextRank is the next rank to pull.
	nextRank       int
	remainingRanks int
	// hasEnded is set if the sweep includes processes that have ended.
	hasEnded bool
	// isPartial is set if messages of an ended process remain in the network.
	isPartial bool
	// lastPosting is Module.lastPostingNumber at the start.
	lastPosting uint64
	// hasFound is set if the sweep has found a message.
	hasFound bool
	// failedPulls counts the members for which the network returned an error. lastPullErr is the
	// last such error.
	pulledMembers int
	failedPulls   int
	lastPullErr   error
}

const (
	firstSweepGap = 10 * time.Microsecond
	lastSweepGap  = time.Millisecond
)

// sweeper returns the sweeper of a plane, and creates it if there is none. Lock held.
func (c *comm) sweeper(plane pml.Plane) *sweeper {
	s := c.sweepersByPlane[plane]
	if s == nil {
		s = &sweeper{c: c, plane: plane}
		c.sweepersByPlane[plane] = s
		c.m.activeSweepers = append(c.m.activeSweepers, s)
		c.m.engine.Nudge()
	}
	return s
}

// isSwept reports whether a receive or a probe waits for a sweep.
func (c *comm) isSwept(src int, plane pml.Plane) bool {
	return c.sweepersByPlane[plane] != nil || c.hasFailedMember && src == pml.AnySource
}

// isRecalling reports whether receives are being withdrawn from the network. They could not match a message that is pulled now.
func (c *comm) isRecalling(plane pml.Plane) bool {
	s := c.sweepersByPlane[plane]
	return s != nil && s.pendingWithdrawals > 0
}

// isFailedMember reports whether p is a member that the bootstrap has reported as failed, and that cm carries messages for.
func (c *comm) isFailedMember(p *proc) bool {
	return p.PeerState() == framework.Failed && c.HasProc(p) && !c.Spec.IsElsewhere(c.Ranks(p)[0])
}

// lastMemberFailure returns the error of a receive that has matched a message of the member that failed last, or nil.
func (c *comm) lastMemberFailure() error {
	var last *proc
	for p := range c.Failed() {
		if c.isFailedMember(p) && (last == nil || last.failureOrder < p.failureOrder) {
			last = p
		}
	}
	if last == nil {
		return nil
	}
	return c.MemberError(last.Err, c.Ranks(last)[0])
}

// handleProcEnd handles the end of a process, which may be a member. Lock held.
func (c *comm) handleProcEnd(p *proc) {
	if c.isFailedMember(p) {
		c.hasFailedMember = true
		for plane := range pml.Plane(pml.Planes) {
			c.dropLost(p, plane)
			if c.hasPostedAny(plane) {
				c.sweeper(plane).mustRecall = true
			}
		}
	}
	if c.HasProc(p) {
		c.restartSweeps()
	}
}

func (c *comm) restartSweeps() {
	for _, s := range c.sweepersByPlane {
		if s != nil {
			s.restart()
		}
	}
}

// isPosted reports whether the network has r as a receive of this plane that is not being withdrawn.
func (r *request) isPosted(c *comm, plane pml.Plane) bool {
	return r.c == c && r.plane == plane && r.state == posted && r != c.m.directRecv && r.endCause == nil && !r.isCanceled
}

func (c *comm) hasPostedAny(plane pml.Plane) bool {
	return slices.ContainsFunc(c.m.allRequests, func(r *request) bool { return r.p == nil && r.isPosted(c, plane) })
}

// isLost reports whether the sender failed before the whole message was in the network.
func (msg *message) isLost() bool {
	return msg.from.proc.PeerState() == framework.Failed && (msg.isRTS || msg.op.Bytes > msg.c.m.mtlCaps.Eager)
}

// dropLost drops the lost messages of p from the unexpected queue.
func (c *comm) dropLost(p *proc, plane pml.Plane) {
	c.matchQueues[plane].Unexpected(func(e *match.Message[message]) {
		if e.Owner.from.proc == p && e.Owner.isLost() {
			c.takeUnexpected(e, plane).discard()
		}
	})
}

// recall withdraws receives from the network, see sweeper.
func (s *sweeper) recall() {
	s.mustRecall = false
	c, m := s.c, s.c.m
	var all []*request
	oldest := uint64(math.MaxUint64)
	for _, r := range m.allRequests {
		if r.isPosted(c, s.plane) {
			all = append(all, r)
			if r.p == nil {
				oldest = min(oldest, r.postingNumber)
			}
		}
	}
	for e := c.deferredRecvs[s.plane].First(); e != nil; e = c.deferredRecvs[s.plane].First() { // Left by a pull that has ended.
		e.Owner.undefer()
		s.gather(e.Owner)
	}
	slices.SortFunc(all, func(a, b *request) int { return cmp.Compare(b.postingNumber, a.postingNumber) })
	for _, r := range all {
		if r.postingNumber >= oldest {
			r.state = recalled
			s.pendingWithdrawals++
			m.mtl.Cancel(&r.op)
		}
	}
	if s.pendingWithdrawals == 0 {
		s.queueGathered()
	}
}

// gather makes a receive wait for the end of the withdrawals.
func (s *sweeper) gather(r *request) {
	r.state = gathered
	s.gatheredRecvs = append(s.gatheredRecvs, r)
}

// ungather removes a receive from sweeper.gatheredRecvs.
func (r *request) ungather() {
	s := r.c.sweepersByPlane[r.plane]
	i := slices.Index(s.gatheredRecvs, r)
	s.gatheredRecvs = slices.Delete(s.gatheredRecvs, i, i+1)
}

// recallDone handles the completion of a receive that is withdrawn. It may have matched. Lock held.
func (r *request) recallDone(res *mtl.Result) {
	s := r.c.sweepersByPlane[r.plane]
	if res.Canceled && r.endCause == nil && !r.isCanceled {
		s.gather(r)
	} else {
		r.state = posted
		r.recvDone(res)
	}
	if s.pendingWithdrawals--; s.pendingWithdrawals == 0 {
		s.queueGathered()
	}
}

// queueGathered defers the gathered receives, in the order of their posting, and restarts the sweep.
func (s *sweeper) queueGathered() {
	all := s.gatheredRecvs
	s.gatheredRecvs = nil
	slices.SortFunc(all, func(a, b *request) int { return cmp.Compare(a.postingNumber, b.postingNumber) })
	for _, r := range all {
		r.deferReceive()
	}
	s.restart()
}

// awaitSweep makes a receive wait for the sweeper.
func (r *request) awaitSweep() {
	s := r.c.sweeper(r.plane)
	if s.pendingWithdrawals > 0 {
		s.gather(r)
		return
	}
	r.deferReceive()
	s.restart()
}

// isNeeded reports whether a receive or a probe needs sweeps.
func (s *sweeper) isNeeded() bool {
	return s.waitingProbes > 0 || s.c.matchQueues[s.plane].FirstPosted(nil) != nil
}

// restart starts a sweep that includes ended processes now, or at the end of the present one. Lock held.
func (s *sweeper) restart() {
	s.seesEnded, s.sweepInterval, s.notBefore = true, 0, time.Time{}
	s.start()
}

// start starts a sweep, or removes a sweeper that is not needed.
func (s *sweeper) start() {
	c := s.c
	if s.isRunning || s.pendingWithdrawals > 0 || c.pullsByPlane[s.plane].remainingMessages > 0 || c.m.isClosed {
		return
	}
	if s.mustRecall {
		s.recall()
		return
	}
	if !s.isNeeded() {
		s.stop()
		return
	}
	s.isRunning, s.hasFound, s.remainingRanks, s.lastPosting = true, false, c.Len(), c.m.lastPostingNumber
	s.hasEnded, s.seesEnded = s.seesEnded, false
	s.pulledMembers, s.failedPulls, s.lastPullErr, s.isPartial = 0, 0, nil, false
	s.startedSweeps++
	s.pullNextMember()
}

// pullNextMember pulls the messages of the next member, or finishes the sweep.
func (s *sweeper) pullNextMember() {
	for s.remainingRanks > 0 && s.isNeeded() {
		rank := s.nextRank
		s.nextRank = (rank + 1) % s.c.Len()
		s.remainingRanks--
		if p := s.source(rank); p != nil {
			s.pulledMembers++
			s.c.beginPull(s.plane, p)
			return
		}
	}
	s.finish()
}

// source returns the member of that rank, or nil if the network can have no message of it.
func (s *sweeper) source(rank int) *peer {
	c := s.c
	if c.Spec.IsElsewhere(rank) {
		return nil
	}
	switch p := c.Proc(rank); {
	case p.HasEnded() && !(s.hasEnded && p.isConnected):
		return nil
	case !p.isConnected && p.connectMTL() != nil:
		return nil
	}
	return c.peer(rank)
}

// pullDone continues after a pull, which may be one for a leaving process.
func (s *sweeper) pullDone() {
	if s.c.StartError(s.plane) != nil {
		s.c.discardUnexpected(s.plane)
	}
	if s.isRunning {
		s.pullNextMember()
	} else {
		s.start()
	}
}

// pullFailed handles an error of the network for a member. Receives that name this member become
// doubtful.
func (s *sweeper) pullFailed(p *peer, err error) {
	if !s.isRunning {
		return
	}
	s.failedPulls++
	s.lastPullErr = err
	for _, r := range s.c.m.allRequests {
		if r.c == s.c && r.plane == s.plane && r.state == deferred && r.p == p {
			r.undefer()
			r.doubt(err)
		}
	}
}

// finish finishes a sweep and schedules the next.
func (s *sweeper) finish() {
	if s.remainingRanks == 0 {
		s.finishedSweeps = s.startedSweeps
		switch {
		case s.isPartial:
			s.seesEnded = true
		case s.hasEnded || s.failedPulls > 0:
			s.endReceives()
		}
	}
	s.isRunning = false
	switch {
	case !s.isNeeded():
		s.stop()
		return
	case s.hasFound || s.seesEnded:
		s.sweepInterval = 0
	default:
		s.sweepInterval = min(max(2*s.sweepInterval, firstSweepGap), lastSweepGap)
	}
	s.notBefore = time.Time{}
	if s.sweepInterval > 0 {
		s.notBefore = time.Now().Add(s.sweepInterval)
	}
}

// endReceives fails the receives whose message cannot come, and suspends those from any source.
func (s *sweeper) endReceives() {
	c, m := s.c, s.c.m
	anyErr := c.recvFailure(pml.AnySource, s.plane)
	if anyErr == nil && s.failedPulls == s.pulledMembers {
		anyErr = s.lastPullErr
	}
	s.searchedPosting = s.lastPosting
	for _, r := range m.allRequests {
		if r.c != c || r.plane != s.plane || r.state != deferred || r.postingNumber > s.lastPosting {
			continue
		}
		why := anyErr
		if r.p != nil {
			why = c.recvFailure(r.p.rank, s.plane)
		}
		switch {
		case why != nil:
			r.undefer()
			r.recordMissed()
			r.fail(why)
		case r.p == nil:
			r.SetSuspended(c.Suspended[s.plane])
		}
	}
}

// stop removes the sweeper and posts its receives.
func (s *sweeper) stop() {
	c, m := s.c, s.c.m
	c.sweepersByPlane[s.plane] = nil
	m.activeSweepers = slices.DeleteFunc(m.activeSweepers, func(x *sweeper) bool { return x == s })
	c.postDeferred(s.plane)
}

// startDueSweeps starts the sweeps that are due. Lock held.
func (m *Module) startDueSweeps() {
	var now time.Time
	for i := len(m.activeSweepers) - 1; i >= 0; i-- {
		if i >= len(m.activeSweepers) {
			continue
		}
		s := m.activeSweepers[i]
		if !s.notBefore.IsZero() {
			if now.IsZero() {
				now = time.Now()
			}
			if now.Before(s.notBefore) {
				continue
			}
		}
		s.start()
	}
}

// sweepInterval returns the time until the next sweep, at least probeInterval. Lock held.
func (m *Module) sweepInterval() time.Duration {
	gap := lastSweepGap
	for _, s := range m.activeSweepers {
		gap = min(gap, max(s.sweepInterval, probeInterval))
	}
	return gap
}

// Suspend implements pml.Comm. A receive from any source that no sweep has covered yet is suspended after the next one.
func (c *comm) Suspend(plane pml.Plane, why error) {
	m := c.m
	m.engine.Lock()
	defer m.engine.Unlock()
	c.SetSuspended(plane, why)
	s := c.sweepersByPlane[plane]
	none := c.SourceError(pml.AnySource, plane) // It sends no inquiry.
	for _, r := range m.allRequests {
		if r.c != c || r.plane != plane || r.isSend || r.p != nil {
			continue
		}
		switch r.state {
		case posted:
			if r.SetSuspended(why); none != nil {
				r.abort(none)
			}
		case recalled, gathered:
			r.SetSuspended(why)
		case deferred:
			if why == nil || s != nil && r.postingNumber <= s.searchedPosting {
				r.SetSuspended(why)
			}
		}
	}
	if s != nil {
		s.restart()
	}
	m.wakeProbes()
}
