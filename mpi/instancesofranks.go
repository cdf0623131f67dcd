package mpi

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/heap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Instances in communicators of goroutine ranks. An exchange of records among all members would take memory
// and time that grow with the square of their number. So the ranks of a process write their records
// into one table, which the lowest rank of each process exchanges with the others.

// division is the division of a communicator's ranks among processes, which are counted in the order of their
// lowest ranks.
type division struct {
	procs []int   // By rank.
	ranks [][]int // By process, ascending.
	own   int     // This process.

	number map[framework.Life]int
}

// of returns the ranks of a process.
func (d *division) of(life framework.Life) []int {
	if p, ok := d.number[life]; ok {
		return d.ranks[p]
	}
	return nil
}

// divide returns the division of members.
func divide(members pml.Members, self framework.Life) *division {
	number := map[framework.Life]int{}
	d := &division{procs: make([]int, members.Len()), own: -1, number: number}
	for rank := range d.procs {
		life := members.Member(rank).Life
		p, known := number[life]
		if !known {
			p = len(number)
			number[life] = p
			d.ranks = append(d.ranks, nil)
		}
		d.procs[rank] = p
		d.ranks[p] = append(d.ranks[p], rank)
	}
	if p, ok := number[self]; ok {
		d.own = p
	}
	return d
}

// sharedOpening is what the ranks of this process share while they open one instance.
type sharedOpening struct {
	gathering
	node    *heap.Node
	records []byte      // Of all members, by rank.
	failed  atomic.Bool // In some member.
	decode  sync.Once
	cards   [][]byte // By rank.
	err     error    // Of a record.
	left    int      // Ranks of this process that use it. Guarded by activation.mu.
}

// openingKey identifies an opening in an activation.
type openingKey struct {
	id        cid.Extended
	component string
}

// agreeRanks is agreeProcesses for goroutine ranks.
func (k *collective) agreeRanks(ctx context.Context, o coll.Offered) (x coll.Instance, failed, err error) {
	c := k.comm()
	a, d := c.seat.of, c.division()
	key := openingKey{c.spec.ID, o.Component}
	open := a.enterOpening(key, c.spec.Members, d)
	defer a.leaveOpening(key)
	x, failed = o.OpenInstance(coll.Env{Member: coll.Member{Rank: c.rank, Size: c.size}, Node: open.node.Seat(c.rank)})
	encodeRecord(open.record(c.rank), o, x, failed)
	err = open.meet(ctx, k)
	if err == nil && len(d.ranks) > 1 {
		if err = k.exchangeLeaders(ctx, d, open.records); err == nil {
			err = open.meet(ctx, k)
		}
	}
	if err != nil {
		return x, failed, err
	}
	if failed == nil {
		open.decode.Do(func() { open.decodeCards(c.rank, o.Component) })
		if failed = open.err; failed == nil {
			failed = x.Join(open.cards)
		}
	}
	if failed != nil {
		open.failed.Store(true)
	}
	if err := open.meet(ctx, k); err != nil || len(d.ranks) == 1 {
		return x, open.outcome(failed), err
	}
	flags := make([]byte, c.size)
	if open.failed.Load() {
		flags[c.rank] = 1
	}
	if err := k.exchangeLeaders(ctx, d, flags); err != nil {
		return x, failed, err
	}
	if bytes.IndexByte(flags, 1) >= 0 {
		open.failed.Store(true)
	}
	err = open.meet(ctx, k)
	return x, open.outcome(failed), err
}

// outcome returns why the members do without the instance, or nil.
func (s *sharedOpening) outcome(failed error) error {
	if failed == nil && s.failed.Load() {
		return errElsewhere
	}
	return failed
}

func (s *sharedOpening) record(rank int) []byte { return s.records[rank*openRecord:][:openRecord] }

// decodeCards decodes the records. own is a rank of this process.
func (s *sharedOpening) decodeCards(own int, component string) {
	s.cards = make([][]byte, len(s.records)/openRecord)
	for rank := range s.cards {
		if s.cards[rank], s.err = decodeRecord(s.record(rank), s.record(own), rank, component); s.err != nil {
			return
		}
	}
}

// gathering is a barrier of the ranks of a process, without messages: each message between two ranks
// would leave state of a peer in both.
type gathering struct {
	ranks int

	mu      sync.Mutex
	arrived []arrivedRank
}

// arrivedRank is a rank that waits for the others.
type arrivedRank struct {
	engine *progress.Engine
	all    *progress.Completion
}

// meet returns when all ranks of this process have called it, or k is broken or aborted.
func (g *gathering) meet(ctx context.Context, k *collective) error {
	ctx, stop := k.untilBroken(ctx)
	defer stop()
	e := k.engine()
	e.Lock()
	aborted := k.aborted
	e.Release()
	if aborted != nil {
		return aborted
	}
	mine := arrivedRank{e, new(progress.Completion)}
	g.mu.Lock()
	g.arrived = append(g.arrived, mine)
	var all []arrivedRank
	if len(g.arrived) == g.ranks {
		all, g.arrived = g.arrived, nil
	}
	g.mu.Unlock()
	for _, a := range all {
		a.engine.Lock()
		a.engine.Complete(a.all)
		a.engine.Release()
	}
	e.Lock()
	defer e.Release()
	if err := e.Wait(ctx, mine.all, nil); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// exchangeLeaders gives the lowest rank of each process the records of all ranks in table. Other ranks return
// at once. In step i process p receives the records of 2^i processes, p-2^i and those before it.
func (k *collective) exchangeLeaders(ctx context.Context, d *division, table []byte) error {
	c := k.comm()
	tag := k.nextTag()
	if c.rank != d.ranks[d.own][0] {
		return nil
	}
	size, n := len(table)/c.size, len(d.ranks)
	process := func(i int) int { return (d.own - i + n) % n } // That is i before this one.
	ends := []int{0}                                          // Ends of the processes' records in all.
	var all []byte
	for i := range n {
		for _, rank := range d.ranks[process(i)] {
			all = append(all, table[rank*size:][:size]...)
		}
		ends = append(ends, len(all))
	}
	var s coll.Schedule
	for have := 1; have < n; have *= 2 {
		more := min(have, n-have)
		to, from := d.ranks[process(n-have)][0], d.ranks[process(have)][0]
		theirs := 0 // The receiver has this process's records, and those of the processes before it.
		for i := range more {
			theirs += len(d.ranks[process(i)]) * size
		}
		s.Exchange(coll.Ref{Slot: coll.Out}, theirs, to, coll.Ref{Slot: coll.Out, At: ends[have]}, ends[have+more]-ends[have], from)
	}
	p := &k.peers
	p.begin(tag)
	if err := s.Inline(background(ctx), p, &coll.Buffers{Out: all}, nil); err != nil {
		return err
	}
	for i := range n {
		for j, rank := range d.ranks[process(i)] {
			copy(table[rank*size:][:size], all[ends[i]+j*size:])
		}
	}
	return nil
}

// division returns the division of a communicator of goroutine ranks.
func (c *Comm) division() *division {
	return c.spec.Members.(*table).divided(c.session.engine.Env().Self)
}

// enterOpening returns the opening that the ranks of this process share.
func (a *activation) enterOpening(key openingKey, members pml.Members, d *division) *sharedOpening {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.openings[key]
	if s == nil {
		ranks := d.ranks[d.own]
		s = &sharedOpening{gathering: gathering{ranks: len(ranks)}, records: make([]byte, len(d.procs)*openRecord), left: len(ranks)}
		s.node = heap.New(ranks, func(rank int) progress.RemoteBell {
			return a.threads.team.Engine(int(members.Member(rank).Endpoint)).RankBell()
		})
		a.openings[key] = s
	}
	return s
}

// leaveOpening ends a rank's use of an opening.
func (a *activation) leaveOpening(key openingKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.openings[key]; s != nil {
		if s.left--; s.left == 0 {
			delete(a.openings, key)
		}
	}
}
