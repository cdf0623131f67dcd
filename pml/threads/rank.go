package threads

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

const (
	name   = "threads"
	tagMax = math.MaxInt32
)

// Team is the goroutine ranks of one thread communicator in this process. It is a source of the
// process's engine.
type Team struct {
	ownIncarnation framework.Incarnation
	processEngine  *progress.Engine
	params         Params
	hooks          pml.Hooks // May be nil.
	// Indexed by endpoint.
	ranks []*Rank
	// nil without a PML below.
	below         Below
	runningCopies sync.WaitGroup

	// A leaf, which guards the fields below.
	mu                sync.Mutex
	commsByKey        map[cid.Extended]*shared
	commsByTeamCommID map[uint64]*shared
	lastID            uint64
	postponedRanks    []*Rank
	// postponedCount is len(postponedRanks), also read without mu.
	postponedCount atomic.Int32
}

// NewTeam makes n ranks of the process self, with the endpoints 0 to n-1. Their engines are
// those of ranks of the engine process. Members of other processes are Elsewhere.
func NewTeam(self framework.Incarnation, process *progress.Engine, n int, params Params) *Team {
	return NewTeamOver(self, process, n, params, nil, nil)
}

// NewTeamOver is NewTeam with a PML below, for members of other processes, and with hooks, which may be
// nil. Hooks of several ranks are called concurrently, each with the lock of its rank.
func NewTeamOver(self framework.Incarnation, process *progress.Engine, n int, params Params, hooks pml.Hooks, below Below) *Team {
	t := &Team{ownIncarnation: self, processEngine: process, params: params, hooks: hooks, below: below, commsByKey: map[cid.Extended]*shared{}, commsByTeamCommID: map[uint64]*shared{}}
	for endpoint := range n {
		r := &Rank{team: t, endpoint: uint16(endpoint), eagerLimit: int(params.EagerLimit), unexpectedLimit: int64(params.UnexpectedLimit), commTable: commTable{commByID: map[uint64]*comm{}}}
		r.activeTransfers = map[*offer]struct{}{}
		r.ring.init()
		r.engine = process.NewRank(r, &r.pollWord)
		r.deferredPool = base.NewDeferredPool(r.engine, process)
		t.ranks = append(t.ranks, r)
	}
	process.Add(t)
	return t
}

// Rank returns the rank of an endpoint.
func (t *Team) Rank(endpoint int) *Rank { return t.ranks[endpoint] }

// Close ends the team. Pending operations fail with ErrClosed. No call is in progress.
func (t *Team) Close() {
	err := fmt.Errorf("%w: the thread communicator's ranks have finished", framework.ErrClosed)
	for _, r := range t.ranks {
		r.failAll(err)
	}
	for _, r := range t.ranks {
		r.closeBelow()
	}
	t.processEngine.Remove(t)
	t.runningCopies.Wait()
	for _, r := range t.ranks {
		r.deliver(nil) // Completion cells of the last copies.
		r.engine.Close()
	}
}

// failAll fails all unmatched operations and completes the others. No call of the rank is in
// progress.
func (r *Rank) failAll(err error) {
	r.engine.Lock()
	defer r.engine.Release()
	r.drainAll()
	for _, c := range r.commByID {
		for plane := range c.queues {
			c.abort(pml.Plane(plane), err)
		}
		c.recheckWaiters()
	}
	r.offeredSends.each((*send).endClaimed)
	r.announceNotify()
}

// Caps returns the capabilities of messages between goroutine ranks.
func (t *Team) Caps() pml.Caps {
	steps := []int{inlineMax, int(t.params.EagerLimit), chunkSize, 2 * chunkSize}
	slices.Sort(steps)
	return pml.Caps{TagMax: tagMax, MaxMessage: math.MaxInt64, Withdraw: true, Arrivals: true, Steps: steps}
}

// Route returns the route between any two ranks.
func (t *Team) Route() pml.Route {
	return pml.Route{PML: name, Transport: name, Device: "memory of the process", Used: true}
}

// postpone makes the process's engine drain the ring of a rank that is locked, or that has a next cell which is claimed
// and not published.
func (t *Team) postpone(r *Rank) {
	t.queuePostponed(r)
	t.processEngine.Bell().Ring()
}

// queuePostponed appends a rank to the postponed ones, unless it is among them.
func (t *Team) queuePostponed(r *Rank) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !r.isPostponed {
		r.isPostponed = true
		t.postponedRanks = append(t.postponedRanks, r)
		t.postponedCount.Store(int32(len(t.postponedRanks)))
	}
}

// takePostponed removes and returns the postponed ranks.
func (t *Team) takePostponed() []*Rank {
	t.mu.Lock()
	defer t.mu.Unlock()
	ranks := t.postponedRanks
	t.postponedRanks = nil
	t.postponedCount.Store(0)
	for _, r := range ranks {
		r.isPostponed = false
	}
	return ranks
}

// Poll implements progress.Source. It drains the rings of postponed ranks. Those that it cannot drain
// stay postponed, without a wake-up, see Due.
func (t *Team) Poll() (n int) {
	if t.postponedCount.Load() == 0 {
		return 0
	}
	for _, r := range t.takePostponed() {
		if !r.engine.TryLock() {
			t.queuePostponed(r)
			continue
		}
		b := r.backlog()
		n += r.drainTo(b)
		if !r.isConsumed(b) {
			t.queuePostponed(r)
		}
		r.engine.ReleaseUnder()
	}
	return n
}

// postponedRetry is the time between two attempts to drain a postponed rank.
const postponedRetry = 100 * time.Microsecond

// Due implements progress.Timed.
func (t *Team) Due() time.Duration {
	if t.postponedCount.Load() == 0 {
		return 0
	}
	return postponedRetry
}

// Rank is the message queue of one goroutine rank. It is the first source of its engine.
type Rank struct {
	ring
	// It is set while a wait polls for the rank.
	pollWord progress.PollWord
	// mustNotify is 1 if an operation with a notifier may be pending (pml.Request.Notify). It is written
	// under the lock, and 1 may be out of date.
	mustNotify atomic.Uint32
	// pressureBytes is the memory of unmatched and overflowing messages.
	pressureBytes atomic.Int64
	freeMessages  freeMessages

	_               [64]byte
	team            *Team
	endpoint        uint16
	eagerLimit      int
	unexpectedLimit int64
	engine          *progress.Engine
	// Set while in Team.postponedRanks. Team.mu guards it.
	isPostponed bool

	// The lock guards all fields below.

	commTable
	freeRequests
	deferredPool *base.DeferredPool
	// receivesBelow counts calls of below.recvDirect. The process's lock guards it.
	receivesBelow uint
	largeMessages
	// pendingCount counts incomplete operations and claimed messages.
	pendingCount int
	isDraining   bool
	stats        pml.PeerStats
}

// commTable has the communicators of a rank.
type commTable struct {
	// commByID is keyed by shared.teamCommID, and lastComm is that of the last message.
	commByID map[uint64]*comm
	lastComm *comm
	// earlyArrivals has messages in order of arrival.
	earlyArrivals []*message
}

// freeRequests has the free lists of a rank.
type freeRequests struct {
	freeReceives *receive
	freeSends    *send
}

// largeMessages has the incomplete operations of a rank with an offer.
type largeMessages struct {
	// offeredSends are incomplete. activeTransfers has matched receives with an incomplete payload.
	offeredSends    sendList
	activeTransfers map[*offer]struct{}
}

// Engine returns the rank's engine.
func (r *Rank) Engine() *progress.Engine { return r.engine }

// Stats returns the statistics of the messages that the rank has received.
func (r *Rank) Stats() pml.PeerStats {
	r.deliver(nil)
	r.engine.Lock()
	defer r.engine.Unlock()
	st := r.stats
	st.Peer, st.Transport = r.team.ownIncarnation, name
	return st
}

// Poll implements progress.Source.
func (r *Rank) Poll() (n int) {
	if r.peek() == nil && r.isSpilling.Load() == 0 && (r.pollWord.Polled() || !r.hasCells()) {
		return 0
	}
	if r.pollWord.Polled() {
		return r.drain()
	}
	return r.drainAll() // This may be the last poll of a wait.
}

// announceNotify announces that an operation with a notifier is pending, and drains messages that arrived
// before senders could know. Lock held.
func (r *Rank) announceNotify() {
	if r.pendingCount > 0 && r.mustNotify.Load() == 0 {
		r.mustNotify.Store(1)
		if !r.pollWord.Polled() {
			r.drainAll()
		}
	}
}

// needsDelivery reports whether a sender has to drain the ring after publishing a cell. If the rank
// neither waits nor is notified, its next call drains the ring.
func (r *Rank) needsDelivery() bool {
	return (r.pollWord.HasParked() || r.mustNotify.Load() != 0) && !r.pollWord.Polled()
}

// lockAttempts is the number of attempts of a sender to acquire a rank's lock. They take longer than a running
// goroutine holds the lock.
const lockAttempts = 64

// tryLock reports whether it has acquired the lock. A holder may never release it.
func (r *Rank) tryLock() bool {
	for range lockAttempts {
		if r.engine.TryLock() {
			return true
		}
		cpu.Pause()
	}
	return false
}

// deliver drains the ring for a sender that has published a cell. If the lock is busy, or another sender
// has claimed an earlier cell and not published it, the process's engine drains the ring later. x is nil outside of
// tasks. No rank's lock is held.
func (r *Rank) deliver(x *progress.Tasks) {
	if !r.tryLock() {
		r.team.postpone(r)
		return
	}
	b := r.backlog()
	r.drainTo(b)
	isBlocked := !r.isConsumed(b)
	if r.pendingCount == 0 && r.mustNotify.Load() != 0 {
		r.mustNotify.Store(0)
	}
	if x != nil {
		x.Release(r.engine)
	} else {
		r.engine.Release()
	}
	if isBlocked {
		r.team.postpone(r)
	}
}

// deliverLater is deliver when the lock of r, which is held, has been released.
func (r *Rank) deliverLater(to *Rank) {
	if to.needsDelivery() {
		r.engine.Defer((*delivery)(to))
	}
}

// delivery is the task that drains a rank's ring.
type delivery Rank

// Run implements progress.Task.
func (d *delivery) Run(x *progress.Tasks) { (*Rank)(d).deliver(x) }
