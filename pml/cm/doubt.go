package cm

import (
	"time"

	"github.com/ferrympi/ferry/pml/base"
)

// An operation that the network has failed is doubtful. It waits for the bootstrap to
// report the end of its peer (base.DoubtStep), so that its error is ErrProcFailed and
// names the rank, as with every other transport. Without a report it fails with the
// network's error. Either error concerns this operation, and sends that wait for the
// answer to the same request. Later operations are submitted normally.

// doubtSteps is the number of steps that a doubtful operation waits. Tests change it.
var doubtSteps = base.DoubtSteps

// doubtState is the state of resolveDoubts.
type doubtState struct {
	// hasDoubtful is set if any request may be doubtful.
	hasDoubtful bool
	lastCheckAt time.Time
}

// doubt fails an operation with the network's error, or with the failure of its peer if
// that is known or reported in time. Lock held.
func (r *request) doubt(err error) {
	m := r.m
	known := r.c.recvFailure(r.source(), r.plane)
	if p := r.p; p != nil && p.proc.Err != nil {
		known = r.c.MemberError(p.proc.Err, p.rank)
	} else if p == nil && known == nil && r.c.hasFailedMember {
		known = r.c.lastMemberFailure() // After the failure, the network has no receives from any source.
	}
	if known != nil {
		r.fail(known)
		return
	}
	r.state, r.endCause, r.doubtStepsLeft = doubtful, err, doubtSteps
	m.doubtState.hasDoubtful = true
	m.engine.Nudge()
}

// resolveDoubts fails the operations whose wait is over. Lock held.
func (m *Module) resolveDoubts() {
	now := time.Now()
	steps := base.DoubtStepsElapsed(m.doubtState.lastCheckAt, now)
	if steps == 0 {
		return
	}
	m.doubtState = doubtState{lastCheckAt: now}
	for _, r := range m.allRequests {
		if r.state != doubtful {
			continue
		}
		if r.doubtStepsLeft -= steps; r.doubtStepsLeft > 0 {
			m.doubtState.hasDoubtful = true
		} else {
			r.fail(r.endCause)
		}
	}
}
