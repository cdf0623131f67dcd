package threads

import (
	"context"
	"slices"
	"sync"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// Communicators with members of other processes. Each rank has a handle in the PML below, and watches
// all planes of it, so that its queues have the messages of all members. The lock of the process's
// engine guards the handle below, and is acquired before the rank's.

// A Below is the PML below a team, for members of other processes. It is safe for concurrent use.
type Below interface {
	// AddComm creates a rank's handle. Members of this process are in spec.Elsewhere. Local,
	// Agreed and Indices are not set.
	AddComm(spec pml.CommSpec) (pml.Comm, error)
	// Join combines a rank's queue, which has the messages of this process, with its handle in a PML
	// below that cannot be watched and can be called under the rank's lock. spec is that of AddComm. If
	// Join fails, the caller closes both handles.
	Join(spec pml.CommSpec, queue, below pml.Comm) (pml.Comm, error)
}

// below is the part of a handle that concerns members of other processes.
type below struct {
	c         *comm
	commBelow *base.Deferring
	// watchable is commBelow, and nextReceiver too, or nil if it is none.
	watchable    pml.Watchable
	nextReceiver pml.NextReceiver
	planes       [pml.Planes]watchedPlane

	// changeCount counts the calls of Changed. While it is 0, messages of all members may come. The
	// rank's lock guards it.
	changeCount int
}

// watchedPlane is the watcher of one plane, and the task that checks whether messages can come.
type watchedPlane struct {
	below *below
	plane pml.Plane
	// uncheckedSources are the sources to check. The rank's lock guards it.
	uncheckedSources []int
}

func newBelow(c *comm, handle pml.Comm, w pml.Watchable) *below {
	b := &below{c: c, commBelow: base.NewDeferring(handle, c.rank.deferredPool), watchable: w}
	b.nextReceiver, _ = framework.As[pml.NextReceiver](handle)
	for plane := range b.planes {
		b.planes[plane] = watchedPlane{below: b, plane: pml.Plane(plane)}
	}
	return b
}

// watch passes the messages of all planes to the rank's queues. No lock is held.
func (b *below) watch() {
	e := b.c.rank.team.processEngine
	e.Lock()
	defer e.Unlock()
	for plane := range b.planes {
		b.watchable.Watch(pml.Plane(plane), &b.planes[plane])
	}
}

// unwatch is the task that ends the watch of a closed communicator without pending operations.
type unwatch below

// Run implements progress.Task.
func (u *unwatch) Run(t *progress.Tasks) {
	e := u.c.rank.team.processEngine
	t.LockProcess(e)
	for plane := range u.planes {
		u.watchable.Watch(pml.Plane(plane), nil)
	}
	t.UnlockProcess(e)
}

// isRemote reports whether a rank, or with AnySource some rank, is of another process.
func (b *below) isRemote(src int) bool { return src == pml.AnySource || b.c.shared.ranks[src] == nil }

// Eager implements pml.Watcher.
func (w *watchedPlane) Eager(src, tag int, payload []byte) bool {
	c := w.below.c
	e := c.rank.engine
	e.Lock()
	node := c.queues[w.plane].Arrive(&c.peers.get(src).match[w.plane], tag)
	if node != nil {
		node.Owner.deliverBelow(src, tag, payload)
	}
	e.ReleaseUnder()
	return node != nil
}

// Arrived implements pml.Watcher.
func (w *watchedPlane) Arrived(k pml.Claimed, st pml.Status) pml.Unmatched {
	c := w.below.c
	e := c.rank.engine
	e.Lock()
	p := &c.peers.get(st.Source).match[w.plane]
	node := c.queues[w.plane].Arrive(p, st.Tag)
	if node != nil {
		node.Owner.Resume()
		e.ReleaseUnder()
		node.Owner.startBelow(k)
		return nil
	}
	if c.IsClosed() {
		e.ReleaseUnder()
		k.Drop()
		return nil
	}
	m := newClaimedMessage(k, st)
	m.c, m.plane, m.isQueued = c, w.plane, true
	c.queues[w.plane].AddUnexpected(p, &m.matchEntry)
	if len(c.blockedProbes) > 0 {
		c.wakeProbes()
	}
	e.ReleaseUnder()
	return m
}

// claimedMessages keeps the messages of other processes for reuse.
var claimedMessages sync.Pool

// newClaimedMessage returns a message that the PML below has passed.
func newClaimedMessage(k pml.Claimed, st pml.Status) *message {
	m, ok := claimedMessages.Get().(*message)
	if !ok {
		m = new(message)
		m.matchEntry.Owner = m
	}
	m.claimed, m.claimedBytes = k, int64(st.Bytes)
	m.matchEntry.Source, m.matchEntry.Tag = st.Source, st.Tag
	return m
}

// freeClaimed returns a message to the pool that was started, dropped, or returned to its sender.
func (m *message) freeClaimed() {
	m.c, m.claimed = nil, nil
	claimedMessages.Put(m)
}

// Return implements pml.Unmatched.
func (m *message) Return() bool {
	e := m.c.rank.engine
	e.Lock()
	isQueued := m.isQueued
	if isQueued {
		m.c.unqueue(m)
	}
	e.ReleaseUnder()
	if isQueued {
		m.freeClaimed()
	}
	return isQueued
}

// receive is Recv from a rank of another process.
func (b *below) receive(ctx context.Context, buf pml.Buffer, src, tag int, plane pml.Plane) (pml.Status, error) {
	if buf.Layout() == nil {
		if came, n, ok := b.recvDirect(buf.Bytes, src, tag, plane); ok {
			st := pml.Status{Source: src, Tag: came, Bytes: n}
			if n > len(buf.Bytes) {
				st.Err = base.Truncated(int64(n), int64(len(buf.Bytes)))
			}
			return st, st.Err
		}
	}
	c := b.c
	e := c.rank.engine
	e.Lock()
	st, err := c.postReceive(buf, src, tag, plane).Conclude(ctx)
	e.Release()
	return st, err
}

// receivesPerProgress is the number of receives in a row that poll one path only.
const receivesPerProgress = 64

// recvDirect is a blocking receive from a rank of another process whose message arrives soon. The
// payload is copied once, and no request is created. It returns false if something else arrives first, or
// if another goroutine polls for the process or the rank. No lock is held.
func (b *below) recvDirect(buf []byte, src, tag int, plane pml.Plane) (came, bytes int, ok bool) {
	c, r := b.c, b.c.rank
	process := r.team.processEngine
	if b.nextReceiver == nil || !process.TryLock() {
		return 0, 0, false
	}
	if r.receivesBelow++; r.receivesBelow%receivesPerProgress == 0 {
		process.Progress()
	}
	r.engine.Lock()
	isIdle := r.engine.PollBudget() > 1 && !c.isBarred[plane] && c.queues[plane].IsIdle(&c.peers.get(src).match[plane])
	r.engine.Unlock()
	if isIdle {
		came, bytes, ok = b.nextReceiver.ReceiveNext(buf, src, tag, plane)
	}
	process.Unlock()
	return came, bytes, ok
}

// dropBelow is the task that drops a message of another process.
type dropBelow message

// Run implements progress.Task.
func (d *dropBelow) Run(t *progress.Tasks) {
	m := (*message)(d)
	e := m.c.rank.team.processEngine
	t.LockProcess(e)
	m.claimed.Drop()
	t.UnlockProcess(e)
	m.freeClaimed()
}

// deliverBelow completes a receive with an eager message of another process. The locks of the
// process and of the rank are held.
func (x *receive) deliverBelow(src, tag int, payload []byte) {
	x.Status.Source, x.Status.Tag, x.Status.Bytes = src, tag, len(payload)
	x.Status.Err = base.Deliver(x.buf, payload)
	x.finish()
}

// takeBelow starts the transfer of a matched message of another process. The rank's lock is
// held.
func (x *receive) takeBelow(m *message) {
	x.Resume()
	x.matchedBelow = m
	x.rank.engine.Defer((*startBelow)(x))
}

// startBelow is the task that starts the transfer.
type startBelow receive

// Run implements progress.Task.
func (s *startBelow) Run(t *progress.Tasks) {
	x := (*receive)(s)
	m, e := x.matchedBelow, x.rank.team.processEngine
	x.matchedBelow = nil
	t.LockProcess(e)
	x.startBelow(m.claimed)
	t.UnlockProcess(e)
	m.freeClaimed()
}

// startBelow starts the transfer of a matched message. The receive completes with the request of the PML
// below. The process's lock is held.
func (x *receive) startBelow(k pml.Claimed) {
	r, err := k.Start(x.buf)
	switch {
	case err != nil:
		x.endBelow(pml.Status{Err: err})
	case r.Done():
		x.Completed(r)
	default:
		r.Notify(x)
	}
}

// Completed implements pml.Notifier.
func (x *receive) Completed(r *pml.Request) {
	st, _, _ := r.Take(r.Generation())
	x.endBelow(st)
}

// endBelow completes a receive with a status of the PML below. The process's lock is held.
func (x *receive) endBelow(st pml.Status) {
	e := x.rank.engine
	e.Lock()
	x.Status = st
	x.finish()
	e.ReleaseUnder()
}

// Changed implements pml.Watcher.
func (w *watchedPlane) Changed() {
	c := w.below.c
	e := c.rank.engine
	e.Lock()
	w.below.changeCount++
	c.wakeProbes()
	sources := w.sources()
	e.ReleaseUnder()
	w.check(sources)
}

// sources returns the ranks of other processes with posted receives, and AnySource if there are receives
// from any source. Lock held.
func (w *watchedPlane) sources() (all []int) {
	c := w.below.c
	q := &c.queues[w.plane]
	if q.FirstPosted(nil) != nil {
		all = append(all, pml.AnySource)
	}
	c.peers.each(func(p *peer) {
		if n := q.FirstPosted(&p.match[w.plane]); n != nil && w.below.isRemote(n.Source) {
			all = append(all, n.Source)
		}
	})
	return all
}

// scheduleCheck schedules a check whether a message for a new receive can come. Lock held.
func (w *watchedPlane) scheduleCheck(src int) {
	if len(w.uncheckedSources) == 0 {
		w.below.c.rank.engine.Defer(w)
	}
	if !slices.Contains(w.uncheckedSources, src) {
		w.uncheckedSources = append(w.uncheckedSources, src)
	}
}

// Run implements progress.Task.
func (w *watchedPlane) Run(t *progress.Tasks) {
	r := w.below.c.rank
	e := r.team.processEngine
	t.LockProcess(e)
	r.engine.Lock()
	sources := w.uncheckedSources
	w.uncheckedSources = nil
	r.engine.ReleaseUnder()
	w.check(sources)
	t.UnlockProcess(e)
}

// check fails the receives that no message can reach. The process's lock is held. The rank's lock is not,
// because the PML below may complete requests.
func (w *watchedPlane) check(sources []int) {
	c := w.below.c
	e := c.rank.engine
	for _, src := range sources {
		err := w.below.watchable.SourceError(src, w.plane)
		if err == nil {
			continue
		}
		e.Lock()
		c.rank.drainTo(c.rank.backlog()) // It may have a message for a receive from any source.
		var p *match.Peer[receive, message]
		if src != pml.AnySource {
			p = &c.peers.get(src).match[w.plane]
		}
		q := &c.queues[w.plane]
		for n := q.FirstPosted(p); n != nil; n = q.FirstPosted(p) {
			q.Cancel(n)
			n.Owner.fail(err)
		}
		e.ReleaseUnder()
	}
}

// sourceError is pml.Watchable's SourceError for probes. The rank's lock is held, and released meanwhile. No
// change has occurred between the result and the return.
func (b *below) sourceError(src int, plane pml.Plane) (err error) {
	r := b.c.rank
	for seen := 0; err == nil && seen != b.changeCount; {
		seen = b.changeCount
		r.engine.Release()
		r.team.processEngine.Lock()
		err = b.watchable.SourceError(src, plane)
		r.team.processEngine.Unlock()
		r.engine.Lock()
	}
	return err
}

// closeBelow closes the handles with members of other processes when the team ends, so that no more
// messages come to the rank.
func (r *Rank) closeBelow() {
	r.engine.Lock()
	var all []*comm
	for _, c := range r.commByID {
		if c.below != nil {
			all = append(all, c)
		}
	}
	r.engine.Release()
	for _, c := range all {
		c.Close()
	}
}
