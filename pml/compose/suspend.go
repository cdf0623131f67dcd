package compose

import (
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

// suspender is a comm that joins two pml.Suspenders. It suspends its own receives. Those that the network has for them wait
// on, so that both sides stay matchable.
type suspender struct {
	*comm
	parts [2]pml.Suspender
}

// Suspend implements pml.Suspender. Without a reason the parts end receives from any source if no other member is left.
func (s *suspender) Suspend(plane pml.Plane, why error) {
	e := s.j.engine
	e.Lock()
	s.suspended[plane] = why
	if w := s.byPlane[plane]; w != nil {
		w.queues.Posted(nil, func(r *match.Recv[request]) { r.Owner.SetSuspended(why) })
		w.wakeProbes()
	}
	e.Release()
	if why == nil {
		for _, part := range s.parts {
			part.Suspend(plane, nil)
		}
	}
}

// pendingReason returns the reason for not waiting for a message of any source, or nil. Lock held.
func (w *wildcards) pendingReason() error {
	if w.lost != nil {
		return w.lost
	}
	return w.c.suspended[w.plane]
}
