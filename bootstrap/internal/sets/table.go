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
	Most int // Largest number of present processes; 0: Size.
	// Order passes an order to the launcher. It must not block, nor call the table. Nil: the
	// launcher starts no processes.
	Order func(Order)
	// Removed reports an ended process that a finished change has removed. The rules of Order hold. With nil, none
	// is reported.
	Removed  func(rank uint32)
	Launcher string // Name of a launcher without Order, for errors.
}

// OrderKind is the kind of an Order.
type OrderKind uint8

// The kinds.
const (
	StartProcs OrderKind = iota + 1 // Start N processes like Like, as ranks First to First+N-1: all of them, or none.
	EndProcs                        // End the processes of Ranks, whose change is undone.
	AwaitExit                       // The processes of Ranks leave by themselves; end those that stay.
)

// An Order is for the launcher. Those of one table keep their order.
type Order struct {
	Kind  OrderKind
	Like  int // Rank whose program the new processes run. It may have ended.
	First int
	N     int
	Ranks []int
}

// A Table is the sets and changes of one job. New makes one.
type Table[W join.Waiter] struct {
	opt  Options
	next uint32 // Lowest rank that was never assigned.
	// Present processes, and those that have left and still run.
	procs   map[uint32]*proc[W]
	present int  // Number of present processes.
	left    bits // Ranks that left by an integrated change, or whose change was undone.
	excused bits // Ranks whose end is no failure; see Excused.

	world     *set[W]            // mpi://WORLD of the first processes.
	sets      map[string]*set[W] // By bootstrap.PsetKey.
	ordered   []*set[W]          // The same, in the order of their creation.
	nameBytes int                // Of the names in sets.
	members   int                // Of all sets together.
	serial    int                // Of the latest set.
	deleted   tombstones

	changes  map[*change[W]]struct{} // Unfinished ones.
	starting map[uint32]*change[W]   // By first rank of the order.
	waiting  map[*set[W]]struct{}    // Sets with pending queries.
	ends     int                     // Number of processes that have ended.
}

// proc is a process that has not ended.
type proc[W join.Waiter] struct {
	world  *set[W]
	self   *set[W]    // mpi://SELF; nil before its first use.
	change *change[W] // Unfinished one whose group has the process.
	last   *change[W] // Latest ended one whose group had the process, for late calls.
}

// New returns the table of a job.
func New[W join.Waiter](opt Options) *Table[W] {
	opt.Most = max(opt.Most, opt.Size)
	t := &Table[W]{
		opt: opt, procs: map[uint32]*proc[W]{}, sets: map[string]*set[W]{},
		changes: map[*change[W]]struct{}{}, starting: map[uint32]*change[W]{}, waiting: map[*set[W]]struct{}{},
	}
	t.world = &set[W]{name: bootstrap.PsetWorld, creator: launcher}
	t.assign(t.world, opt.Size)
	return t
}

// Most is the largest number of present processes.
func (t *Table[W]) Most() int { return t.opt.Most }

// Next is the lowest rank that was never assigned: all processes ever ordered are below.
func (t *Table[W]) Next() int { return int(t.next) }

// World returns the first rank and the size of a process's mpi://WORLD; ok is false for a
// process that has ended.
func (t *Table[W]) World(rank uint32) (first, size int, ok bool) {
	p := t.procs[rank]
	if p == nil {
		return 0, 0, false
	}
	return int(p.world.ranks[0]), len(p.world.ranks), true
}

// Excused reports whether the job ignores a failure of a process: it left by an
// integrated change, its change was undone or has not been integrated yet, or a finished
// change has removed it after its end.
func (t *Table[W]) Excused(rank uint32) bool { return t.excused.has(rank) }

// Left reports whether a process left by an integrated change, or its change was undone.
func (t *Table[W]) Left(rank uint32) bool { return t.left.has(rank) }

// assign makes the next n ranks the members of world, which is their mpi://WORLD.
func (t *Table[W]) assign(world *set[W], n int) {
	world.ranks = make([]uint32, n)
	for i := range world.ranks {
		world.ranks[i] = t.next
		t.procs[t.next] = &proc[W]{world: world}
		t.next++
	}
	t.present += n
}

// isPresent reports whether a process has not ended, and has not left.
func (t *Table[W]) isPresent(rank uint32) bool { return t.procs[rank] != nil && !t.left.has(rank) }

// leaves makes a process one that has left.
func (t *Table[W]) leaves(rank uint32) {
	if t.isPresent(rank) {
		t.present--
	}
	t.left.add(rank)
}

// drop removes the record of a process that has ended.
func (t *Table[W]) drop(rank uint32) {
	if t.isPresent(rank) {
		t.present--
	}
	delete(t.procs, rank)
	t.ends++
}

// ProcEnded records the end of a process, in whatever way. It undoes the process's change
// and those that the process requested, unless they are integrated, finishes integrated changes that the process requested, and
// answers queries. The calls of the process are withdrawn before.
func (t *Table[W]) ProcEnded(rank uint32) {
	p := t.procs[rank]
	if p == nil {
		return
	}
	t.drop(rank)
	if c := p.change; c != nil && c.state < integrated {
		t.undo(c, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{rank}})
	}
	for c := range t.changes {
		switch {
		case c.requester != int64(rank):
		case c.state == integrated:
			t.finish(c)
		case c.state < integrated: // Nobody else can withdraw it.
			t.undo(c, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{rank}})
		}
	}
	for s := range t.waiting {
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
		delete(c.reported, rank)
	}
	for _, s := range t.ordered {
		delete(s.failedQueries, rank)
	}
	delete(t.world.failedQueries, rank)
	if p := t.procs[rank]; p != nil {
		delete(p.world.failedQueries, rank)
	}
}

// bits is a set of ranks.
type bits []uint64

func (b bits) has(rank uint32) bool {
	i := int(rank / 64)
	return i < len(b) && b[i]&(1<<(rank%64)) != 0
}

func (b *bits) add(rank uint32) {
	for len(*b) <= int(rank/64) {
		*b = append(*b, 0)
	}
	(*b)[rank/64] |= 1 << (rank % 64)
}

func (b bits) remove(rank uint32) {
	if b.has(rank) {
		b[rank/64] &^= 1 << (rank % 64)
	}
}
