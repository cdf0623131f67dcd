package sets

import (
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/join"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// MaxRanks is the number of ranks that a job ever assigns, since lists of ranks have a limit.
const MaxRanks = wire.MaxElements

// Options describe a job at its start, with ranks 0 to Size-1.
type Options struct {
	Size int
	// Largest number of present processes. 0 means Size.
	Most int
	// Name of the option that sets Most, for errors. "" means --max-ranks.
	MostOption string
	// Order passes an order to the launcher. It must not block, nor call the table. With nil, there are
	// no orders, and the launcher starts no processes.
	Order func(Order)
	// The launcher starts no processes, although it has an Order.
	StartsNone bool
	// Removed reports an ended process that a finished change has removed. The rules of Order hold. With nil, none
	// is reported.
	Removed func(rank uint32)
	// Observe receives the steps of operations and changes, in order. The rules of Order hold. With nil, they are not
	// reported.
	Observe func(Event)
	// Name of a launcher that starts no processes, and the remedy, for errors. An empty Remedy is ferry run.
	Launcher string
	Remedy   string
	// Rank 0 holds the table, so a change that removes it is refused.
	IsHeldByRank0 bool
}

// OrderKind is the kind of an Order.
type OrderKind uint8

// The kinds.
const (
	// Start N processes like Like, as ranks First to First+N-1, either all or none.
	StartProcs OrderKind = iota + 1
	// End the processes of Ranks, because their change is undone.
	EndProcs
	// The processes of Ranks leave. End those that remain.
	AwaitExit
)

// An Order is for the launcher. Those of one table keep their order.
type Order struct {
	Kind OrderKind
	// Rank with the program of the new processes. It may have ended.
	Like  int
	First int
	N     int
	Ranks []int
	// Why a change is undone, for the processes of EndProcs.
	Reason string
}

// A Table is the sets and changes of one job. New makes one.
type Table[W join.Waiter] struct {
	options Options
	// Lowest rank that was never assigned.
	nextRank uint32
	// Present processes, and those that have left and still run.
	procs        map[uint32]*proc[W]
	presentCount int
	// Ranks that left by an integrated change or belong to an undone one.
	leftRanks rankSet
	// Ranks without a failure at their end; see Excused.
	excusedRanks rankSet

	// mpi://WORLD of the initial processes.
	world *set[W]
	// By bootstrap.PsetKey.
	sets map[string]*set[W]
	// The same sets in the order of their creation.
	setsByAge []*set[W]
	// Sum of the lengths of names in sets.
	nameBytes int
	// Sum of the members of all sets.
	memberCount int
	// Serial of the latest set.
	lastSerial int
	tombstones tombstones

	// Unfinished changes.
	changes map[*change[W]]struct{}
	// By first rank of the order.
	startingByRank map[uint32]*change[W]
	// Sets with pending queries.
	queriedSets map[*set[W]]struct{}
	// Number of processes that have ended.
	endCount int
}

// proc is a process that has not ended.
type proc[W join.Waiter] struct {
	world *set[W]
	// mpi://SELF. nil before the first use.
	self *set[W]
	// Unfinished change with the process in its group.
	change *change[W]
	// Latest ended change with the process in its group, for late calls.
	lastChange *change[W]
}

// New returns the table of a job.
func New[W join.Waiter](opt Options) *Table[W] {
	opt.Most = max(opt.Most, opt.Size)
	t := &Table[W]{
		options: opt, procs: map[uint32]*proc[W]{}, sets: map[string]*set[W]{},
		changes: map[*change[W]]struct{}{}, startingByRank: map[uint32]*change[W]{}, queriedSets: map[*set[W]]struct{}{},
	}
	t.world = &set[W]{name: bootstrap.PsetWorld, creator: launcher}
	t.assign(t.world, opt.Size)
	return t
}

// Most is the largest number of present processes.
func (t *Table[W]) Most() int { return t.options.Most }

// Next returns the lowest rank that was never assigned. All processes that were ever ordered are
// below it.
func (t *Table[W]) Next() int { return int(t.nextRank) }

// World returns the first rank and the size of a process's mpi://WORLD; ok is false for a
// process that has ended.
func (t *Table[W]) World(rank uint32) (first, size int, ok bool) {
	p := t.procs[rank]
	if p == nil {
		return 0, 0, false
	}
	return int(p.world.ranks[0]), len(p.world.ranks), true
}

// Excused reports whether the job ignores a failure of a process. The process left by an integrated
// change, its change was undone or is not integrated yet, or a finished change has removed it after
// its end.
func (t *Table[W]) Excused(rank uint32) bool { return t.excusedRanks.has(rank) }

// Left reports whether a process left by an integrated change, or its change was undone.
func (t *Table[W]) Left(rank uint32) bool { return t.leftRanks.has(rank) }

// assign makes the next n ranks the members of world, which is their mpi://WORLD.
func (t *Table[W]) assign(world *set[W], n int) {
	world.ranks = make([]uint32, n)
	for i := range world.ranks {
		world.ranks[i] = t.nextRank
		t.procs[t.nextRank] = &proc[W]{world: world}
		t.nextRank++
	}
	t.presentCount += n
}

// isPresent reports whether a process has not ended, and has not left.
func (t *Table[W]) isPresent(rank uint32) bool { return t.procs[rank] != nil && !t.leftRanks.has(rank) }

// leaves makes a process one that has left.
func (t *Table[W]) leaves(rank uint32) {
	if t.isPresent(rank) {
		t.presentCount--
	}
	t.leftRanks.add(rank)
}

// drop removes the record of a process that has ended.
func (t *Table[W]) drop(rank uint32) {
	if t.isPresent(rank) {
		t.presentCount--
	}
	delete(t.procs, rank)
	t.endCount++
}

// ProcEnded records any end of a process. It undoes the unintegrated change of the process and
// those that it requested, finishes integrated changes that it requested, and answers queries. The
// calls of the process are withdrawn before.
func (t *Table[W]) ProcEnded(rank uint32) {
	p := t.procs[rank]
	if p == nil {
		return
	}
	t.drop(rank)
	if c := p.change; c != nil && c.state < stateIntegrated {
		t.undo(c, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{rank}})
	}
	for c := range t.changes {
		switch {
		case c.requester != int64(rank):
		case c.state == stateIntegrated:
			t.finish(c)
		case c.state < stateIntegrated: // No other process can withdraw it.
			t.undo(c, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{rank}})
		}
	}
	for s := range t.queriedSets {
		if s.has(rank) {
			t.wakeQueries(s)
		}
	}
	t.Disconnected(rank)
	if s := p.world; s != t.world && !t.isNamed(s) && !t.isWorld(s) {
		t.dropSet(s, *failf(wire.CodePset, "%q is deleted, and its members have ended", s.name))
	}
}

// Disconnected forgets the changes that queries have given a process, because the answers may not
// have arrived. The queries of its next connection are given them again.
func (t *Table[W]) Disconnected(rank uint32) {
	for c := range t.changes {
		delete(c.seenBy, rank)
	}
	for _, s := range t.setsByAge {
		delete(s.failedQueries, rank)
	}
	delete(t.world.failedQueries, rank)
	if p := t.procs[rank]; p != nil {
		delete(p.world.failedQueries, rank)
	}
}

// rankSet is a set of ranks.
type rankSet []uint64

func (b rankSet) has(rank uint32) bool {
	i := int(rank / 64)
	return i < len(b) && b[i]&(1<<(rank%64)) != 0
}

func (b *rankSet) add(rank uint32) {
	for len(*b) <= int(rank/64) {
		*b = append(*b, 0)
	}
	(*b)[rank/64] |= 1 << (rank % 64)
}

func (b rankSet) remove(rank uint32) {
	if b.has(rank) {
		b[rank/64] &^= 1 << (rank % 64)
	}
}
