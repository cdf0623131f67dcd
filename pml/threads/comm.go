package threads

import (
	"fmt"
	"sync/atomic"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// shared is the part of a communicator that its ranks in this process share.
type shared struct {
	key        cid.Extended
	teamCommID uint64
	// ranks is indexed by rank in the communicator, with nil for ranks of other processes.
	ranks []*Rank
	// members are those of CommSpec, and localRanks has those of this process. All handles below
	// share both.
	members    pml.Members
	localRanks *pml.RankSet
	// hasBelow is set if the PML below has members.
	hasBelow bool

	// Team.mu guards these fields. stageByRank has the ranks with a present or former handle,
	// localCount is the number of members of this process, and closedCount that of closed handles.
	stageByRank map[*Rank]stage
	localCount  int
	closedCount int
}

// stage is the state of a rank's handle.
type stage uint8

const (
	missing stage = iota
	open
	closed
)

// comm is a rank's handle of a communicator.
type comm struct {
	rank   *Rank
	shared *shared
	// noSends has a bit for each plane without sends, and hooked.
	noSends atomic.Uint32

	// The rank's lock guards all fields below.
	base.State
	base.Probes
	peers  peers
	queues [pml.Planes]match.Queues[receive, message]
	// An arrival completes them.
	blockedProbes []*progress.Completion
	// isBarred is set for planes without new receives, because the communicator is closed or a watcher
	// matches the messages.
	isBarred [pml.Planes]bool
	watchers [pml.Planes]pml.Watcher
	// below is nil if all members are of this process.
	below *below
}

// peer is the state of another rank of a communicator, created at its first use.
type peer struct {
	match [pml.Planes]match.Peer[receive, message]
}

const peersPerPage = 64

// peers is a table in two levels, because a rank of 10,000 exchanges messages with a few others.
type peers []*[peersPerPage]*peer

func newPeers(n int) peers { return make(peers, (n+peersPerPage-1)/peersPerPage) }

func (t peers) get(rank int) *peer {
	page := t[rank/peersPerPage]
	if page == nil {
		page = new([peersPerPage]*peer)
		t[rank/peersPerPage] = page
	}
	p := page[rank%peersPerPage]
	if p == nil {
		p = new(peer)
		page[rank%peersPerPage] = p
	}
	return p
}

// each calls f for the peers in use.
func (t peers) each(f func(*peer)) {
	for _, page := range t {
		if page == nil {
			continue
		}
		for _, p := range page {
			if p != nil {
				f(p)
			}
		}
	}
}

// AddComm creates the rank's handle of a communicator. Members of other processes are in Elsewhere of the
// spec, or belong to the PML below. Early arrivals are delivered. Local, Agreed and Indices of the spec are
// not used.
func (r *Rank) AddComm(spec pml.CommSpec) (pml.Comm, error) {
	s, err := r.team.join(r, &spec)
	if err != nil {
		return nil, err
	}
	spec.Members = s.members // The caller's may be a copy.
	c := &comm{rank: r, shared: s, State: base.State{Spec: spec}, peers: newPeers(len(s.ranks))}
	c.Probes = base.NewProbes(r.engine, c)
	if c.isHooked() {
		c.noSends.Store(hooked)
	}
	if s.hasBelow {
		return r.addBelow(c)
	}
	r.open(c)
	return c, nil
}

// open registers a handle and delivers its early arrivals.
func (r *Rank) open(c *comm) {
	r.engine.Lock()
	r.commByID[c.shared.teamCommID] = c
	r.deliverEarly(c)
	r.engine.Release()
}

// addBelow is AddComm of a communicator with members of the PML below.
func (r *Rank) addBelow(c *comm) (pml.Comm, error) {
	spec := c.Spec
	spec.Members, spec.Elsewhere = c.shared.members, c.shared.localRanks
	handle, err := r.team.below.AddComm(spec)
	if err != nil {
		r.team.unjoin(r, c.shared)
		return nil, err
	}
	watchable, ok := framework.As[pml.Watchable](handle)
	if ok {
		c.below = newBelow(c, handle, watchable)
		r.open(c)
		c.below.watch()
		return c, nil
	}
	r.open(c)
	joined, err := r.team.below.Join(spec, c, base.NewDeferring(handle, r.deferredPool))
	if err != nil {
		handle.Close()
		c.Close()
	}
	return joined, err
}

// join returns the shared part of a communicator, and marks the rank's handle as open.
func (t *Team) join(r *Rank, spec *pml.CommSpec) (*shared, error) {
	refuse := func(sentinel error, format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", sentinel, name, fmt.Sprintf(format, args...))
	}
	if spec.Rank < 0 || spec.Rank >= spec.Members.Len() || spec.Members.Member(spec.Rank) != (pml.Member{Incarnation: t.ownIncarnation, Endpoint: r.endpoint}) {
		return nil, refuse(framework.ErrGroup, "rank %d is not endpoint %d of this process", spec.Rank, r.endpoint)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.commsByKey[spec.ID]
	if s == nil {
		s = &shared{key: spec.ID, ranks: make([]*Rank, spec.Members.Len()), members: spec.Members}
		here := pml.NewRankSet(len(s.ranks))
		for rank := range s.ranks {
			m := spec.Members.Member(rank)
			isHere := m.Incarnation == t.ownIncarnation
			switch {
			case isHere && int(m.Endpoint) >= len(t.ranks):
				return nil, refuse(framework.ErrGroup, "rank %d is endpoint %d of %d", rank, m.Endpoint, len(t.ranks))
			case isHere:
				here.Add(rank)
				s.ranks[rank] = t.ranks[m.Endpoint]
				s.localCount++
			case spec.IsElsewhere(rank):
			case t.below == nil:
				return nil, refuse(framework.ErrUnsupported, "rank %d is of another process", rank)
			default:
				s.hasBelow = true
			}
		}
		if s.hasBelow {
			s.localRanks = here
		}
		t.lastID++
		s.teamCommID, s.stageByRank = t.lastID, make(map[*Rank]stage, s.localCount)
		t.commsByKey[s.key], t.commsByTeamCommID[s.teamCommID] = s, s
	}
	if s.stageByRank[r] != missing || len(s.ranks) != spec.Members.Len() {
		return nil, refuse(framework.ErrGroup, "communicator %v exists", spec.ID)
	}
	s.stageByRank[r] = open
	return s, nil
}

// leave marks a rank's handle as closed. The rank's lock is held.
func (t *Team) leave(r *Rank, s *shared) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.stageByRank[r] = closed
	if s.closedCount++; s.closedCount == s.localCount {
		delete(t.commsByKey, s.key)
		delete(t.commsByTeamCommID, s.teamCommID)
	}
}

// unjoin undoes join.
func (t *Team) unjoin(r *Rank, s *shared) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(s.stageByRank, r); len(s.stageByRank) == 0 {
		delete(t.commsByKey, s.key)
		delete(t.commsByTeamCommID, s.teamCommID)
	}
}

// mayOpen reports whether a rank will have a handle of the communicator of a message.
func (t *Team) mayOpen(r *Rank, id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.commsByTeamCommID[id]
	return s != nil && s.stageByRank[r] != closed
}

// Close implements pml.Comm.
func (c *comm) Close() {
	if b := c.below; b != nil {
		b.commBelow.Close()
	}
	r := c.rank
	r.engine.Lock()
	defer r.engine.Release()
	if !c.Closing.Close() {
		return
	}
	c.noSends.Or(1<<pml.Planes - 1)
	r.drainAll()
	for plane := range c.queues {
		c.isBarred[plane] = true
		c.queues[plane].Unexpected(func(m *match.Message[message]) {
			c.unqueue(m.Owner)
			r.discard(m.Owner)
		})
	}
	c.wakeProbes()
	if c.Pending == 0 {
		c.removeIfClosed()
		return
	}
	r.announceNotify() // Senders deliver the completion cells, since the rank may make no further call.
}

// removeIfClosed removes a closed handle without pending operations. Later calls have no effect. Lock held.
func (c *comm) removeIfClosed() {
	r := c.rank
	if r.commByID[c.shared.teamCommID] != c {
		return
	}
	delete(r.commByID, c.shared.teamCommID)
	if r.lastComm == c {
		r.lastComm = nil
	}
	r.team.leave(r, c.shared)
	if c.below != nil {
		r.engine.Defer((*unwatch)(c.below))
	}
}

// Abort implements pml.Comm.
func (c *comm) Abort(plane pml.Plane, err error) {
	if c.abortOnce(plane, err) && c.below != nil {
		c.below.commBelow.Abort(plane, err)
	}
}

// abortOnce aborts the rank's own queue. It returns false if the plane was aborted before.
func (c *comm) abortOnce(plane pml.Plane, err error) bool {
	r := c.rank
	r.engine.Lock()
	defer r.engine.Release()
	if c.Aborted[plane] != nil {
		return false
	}
	c.abort(plane, err)
	c.recheckWaiters()
	return true
}

// abort fails the unmatched operations on a plane, and later ones. Lock held.
func (c *comm) abort(plane pml.Plane, err error) {
	c.Aborted[plane] = err
	c.noSends.Or(1 << plane)
	c.cancelAll(plane)
}

// cancelAll withdraws the unmatched operations on a plane. Notifiers may cancel and start other
// operations meanwhile. Lock held.
func (c *comm) cancelAll(plane pml.Plane) {
	q := &c.queues[plane]
	cancelPosted := func(from *match.Peer[receive, message]) {
		for n := q.FirstPosted(from); n != nil; n = q.FirstPosted(from) {
			n.Owner.Cancel()
		}
	}
	cancelPosted(nil)
	c.peers.each(func(p *peer) { cancelPosted(&p.match[plane]) })
	c.rank.offeredSends.each(func(s *send) {
		if s.c == c && s.plane == plane {
			s.Cancel()
		}
	})
}

// SourceError implements pml.Watchable. Lock held.
func (c *comm) SourceError(_ int, plane pml.Plane) error { return c.Aborted[plane] }

// Watch implements pml.Watchable. A watched plane keeps its communicator, as pending
// operations do. Lock held.
func (c *comm) Watch(plane pml.Plane, w pml.Watcher) {
	if w == nil {
		c.watchers[plane] = nil
		c.finishOperation()
		return
	}
	c.isBarred[plane] = true
	c.startOperation()
	// A call of the watcher may drain the ring. Until the queue is empty, messages that arrive
	// are queued behind it, and those that are withdrawn leave it.
	for q := &c.queues[plane]; ; {
		first := q.FirstUnexpected()
		if first == nil {
			break
		}
		c.unqueue(first.Owner)
		c.passToWatcher(first.Owner, w)
	}
	c.watchers[plane] = w
	c.wakeProbes()
	if c.Aborted[plane] != nil {
		w.Changed()
	}
	c.rank.announceNotify()
}

// passToWatcher passes a message that is in no queue to a watcher. Lock held.
func (c *comm) passToWatcher(m *message, w pml.Watcher) {
	if m.offer != nil && !m.offer.take(offerHandedOver) {
		return
	}
	c.startOperation()
	m.watcherClaim = base.MakeClaimed(c.rank.engine, m)
	// The watcher may start or drop the message at once, after which m may be another one.
	if u := w.Arrived(&m.watcherClaim, m.status()); u != nil {
		m.unmatched = u
	}
}

// returnOffer returns an offer to its sender, which withdraws it, if a watcher has it and it has not
// matched. Lock held.
func (r *Rank) returnOffer(m *message) {
	if m.unmatched != nil && m.unmatched.Return() {
		m.unmatched = nil
		m.offer.state.Store(offerMatched)
		r.dispose(m, kindReturned)
		m.c.finishOperation()
	}
	m.offer.drop()
}

// barredError returns the error of receives on a barred plane.
func (c *comm) barredError() error {
	if c.IsClosed() {
		return framework.ErrClosed
	}
	return pml.ErrWatched
}

// recheckWaiters re-evaluates blocked probes and watchers after an abort. Lock held.
func (c *comm) recheckWaiters() {
	c.wakeProbes()
	for _, w := range c.watchers {
		if w != nil {
			w.Changed()
		}
	}
}

// wakeProbes wakes the blocked probes. Lock held.
func (c *comm) wakeProbes() {
	for _, p := range c.blockedProbes {
		if !p.Done() {
			c.rank.engine.Complete(p)
		}
	}
}

// startOperation counts a pending operation, claimed message or watched plane. Lock held.
func (c *comm) startOperation() {
	c.Pending++
	c.rank.pendingCount++
}

// finishOperation ends what startOperation has counted. Lock held.
func (c *comm) finishOperation() {
	c.rank.pendingCount--
	if c.State.FinishOperation() {
		c.removeIfClosed()
	}
}
