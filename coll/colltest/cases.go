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

// operationTimeout is the timeout of an operation, after which it counts as a deadlock. A correct operation
// takes a small part of it.
const operationTimeout = 30 * time.Second

// maxMembers is the size of the largest communicator.
const maxMembers = 17

// sizeLimits are the upper limits of the communicator sizes of a case. A case with all sizes would
// exceed the limit of its time under the race detector.
var sizeLimits = []int{8, 12, 15, maxMembers}

// Elements of a block. The last number is beyond the small sizes of algorithms.
var elementCounts = []int{0, 1, 7, 1100}

// Cases returns the contract's claims about c. They cover every algorithm that it offers, for all
// sizes of blocks, over communicators of 1 to 17 members with blocks of 0 to 1100 elements, with
// all roots, in place and not, with blocks of different sizes and gaps between them, and with
// commutative and ordered operations. Schedules run inline, over buffered and synchronous sends,
// and in random orders of completion, also with a member that fails.
func Cases(c coll.Component) kittest.Cases {
	claims := []kittest.Claim[struct{}, *checker]{kittest.New("QueryIsReproducible", struct{}{}, (*checker).checkQuery)}
	for op := range coll.Operation(coll.Operations) {
		least := 1
		for _, most := range sizeLimits {
			name := fmt.Sprintf("%v/CorrectInAnyOrderAmong%dTo%d", op, least, most)
			sizes := integersBelow(most + 1)[least:]
			claims = append(claims, kittest.New(name, struct{}{}, func(k *checker) { k.checkAnyOrder(op, sizes) }))
			least = most + 1
		}
		claims = append(claims,
			kittest.New(op.String()+"/CorrectInline", struct{}{}, func(k *checker) { k.checkInline(op) }),
			kittest.New(op.String()+"/EndsAfterAFailure", struct{}{}, func(k *checker) { k.checkFaults(op) }),
			kittest.New(op.String()+"/SeriesEndsAfterADeath", struct{}{}, func(k *checker) { k.checkDeaths(op) }))
	}
	return kittest.Bind(claims, func(t *kittest.T, _ struct{}) *checker {
		k := &checker{T: t, component: c, params: kittest.Params(c, nil)}
		if v := c.Probe(t.Context(), k.params); v.Status != framework.StatusUsable {
			t.Fatalf("component unusable: %v", v)
		}
		return k
	})
}

// checker is the environment of a case. The first error ends the case.
type checker struct {
	*kittest.T
	component    coll.Component
	params       any
	openInstance func(coll.Env) (coll.Instance, error)
	// Instances by rank of the latest communicator.
	instances []coll.Instance
	// Shape of the latest communicator.
	openShape string
	// Number of operations so far.
	operationCount uint32
}

// openInstances opens the instances of a communicator.
func (k *checker) openInstances(shape coll.Shape) []coll.Instance {
	all, cards := make([]coll.Instance, shape.Size), make([][]byte, shape.Size)
	nodes := nodes(shape)
	offered := coll.ComponentOffer{Component: k.component.Info().Name, Offer: &coll.Offer{Open: k.openInstance}}
	for rank := range all {
		var err error
		if all[rank], err = offered.OpenInstance(coll.Env{Member: coll.Member{Rank: rank, Size: shape.Size}, Node: nodes[rank]}); err != nil {
			k.Fatalf("opening rank %d of %d: %w", rank, shape.Size, err)
		}
		k.Cleanup(func() error { all[rank].Close(); return nil })
		if cards[rank] = all[rank].Card(); len(cards[rank]) > coll.CardSize {
			k.Fatalf("card of %d bytes exceeds CardSize", len(cards[rank]))
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
		x.Activate()
	}
	return all
}

// shapes returns communicators of a size. Their ranks are on one node, on nodes of unequal size,
// and round-robin over nodes. Then they are goroutines in one process, in two equal processes, in
// unequal processes on one node, and round-robin over processes on two nodes.
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

// ignoresProcs reports whether an offer for a shape is the same without its processes, as that of
// components over messages.
func (k *checker) ignoresProcs(o *coll.Offer, shape coll.Shape) bool {
	shape.Procs = nil
	plain := k.component.Query(k.params, shape)
	return o != nil && plain != nil && o.Open == nil && plain.Open == nil && o.Checksum() == plain.Checksum()
}

// query returns the algorithms for an operation.
func (k *checker) query(op coll.Operation, shape coll.Shape) (list []*coll.Algorithm) {
	o := k.component.Query(k.params, shape)
	if o == nil {
		return nil
	}
	k.Check(o.Check(k.component.Info().Name))
	of := fmt.Sprint(shape)
	if k.openInstance = o.Open; o.Open == nil {
		k.instances = nil
	} else if k.instances == nil || k.openShape != of {
		k.instances = k.openInstances(shape)
	}
	k.openShape = of
	for i := range o.Algorithms {
		if o.Algorithms[i].Op == op {
			list = append(list, &o.Algorithms[i])
		}
	}
	return list
}

// checkQuery checks that repeated queries return the same algorithms.
func (k *checker) checkQuery() {
	for size := 1; size <= maxMembers; size++ {
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

// forEachAlgorithm calls f with every algorithm for an operation. It skips the case if there is none.
func (k *checker) forEachAlgorithm(op coll.Operation, sizes []int, f func(shape coll.Shape, a *coll.Algorithm)) {
	found := false
	for _, size := range sizes {
		var before *coll.Offer
		for _, shape := range shapes(size) {
			if offer := k.component.Query(k.params, shape); offer != before { // The offer depends on the nodes.
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
		k.Skipf("the component has no %v", op)
	}
}

// forEachCall calls f with all combinations of arguments.
func forEachCall(op coll.Operation, size int, roots []int, f func(call)) {
	kinds, places := elements[:1], []bool{false, true}
	if isReduction(op) {
		kinds = elements
	}
	if !hasRoot(op) {
		roots = roots[:1]
	}
	if !canBeInPlace(op) {
		places = places[:1]
	}
	for _, count := range elementCounts {
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

// newMembers creates all parts in a call.
func (k *checker) newMembers(c call, a *coll.Algorithm) []*member {
	all := make([]*member, c.memberCount)
	k.operationCount++
	for rank := range all {
		all[rank] = c.member(rank)
		if all[rank].Sequence = k.operationCount; k.instances != nil {
			all[rank].instance = k.instances[rank]
			all[rank].Shared = k.instances[rank].Memory()
		}
		if err := all[rank].plan(a); err != nil {
			k.Fatalf("%s: %v: %w", a.Name, c, err)
		}
	}
	return all
}

func integersBelow(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func (k *checker) checkAnyOrder(op coll.Operation, sizes []int) {
	seed := uint64(0)
	k.forEachAlgorithm(op, sizes, func(shape coll.Shape, a *coll.Algorithm) {
		size := shape.Size
		forEachCall(op, size, integersBelow(size), func(c call) {
			if size > 5 && (c.blockElems == elementCounts[len(elementCounts)-1] && c.root > 1 || c.element.size == 3 || c.element.size == largeElement) {
				return // The remaining combinations take long and cover nothing new.
			}
			seed++
			all := k.newMembers(c, a)
			err := runShuffled(rand.New(rand.NewPCG(seed, 0)), all, op == coll.Barrier)
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

func (k *checker) checkInline(op coll.Operation) {
	k.forEachAlgorithm(op, []int{1, 2, 3, 5, 8}, func(shape coll.Shape, a *coll.Algorithm) {
		size := shape.Size
		forEachCall(op, size, []int{0, size - 1}, func(c call) {
			for _, synchronous := range []bool{false, true} {
				w := NewWorld(size, Options{Synchronous: synchronous})
				errs, _ := k.runInline(w, c, a)
				if err := errors.Join(append(errs, w.CheckIdle())...); err != nil {
					k.Fatalf("%s: %v, synchronous %v: %w", a.Name, c, synchronous, err)
				}
			}
		})
	})
}

// runInline executes a call inline. It reports whether a member exceeded the timeout.
func (k *checker) runInline(w *World, c call, a *coll.Algorithm) (errs []error, hangs bool) {
	all := k.newMembers(c, a)
	ctx, cancel := context.WithTimeout(k.Context(), operationTimeout)
	defer cancel()
	errs = w.Run(ctx, func(ctx context.Context, p *Peer) error {
		m := all[p.Rank()]
		p.instance, p.call = m.instance, &m.Call
		if err := m.schedule.Inline(ctx, p, &m.Buffers, &m.Reducer); err != nil {
			return fmt.Errorf("rank %d: %w", p.Rank(), err)
		}
		if p.world.options.FailAt > 0 && p.world.options.FailRank == p.rank {
			if p.operationCount >= p.world.options.FailAt {
				return errors.New("no error") // The error releases the others.
			}
			return nil
		}
		return m.check()
	})
	return errs, ctx.Err() != nil
}

// checkFaults fails each of the sends and receives of each member in turn. That member must return just
// this error, and all others must return.
func (k *checker) checkFaults(op coll.Operation) {
	k.forEachAlgorithm(op, []int{2, 3, 5}, func(shape coll.Shape, a *coll.Algorithm) {
		size := shape.Size
		c := call{op, size, size - 1, 3, matrices, false}
		for rank := range size {
			for at := 1; ; at++ {
				if k.openInstance != nil { // Instances are unusable after a failure.
					k.instances = k.openInstances(shape)
				}
				w := NewWorld(size, Options{FailRank: rank, FailAt: at})
				errs, hangs := k.runInline(w, c, a)
				if hangs {
					k.Fatalf("%s: %v: a member hangs after operation %d of rank %d failed", a.Name, c, at, rank)
				}
				if w.peers[rank].operationCount < at { // There is no such operation.
					break
				}
				if !errors.Is(errs[rank], errFault) {
					k.Fatalf("%s: %v: rank %d returned %v, want the error of its operation %d", a.Name, c, rank, errs[rank], at)
				}
			}
		}
	})
}
