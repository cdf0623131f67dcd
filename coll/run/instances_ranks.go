package run

import (
	"context"
	"sync"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/heap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// Instances in communicators of goroutine ranks. The node of an instance is the process, so that
// cards need no messages. The ranks of a process write their records into one table. The lowest
// rank of each process exchanges its verdict with the others.

// A Division is the placement of a communicator's ranks in processes, which are numbered in the
// order of their lowest ranks.
type Division struct {
	coll.Placement
	// This process, or -1.
	OwnProcess int

	numberByProcess map[framework.Incarnation]int
}

// Of returns the ranks of a process. The result is read-only.
func (d *Division) Of(incarnation framework.Incarnation) []int {
	if p, ok := d.numberByProcess[incarnation]; ok {
		return d.Ranks(p)
	}
	return nil
}

// Divide returns the division of members. self is this process.
func Divide(members pml.Members, self framework.Incarnation) *Division {
	d := &Division{OwnProcess: -1, numberByProcess: map[framework.Incarnation]int{}}
	d.Placement = coll.MakePlacement(func(yield func(framework.Incarnation) bool) {
		for rank := range members.Len() {
			incarnation := members.Member(rank).Incarnation
			if _, known := d.numberByProcess[incarnation]; !known {
				d.numberByProcess[incarnation] = len(d.numberByProcess)
			}
			if !yield(incarnation) {
				return
			}
		}
	})
	if p, ok := d.numberByProcess[self]; ok {
		d.OwnProcess = p
	}
	return d
}

// sharedOpening is shared by the ranks of this process while they open one instance.
type sharedOpening struct {
	rankBarrier
	heapNode *heap.Node
	// Ascending.
	localRanks []int
	// By index in localRanks.
	records    []byte
	decodeOnce sync.Once
	// By index in localRanks.
	cards     [][]byte
	recordErr error
	// Number of ranks of this process that use it. Guarded by Openings.mu.
	usingRanks int

	verdictMu     sync.Mutex
	mergedVerdict verdict
}

// add merges the verdict of a rank.
func (s *sharedOpening) add(v verdict) {
	s.verdictMu.Lock()
	defer s.verdictMu.Unlock()
	s.mergedVerdict.merge(v)
}

// openingKey identifies an opening in an activation.
type openingKey struct {
	id        cid.Extended
	component string
}

// agreeRanks is agreeProcesses for goroutine ranks.
func (k *State) agreeRanks(ctx context.Context, o coll.ComponentOffer) (x coll.Instance, failed, err error) {
	ranks, rank := k.env.Host.LocalRanks(), k.env.Rank
	d, openings := ranks.Division(), ranks.Openings()
	key := openingKey{k.env.ID, o.Component}
	own := usable(o)
	open := openings.enter(key, ranks, own)
	defer openings.leave(key)
	if x, failed = o.OpenInstance(coll.Env{Member: coll.Member{Rank: rank, Size: k.env.Size}, Node: open.heapNode.NodeOf(rank)}); failed != nil {
		own.fail(cannotOpen, rank)
	}
	encodeRecord(open.record(d.Index(rank)), o, x, failed)
	if err := open.wait(ctx, k); err != nil {
		return x, failed, err
	}
	if failed == nil {
		open.decodeOnce.Do(func() { open.decodeCards(d.Index(rank), o.Component) })
		if failed = open.recordErr; failed == nil {
			failed = x.Join(open.cards)
		}
		own.failJoin(rank, failed)
	}
	open.add(own)
	if err := open.wait(ctx, k); err != nil {
		return x, failed, err
	}
	if d.Count() > 1 {
		if err := k.agreeLeaders(ctx, d, open); err != nil {
			return x, failed, err
		}
	}
	return x, open.mergedVerdict.outcome(o.Component, failed), nil
}

// agreeLeaders merges the verdicts of all processes. The lowest rank of each process exchanges
// messages.
func (k *State) agreeLeaders(ctx context.Context, d *Division, open *sharedOpening) error {
	var s coll.Schedule
	if k.env.Rank != open.localRanks[0] {
		k.nextTag()
		return open.wait(ctx, k)
	}
	exchangeVerdicts(&s, first(d.Placement, open.localRanks[0]))
	all, err := k.mergeVerdict(ctx, &s, open.mergedVerdict)
	if err != nil {
		return err
	}
	open.add(all)
	return open.wait(ctx, k)
}

func (s *sharedOpening) record(index int) []byte { return s.records[index*openRecord:][:openRecord] }

// decodeCards decodes the records. own is the index of a rank that has opened its part.
func (s *sharedOpening) decodeCards(own int, component string) {
	s.cards = make([][]byte, len(s.localRanks))
	for i, rank := range s.localRanks {
		if s.cards[i], s.recordErr = decodeRecord(s.record(i), s.record(own), rank, component); s.recordErr != nil {
			return
		}
	}
}

// rankBarrier is a barrier of the ranks of a process without messages, because a message between
// two ranks would create peer state in both.
type rankBarrier struct {
	rankCount int

	mu           sync.Mutex
	arrivedRanks []arrivedRank
}

// arrivedRank is a rank that waits for the others.
type arrivedRank struct {
	engine     *progress.Engine
	allArrived *progress.Completion
}

// wait returns when all ranks of this process have called it, or k is broken or aborted.
func (g *rankBarrier) wait(ctx context.Context, k *State) error {
	ctx, stop := k.ContextUntilBroken(ctx)
	defer stop()
	e := k.engine()
	e.Lock()
	aborted := k.abortErr
	e.Release()
	if aborted != nil {
		return aborted
	}
	mine := arrivedRank{e, new(progress.Completion)}
	g.mu.Lock()
	g.arrivedRanks = append(g.arrivedRanks, mine)
	var all []arrivedRank
	if len(g.arrivedRanks) == g.rankCount {
		all, g.arrivedRanks = g.arrivedRanks, nil
	}
	g.mu.Unlock()
	for _, a := range all {
		a.engine.Lock()
		a.engine.Complete(a.allArrived)
		a.engine.Release()
	}
	e.Lock()
	defer e.Release()
	if err := e.Wait(ctx, mine.allArrived, nil); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// Openings are the instances that the goroutine ranks of a process are opening. The zero value is
// ready for use.
type Openings struct {
	mu    sync.Mutex
	byKey map[openingKey]*sharedOpening
}

// enter returns the opening that the ranks of this process share.
func (o *Openings) enter(key openingKey, local LocalRanks, v verdict) *sharedOpening {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.byKey[key]
	if s == nil {
		d := local.Division()
		ranks := d.Ranks(d.OwnProcess)
		s = &sharedOpening{rankBarrier: rankBarrier{rankCount: len(ranks)}, localRanks: ranks, records: make([]byte, len(ranks)*openRecord), usingRanks: len(ranks), mergedVerdict: v}
		s.heapNode = heap.New(ranks, local.Bell)
		if o.byKey == nil {
			o.byKey = map[openingKey]*sharedOpening{}
		}
		o.byKey[key] = s
	}
	return s
}

// leave ends a rank's use of an opening.
func (o *Openings) leave(key openingKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.byKey[key]; s != nil {
		if s.usingRanks--; s.usingRanks == 0 {
			delete(o.byKey, key)
		}
	}
}
