package mpi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// openTeams returns the thread communicators that are open.
func (e *process) openTeams() []*ThreadComm {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.openThreadComms))
}

// inspectRanks returns the queues of the goroutine ranks. It waits once for the locks of blocked ranks, and adds a note with the number of ranks
// that the result lacks.
func (e *process) inspectRanks() (x pml.Inspection) {
	ctx, cancel := context.WithTimeout(context.Background(), progress.ObserveLimit)
	defer cancel()
	unknown := 0
	for _, t := range e.openTeams() {
		for endpoint := range t.rankStates {
			of, err := t.inspect(ctx, endpoint)
			if err != nil {
				unknown++
				continue
			}
			x.Comms = append(x.Comms, of.Comms...)
			x.EarlyArrivals += of.EarlyArrivals
		}
	}
	if unknown > 0 {
		x.Notes = append(x.Notes, fmt.Sprintf("the queues of %s are unknown: their engines are busy", count(unknown, "goroutine rank", "goroutine ranks")))
	}
	return x
}

// inspect returns the queues of one goroutine rank.
func (t *ThreadComm) inspect(ctx context.Context, endpoint int) (pml.Inspection, error) {
	x, err := t.team.Inspect(ctx, endpoint)
	if err != nil {
		return x, err
	}
	local := &t.rankStates[endpoint]
	if err := local.addPendingSteps(ctx, &x, func(*Comm) bool { return true }); err != nil {
		return x, err
	}
	return x, t.session.process.addPartitions(ctx, &x, func(c *Comm) bool { return c.rankState == local })
}

// addPendingSteps adds the pending steps of matching communicators to an inspection.
func (r *rankState) addPendingSteps(ctx context.Context, x *pml.Inspection, match func(*Comm) bool) error {
	return r.engine.Observe(ctx, func() {
		r.PendingSteps(func(h run.Host, p pml.Pending) {
			c := h.(*collectiveHost).comm()
			if !match(c) {
				return
			}
			key := c.key()
			i := slices.IndexFunc(x.Comms, func(i pml.CommInspection) bool { return i.ID == key.Extended && i.Endpoint == key.Endpoint })
			if i < 0 {
				i = len(x.Comms)
				x.Comms = append(x.Comms, pml.CommInspection{ID: key.Extended, Endpoint: key.Endpoint, Local: c.spec.Local})
			}
			x.Comms[i].Posted = append(x.Comms[i].Posted, p)
		})
	})
}

// idleRanks describes the goroutine ranks that wait for no operation of x. Other ranks may wait for an operation of theirs.
func (e *process) idleRanks(x pml.Inspection, comms map[cid.EndpointID]*Comm) (all []wait) {
	waiting := map[*threadRank]bool{}
	for _, i := range x.Comms {
		c := comms[cid.EndpointID{Extended: i.ID, Endpoint: i.Endpoint}]
		if c != nil && slices.ContainsFunc(slices.Concat(i.Posted, i.Sends), func(p pml.Pending) bool { return p.Wait != pml.NotAwaited }) {
			waiting[c.threadRank] = true
		}
	}
	for _, t := range e.openTeams() {
		if !t.mu.TryLock() { // It begins an activation, which may wait for other processes.
			continue
		}
		if a := t.currentActivation; a != nil {
			for i := range a.threadRanks[:a.startedCount] {
				if s := &a.threadRanks[i]; !s.isFinished && !waiting[s] && len(s.open()) > 0 {
					all = append(all, wait{What: s.describe() + " waits for nothing: it computes, or waits elsewhere (--stacks shows where)"})
				}
			}
		}
		t.mu.Unlock()
	}
	return all
}

// describe names a goroutine rank within its process.
func (s *threadRank) describe() string {
	return fmt.Sprintf("(goroutine %d, rank %d of its thread communicator)", s.endpoint, s.rank)
}

// inspectThreadRank returns the queues of a goroutine rank's communicator.
func (c *Comm) inspectThreadRank() (Inspection, error) {
	ctx, cancel := context.WithTimeout(context.Background(), progress.ObserveLimit)
	defer cancel()
	x := Inspection{ID: c.spec.ID, Endpoint: c.threadRank.endpoint, Local: c.spec.Local, Name: c.Name()}
	here, err := c.threadRank.activation.threadComm.inspect(ctx, int(c.threadRank.endpoint))
	below, belowErr := c.module.Inspect(ctx)
	if err = errors.Join(err, belowErr); err != nil {
		return x, err
	}
	for _, i := range slices.Concat(here.Comms, below.Comms) {
		if i.ID == x.ID && i.Endpoint == x.Endpoint {
			x.Posted, x.Unexpected, x.Sends = append(x.Posted, i.Posted...), append(x.Unexpected, i.Unexpected...), append(x.Sends, i.Sends...)
			if i.Estimates != nil {
				x.Estimates = i.Estimates
			}
		}
	}
	c.partitions.hideMessages(c, &x)
	return x, nil
}

// rankStats returns the counts of messages between the goroutine ranks of this process, those of closed
// thread communicators included, and whether there were such ranks. Messages are counted when they are received.
func (e *process) rankStats() (PeerStats, bool) {
	e.mu.Lock()
	sum, any := e.closedRankStats, e.hadThreadComms
	teams := slices.Collect(maps.Keys(e.openThreadComms))
	e.mu.Unlock()
	for _, t := range teams {
		sum.add(t.stats())
	}
	self := e.Env().Self
	return PeerStats{
		Proc: e.identity.Proc, Incarnation: self, Transport: "threads", Sent: sum.Received, Received: sum.Received,
		SentBytes: sum.RecvBytes, ReceivedBytes: sum.RecvBytes, Unexpected: sum.Unexpected, Dropped: sum.Dropped,
	}, any
}

// receivedStats are the counts of receiving ranks.
type receivedStats struct{ Received, RecvBytes, Unexpected, Dropped uint64 }

func (s *receivedStats) add(o receivedStats) {
	s.Received += o.Received
	s.RecvBytes += o.RecvBytes
	s.Unexpected += o.Unexpected
	s.Dropped += o.Dropped
}

// stats returns the counts of the ranks of this process.
func (t *ThreadComm) stats() (sum receivedStats) {
	for endpoint := range t.rankStates {
		st := t.team.Rank(endpoint).Stats()
		sum.add(receivedStats{st.Received, st.RecvBytes, st.Unexpected, st.Dropped})
	}
	return sum
}

// ranksUse returns ErrPending if an operation between goroutine ranks uses the memory.
func (e *process) ranksUse(memory []byte) error {
	for _, t := range e.openTeams() {
		for endpoint := range t.rankStates {
			if t.team.Uses(endpoint, memory) {
				return fmt.Errorf("%w: an operation of a goroutine rank uses the memory", ErrPending)
			}
		}
	}
	return nil
}
