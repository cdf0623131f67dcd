package threads

import (
	"context"

	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Sends to members of other processes. They go straight to the PML below, and complete in the
// process's engine. A send that begins under the rank's lock is deferred, and has a request of
// the rank.

func (b *below) send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	b.awaitUnsent()
	return b.handle.Send(ctx, buf, dst, tag, plane, mode)
}

func (b *below) isend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	b.awaitUnsent()
	return b.handle.Isend(buf, dst, tag, plane, mode)
}

// sendBelow is a send that was deferred. The rank's lock guards it.
type sendBelow struct {
	pml.Request
	rank  *Rank
	b     *below
	buf   pml.Buffer
	dst   int
	tag   int
	plane pml.Plane
	mode  pml.Mode

	isStarted  bool // The task has run, or is about to call the PML below.
	isCanceled bool // Before that.
	isReleased bool // The request has been used up, and tasks have the send still.
	tasks      int  // Deferred cancellations.
	next       *sendBelow

	part *pml.Request // Request of the PML below; guarded by the process's lock.
}

// startSend starts a send under the rank's lock.
func (b *below) startSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	if err := b.c.Over(plane); err != nil {
		return nil, err
	}
	r := b.c.rank
	s := r.sendsBelow
	if s == nil {
		s = &sendBelow{rank: r}
		s.Init(r.engine, s)
	} else {
		r.sendsBelow, s.next = s.next, nil
	}
	s.Start()
	s.b, s.buf, s.dst, s.tag, s.plane, s.mode = b, buf, dst, tag, plane, mode
	s.isStarted, s.isCanceled, s.isReleased = false, false, false
	b.c.begin()
	b.unsent.Add(1)
	r.engine.Defer(s)
	return &s.Request, nil
}

// Run implements progress.Task: it starts the send below.
func (s *sendBelow) Run(t *progress.Tasks) {
	b, e := s.b, s.rank.team.process
	t.LockProcess(e)
	s.rank.engine.Lock()
	s.isStarted = true
	isCanceled, st := s.isCanceled, b.c.Withdrawn(s.plane)
	s.rank.engine.ReleaseUnder()
	if isCanceled {
		s.end(st)
	} else {
		r, err := b.handle.StartSend(s.buf, s.dst, s.tag, s.plane, s.mode)
		s.follow(r, err)
	}
	b.unsent.Add(-1)
	t.UnlockProcess(e)
}

// follow makes the send end like the request of the PML below. The process's lock is held.
func (s *sendBelow) follow(r *pml.Request, err error) {
	switch {
	case err != nil:
		st := pml.NoMessage()
		st.Err = err
		s.end(st)
	case r.Done():
		s.Completed(r)
	default:
		s.part = r
		r.Notify(s)
	}
}

// Completed implements pml.Notifier.
func (s *sendBelow) Completed(r *pml.Request) {
	s.part = nil
	st, _, _ := r.Take(r.Generation())
	s.end(st)
}

// end completes the send. The process's lock is held.
func (s *sendBelow) end(st pml.Status) {
	e, c := s.rank.engine, s.b.c
	e.Lock()
	s.Status, s.buf = st, pml.Buffer{}
	s.Finish()
	c.done()
	e.ReleaseUnder()
}

// Cancel implements pml.Owner.
func (s *sendBelow) Cancel() {
	if !s.isStarted {
		s.isCanceled = true // the task completes it
		return
	}
	s.tasks++
	s.rank.engine.Defer((*cancelBelow)(s))
}

// cancelBelow is the task that cancels a send in the PML below.
type cancelBelow sendBelow

// Run implements progress.Task.
func (k *cancelBelow) Run(t *progress.Tasks) {
	s := (*sendBelow)(k)
	process, e := s.rank.team.process, s.rank.engine
	t.LockProcess(process)
	if s.part != nil {
		s.part.CancelLocked()
	}
	t.UnlockProcess(process)
	e.Lock()
	if s.tasks--; s.tasks == 0 && s.isReleased {
		s.free()
	}
	t.Release(e)
}

// Release implements pml.Owner.
func (s *sendBelow) Release() {
	if s.tasks > 0 {
		s.isReleased = true
		return
	}
	s.free()
}

func (s *sendBelow) free() {
	r := s.rank
	s.b = nil
	s.next, r.sendsBelow = r.sendsBelow, s
}

// First implements pml.Owner.
func (s *sendBelow) First() progress.Source { return nil }
