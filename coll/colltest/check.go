package colltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

// stuck is how long one operation may take before it counts as a deadlock. It
// bounds a failure; nothing that passes comes near it.
const stuck = 30 * time.Second

// mostMembers is the size of the largest communicator; counts are of elements in a
// block, the last one beyond what algorithms take for small.
const mostMembers = 17

// groups are the sizes of communicators that have a case of their own, up to each: with the race
// detector all of them take as long as a case may.
var groups = []int{8, 12, 15, mostMembers}

var counts = []int{0, 1, 7, 1100}

// Cases returns the claims of the contract, to be made of c: every algorithm that it
// offers, over communicators of 1 to 17 members, with blocks of 0 to 1100 elements,
// whatever size it is chosen for; all roots, in place and not, blocks that differ, with
// gaps between them; operations that commute and one that does not; carried out inline,
// over buffered and synchronous sends, and in a random order of completion; and a
// member that fails.
func Cases(c coll.Component) kittest.Cases {
	claims := []kittest.Claim[struct{}, *checker]{kittest.New("QueryIsTheSameForAll", struct{}{}, (*checker).alike)}
	for op := range coll.Operation(coll.Operations) {
		least := 1
		for _, most := range groups {
			name := fmt.Sprintf("%v/ComesToWhatItShouldInAnyOrderAmong%dTo%d", op, least, most)
			sizes := upTo(most + 1)[least:]
			claims = append(claims, kittest.New(name, struct{}{}, func(k *checker) { k.every(op, sizes) }))
			least = most + 1
		}
		claims = append(claims,
			kittest.New(op.String()+"/ComesToWhatItShouldInline", struct{}{}, func(k *checker) { k.inline(op) }),
			kittest.New(op.String()+"/EndsWhenAMemberFails", struct{}{}, func(k *checker) { k.faults(op) }),
			kittest.New(op.String()+"/SeriesEndsAfterADeath", struct{}{}, func(k *checker) { k.deaths(op) }))
	}
	return kittest.Bind(claims, func(t *kittest.T, _ struct{}) *checker {
		k := &checker{T: t, component: c, params: kittest.Params(c, nil)}
		if v := c.Probe(t.Context(), k.params); v.Status != framework.StatusUsable {
			t.Fatalf("not usable here: %v", v)
		}
		return k
	})
}

// checker is what a case works with. The first thing that is wrong ends it.
type checker struct {
	*kittest.T
	component coll.Component
	params    any
	open      func(coll.Env) (coll.Instance, error)
	instances []coll.Instance // by rank, of the communicator that was asked for last
	of        string          // its shape
	op        uint32          // so many operations there were
}

// opened opens the instances of a communicator.
func (k *checker) opened(shape coll.Shape) []coll.Instance {
	all, cards := make([]coll.Instance, shape.Size), make([][]byte, shape.Size)
	nodes := nodes(shape)
	offered := coll.Offered{Component: k.component.Info().Name, Offer: &coll.Offer{Open: k.open}}
	for rank := range all {
		var err error
		if all[rank], err = offered.OpenInstance(coll.Env{Member: coll.Member{Rank: rank, Size: shape.Size}, Node: nodes[rank]}); err != nil {
			k.Fatalf("opening rank %d of %d: %w", rank, shape.Size, err)
		}
		k.Cleanup(func() error { all[rank].Close(); return nil })
		if cards[rank] = all[rank].Card(); len(cards[rank]) > coll.CardSize {
			k.Fatalf("a card of %d bytes", len(cards[rank]))
		}
	}
	byNode := shape.ProcsAsNodes().ByNode()
	for rank, x := range all {
		var near [][]byte
		for _, mate := range byNode.Ranks(byNode.Node(rank)) {
			near = append(near, cards[mate])
		}
		k.Check(x.Join(near))
	}
	for _, x := range all {
		x.Agreed()
	}
	return all
}

// shapes returns communicators of a size: all on one node, on nodes of unequal size, and
// with ranks that go round them. Then the same for goroutines: all in one process, in two
// processes of equal size, in processes of unequal size on one node, and with ranks that go round
// processes on two nodes.
func shapes(size int) []coll.Shape {
	all := []coll.Shape{{Size: size}}
	if size == 1 {
		return all
	}
	one, half, unequal, round, pairs := make([]int, size), make([]int, size), make([]int, size), make([]int, size), make([]int, size)
	proc, room := 0, 1
	for rank := range size {
		if room == 0 {
			proc++
			room = proc + 1
		}
		room--
		half[rank], unequal[rank], round[rank], pairs[rank] = 2*rank/size, proc, rank%3, rank%3/2
	}
	of := func(numbers []int) coll.Placement { return coll.PlacementOf(numbers...) }
	return append(all,
		coll.Shape{Size: size, Nodes: of(unequal)}, coll.Shape{Size: size, Nodes: of(round)},
		coll.Shape{Size: size, Procs: of(one)}, coll.Shape{Size: size, Procs: of(half), Nodes: of(half)},
		coll.Shape{Size: size, Procs: of(unequal)}, coll.Shape{Size: size, Procs: of(round), Nodes: of(pairs)})
}

// ignoresProcs reports whether an offer for a shape is that for the shape without processes,
// as that of components over messages.
func (k *checker) ignoresProcs(o *coll.Offer, shape coll.Shape) bool {
	shape.Procs = nil
	plain := k.component.Query(k.params, shape)
	return o != nil && plain != nil && o.Open == nil && plain.Open == nil && o.Terms() == plain.Terms()
}

// query returns the algorithms for an operation.
func (k *checker) query(op coll.Operation, shape coll.Shape) (list []*coll.Algorithm) {
	o := k.component.Query(k.params, shape)
	if o == nil {
		return nil
	}
	k.Check(o.Check(k.component.Info().Name))
	of := fmt.Sprint(shape)
	if k.open = o.Open; o.Open == nil {
		k.instances = nil
	} else if k.instances == nil || k.of != of {
		k.instances = k.opened(shape)
	}
	k.of = of
	for i := range o.Algorithms {
		if o.Algorithms[i].Op == op {
			list = append(list, &o.Algorithms[i])
		}
	}
	return list
}

// alike checks that to ask again gives the same answer.
func (k *checker) alike() {
	for size := 1; size <= mostMembers; size++ {
		for _, shape := range shapes(size) {
			for op := range coll.Operation(coll.Operations) {
				first, again := k.query(op, shape), k.query(op, shape)
				if len(first) != len(again) {
					k.Fatalf("%v: Query offers %d algorithms for %v, and then %d", shape, len(first), op, len(again))
				}
				for i, a := range first {
					if b := again[i]; a.Name != b.Name || a.From != b.From || a.Below != b.Below {
						k.Fatalf("%v: Query offers %s for %v, and then %s", shape, a.Name, op, b.Name)
					}
				}
			}
		}
	}
}

// each calls f with every algorithm for an operation, and skips the case if there is
// none.
func (k *checker) each(op coll.Operation, sizes []int, f func(shape coll.Shape, a *coll.Algorithm)) {
	found := false
	for _, size := range sizes {
		var before *coll.Offer
		for _, shape := range shapes(size) {
			if offer := k.component.Query(k.params, shape); offer != before { // it looks at nodes
				before = offer
				if shape.Procs != nil && k.ignoresProcs(offer, shape) {
					continue
				}
				for _, a := range k.query(op, shape) {
					found = true
					f(shape, a)
				}
			}
		}
	}
	if !found {
		k.Skipf("it has no %v", op)
	}
}

// calls calls f with all arguments that differ in something.
func calls(op coll.Operation, size int, roots []int, f func(call)) {
	kinds, places := elements[:1], []bool{false, true}
	if reduces(op) {
		kinds = elements
	}
	if !rooted(op) {
		roots = roots[:1]
	}
	if !mayBeInPlace(op) {
		places = places[:1]
	}
	for _, count := range counts {
		for _, kind := range kinds {
			for _, inPlace := range places {
				for _, root := range roots {
					if ordinary := kind.size > 0 && kind.size < largeElement; root < size && (ordinary || count == 1) {
						f(call{op, size, root, count, kind, inPlace})
					}
				}
				if op == coll.Barrier {
					return
				}
			}
		}
	}
}

// members makes all parts in a call.
func (k *checker) members(c call, a *coll.Algorithm) []*member {
	all := make([]*member, c.size)
	k.op++
	for rank := range all {
		all[rank] = c.member(rank)
		if all[rank].Turn = k.op; k.instances != nil {
			all[rank].instance = k.instances[rank]
			all[rank].Shared = k.instances[rank].Memory()
		}
		if err := all[rank].plan(a); err != nil {
			k.Fatalf("%s: %v: %w", a.Name, c, err)
		}
	}
	return all
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func (k *checker) every(op coll.Operation, sizes []int) {
	seed := uint64(0)
	k.each(op, sizes, func(shape coll.Shape, a *coll.Algorithm) {
		size := shape.Size
		calls(op, size, upTo(size), func(c call) {
			if size > 5 && (c.count == counts[len(counts)-1] && c.root > 1 || c.elem.size == 3 || c.elem.size == largeElement) {
				return // the rest would only take long
			}
			seed++
			all := k.members(c, a)
			err := shuffled(rand.New(rand.NewPCG(seed, 0)), all, op == coll.Barrier)
			for _, m := range all {
				if err == nil {
					err = m.check()
				}
			}
			if err != nil {
				k.Fatalf("%s: %v, seed %d: %w", a.Name, c, seed, err)
			}
		})
	})
}

func (k *checker) inline(op coll.Operation) {
	k.each(op, []int{1, 2, 3, 5, 8}, func(shape coll.Shape, a *coll.Algorithm) {
		size := shape.Size
		calls(op, size, []int{0, size - 1}, func(c call) {
			for _, synchronous := range []bool{false, true} {
				w := NewWorld(size, Options{Synchronous: synchronous})
				errs, _ := k.run(w, c, a)
				if err := errors.Join(append(errs, w.Left())...); err != nil {
					k.Fatalf("%s: %v, synchronous %v: %w", a.Name, c, synchronous, err)
				}
			}
		})
	})
}

// run does a call inline. It reports whether somebody hangs.
func (k *checker) run(w *World, c call, a *coll.Algorithm) (errs []error, hangs bool) {
	all := k.members(c, a)
	ctx, cancel := context.WithTimeout(k.Context(), stuck)
	defer cancel()
	errs = w.Run(ctx, func(ctx context.Context, p *Peer) error {
		m := all[p.Rank()]
		p.instance, p.call = m.instance, &m.Call
		if err := m.schedule.Inline(ctx, p, &m.Buffers, &m.Reducer); err != nil {
			return fmt.Errorf("rank %d: %w", p.Rank(), err)
		}
		if p.w.opt.FailAt > 0 && p.w.opt.FailRank == p.rank {
			if p.ops >= p.w.opt.FailAt {
				return errors.New("no error") // so that the others are released
			}
			return nil
		}
		return m.check()
	})
	return errs, ctx.Err() != nil
}

// faults fails each of the sends and receives of each member in turn: that member must
// return just this error, and all others must return.
func (k *checker) faults(op coll.Operation) {
	k.each(op, []int{2, 3, 5}, func(shape coll.Shape, a *coll.Algorithm) {
		size := shape.Size
		c := call{op, size, size - 1, 3, matrices, false}
		for rank := range size {
			for at := 1; ; at++ {
				if k.open != nil { // what fails is of no use any more
					k.instances = k.opened(shape)
				}
				w := NewWorld(size, Options{FailRank: rank, FailAt: at})
				errs, hangs := k.run(w, c, a)
				if hangs {
					k.Fatalf("%s: %v: somebody hangs after operation %d of rank %d failed", a.Name, c, at, rank)
				}
				if w.peers[rank].ops < at { // it has no more
					break
				}
				if !errors.Is(errs[rank], errFault) {
					k.Fatalf("%s: %v: rank %d returns %v instead of the error of its operation %d", a.Name, c, rank, errs[rank], at)
				}
			}
		}
	})
}
