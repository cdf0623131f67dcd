package colltest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

// stuck is how long one operation may take before it counts as a deadlock. It
// bounds a failure; nothing that passes comes near it.
const stuck = 30 * time.Second

var (
	sizes  = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	counts = []int{0, 1, 2, 7, 100, 1000}
)

// operation is one that a component may offer.
type operation struct {
	name    string
	offered func(*coll.Ops) bool
	// check does everything with it that has an outcome.
	check func(*checker, *World, []*coll.Ops)
	// once does it once, so that a member can fail in it.
	once func(context.Context, *Peer, *coll.Ops) error
}

var operations = []operation{
	{"Barrier", func(o *coll.Ops) bool { return o.Barrier != nil }, (*checker).barrier,
		func(ctx context.Context, p *Peer, o *coll.Ops) error { return o.Barrier(ctx, p) }},
	{"Bcast", func(o *coll.Ops) bool { return o.Bcast != nil }, (*checker).bcast,
		func(ctx context.Context, p *Peer, o *coll.Ops) error {
			return o.Bcast(ctx, p, fill(64, 1), p.Size()-1)
		}},
	{"Reduce", func(o *coll.Ops) bool { return o.Reduce != nil }, (*checker).reduce,
		func(ctx context.Context, p *Peer, o *coll.Ops) error {
			return o.Reduce(ctx, p, matrices.fill(3, p.Rank()), matrices.fill(3, 0), matrices.reducer(), p.Size()-1)
		}},
	{"Allreduce", func(o *coll.Ops) bool { return o.Allreduce != nil }, (*checker).allreduce,
		func(ctx context.Context, p *Peer, o *coll.Ops) error {
			return o.Allreduce(ctx, p, matrices.fill(3, p.Rank()), matrices.fill(3, 0), matrices.reducer())
		}},
	{"Allgather", func(o *coll.Ops) bool { return o.Allgather != nil }, (*checker).allgather,
		func(ctx context.Context, p *Peer, o *coll.Ops) error {
			return o.Allgather(ctx, p, fill(64, 1), fill(64*p.Size(), 1))
		}},
}

// Cases returns the claims of the contract, to be made of c: every operation that
// it offers, over communicators of 1 to 9 members, with 0 to 1000 elements, all
// roots, in place and not, operations that commute and one that does not, buffered
// and synchronous sends, and a member that fails.
func Cases(c coll.Component) kittest.Cases {
	claims := []kittest.Claim[struct{}, *checker]{kittest.New("QueryIsTheSameForAll", struct{}{}, (*checker).alike)}
	for _, o := range operations {
		claims = append(claims,
			kittest.New(o.name+"ComesToWhatItShould", struct{}{}, func(k *checker) { k.every(o) }),
			kittest.New(o.name+"EndsWhenAMemberFails", struct{}{}, func(k *checker) { k.faults(o) }))
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
}

// query asks every member.
func (k *checker) query(w *World) []*coll.Ops {
	ops := make([]*coll.Ops, len(w.peers))
	for r, p := range w.peers {
		if ops[r] = k.component.Query(k.params, p); ops[r] == nil {
			ops[r] = &coll.Ops{}
		}
	}
	return ops
}

// alike checks that all members come to the same answer, and ask nobody.
func (k *checker) alike() {
	for _, n := range sizes {
		w := NewWorld(n, Options{})
		ops := k.query(w)
		for r, p := range w.peers {
			for _, o := range operations {
				if o.offered(ops[r]) != o.offered(ops[0]) || ops[r].Priority != ops[0].Priority {
					k.Fatalf("%d members: Query of rank %d comes to another answer than that of rank 0", n, r)
				}
			}
			if p.ops != 0 {
				k.Fatalf("%d members: Query sends or receives", n)
			}
		}
	}
}

// offered calls f with each size for which the component has the operation, and
// skips the case if it leaves it to others.
func (k *checker) offered(o operation, f func(n int)) {
	found := false
	for _, n := range sizes {
		if o.offered(k.query(NewWorld(n, Options{}))[0]) {
			found = true
			f(n)
		}
	}
	if !found {
		k.Skipf("it has no %s", o.name)
	}
}

func (k *checker) every(o operation) {
	k.offered(o, func(n int) {
		for _, synchronous := range []bool{false, true} {
			w := NewWorld(n, Options{Synchronous: synchronous})
			o.check(k, w, k.query(w))
		}
	})
}

// run calls f in all members and checks that none fails and nothing is left. The
// error names the round.
func (k *checker) run(w *World, round string, f func(ctx context.Context, p *Peer) error) {
	ctx, cancel := context.WithTimeout(k.Context(), stuck)
	defer cancel()
	if err := errors.Join(append(w.Run(ctx, f), w.Left())...); err != nil {
		k.Fatalf("%d members, synchronous %v, %s: %w", len(w.peers), w.opt.Synchronous, round, err)
	}
}

// barrier checks that nobody leaves before all have entered: each member enters
// only after the one before it, so that an early leaver sees too few.
func (k *checker) barrier(w *World, ops []*coll.Ops) {
	n := len(w.peers)
	entered := make([]chan struct{}, n)
	for i := range entered {
		entered[i] = make(chan struct{})
	}
	k.run(w, "one by one", func(ctx context.Context, p *Peer) error {
		if r := p.Rank(); r > 0 {
			<-entered[r-1]
		}
		close(entered[p.Rank()])
		if err := ops[p.Rank()].Barrier(ctx, p); err != nil {
			return err
		}
		select {
		case <-entered[n-1]:
			return nil
		default:
			return fmt.Errorf("rank %d left before rank %d entered", p.Rank(), n-1)
		}
	})
}

func (k *checker) bcast(w *World, ops []*coll.Ops) {
	for _, count := range counts {
		for root := range w.peers {
			want := fill(count, root)
			k.run(w, fmt.Sprintf("%d bytes from %d", count, root), func(ctx context.Context, p *Peer) error {
				buf := fill(count, p.Rank())
				if err := ops[p.Rank()].Bcast(ctx, p, buf, root); err != nil {
					return err
				}
				return same(p, "buf", buf, want)
			})
		}
	}
}

func (k *checker) allgather(w *World, ops []*coll.Ops) {
	for _, count := range counts {
		var want []byte
		for r := range w.peers {
			want = append(want, fill(count, r)...)
		}
		k.run(w, fmt.Sprintf("%d bytes each", count), func(ctx context.Context, p *Peer) error {
			send, recv := fill(count, p.Rank()), fill(len(want), 200)
			if err := ops[p.Rank()].Allgather(ctx, p, send, recv); err != nil {
				return err
			}
			return errors.Join(same(p, "recv", recv, want), same(p, "send", send, fill(count, p.Rank())))
		})
	}
}

func (k *checker) allreduce(w *World, ops []*coll.Ops) {
	k.reductions(w, []int{everyone}, func(ctx context.Context, p *Peer, send, recv []byte, r coll.Reducer, _ int) error {
		return ops[p.Rank()].Allreduce(ctx, p, send, recv, r)
	})
}

func (k *checker) reduce(w *World, ops []*coll.Ops) {
	var roots []int
	for r := range w.peers {
		roots = append(roots, r)
	}
	k.reductions(w, roots, func(ctx context.Context, p *Peer, send, recv []byte, r coll.Reducer, root int) error {
		return ops[p.Rank()].Reduce(ctx, p, send, recv, r, root)
	})
}

// everyone is the root of a reduction whose result all members get.
const everyone = -1

// reductions checks everything that reductions differ in.
func (k *checker) reductions(w *World, roots []int, do func(ctx context.Context, p *Peer, send, recv []byte, r coll.Reducer, root int) error) {
	check := func(count int, e element, inPlace bool, root int, want []byte) {
		k.run(w, fmt.Sprintf("%s, %d elements, in place %v, to %d", e.name, count, inPlace, root), func(ctx context.Context, p *Peer) error {
			send := e.fill(count, p.Rank())
			var recv []byte
			gets := root == everyone || root == p.Rank()
			switch {
			case gets && inPlace:
				recv = send
			case gets:
				recv = fill(len(send), 200)
			}
			if err := do(ctx, p, send, recv, e.reducer(), root); err != nil {
				return err
			}
			if gets {
				if err := same(p, "recv", recv, want); err != nil || inPlace {
					return err
				}
			}
			return same(p, "send", send, e.fill(count, p.Rank()))
		})
	}
	for _, count := range counts {
		for _, e := range elements {
			want := e.expect(len(w.peers), count)
			for _, root := range roots {
				check(count, e, false, root, want)
				check(count, e, true, root, want)
			}
		}
	}
}

var (
	errFault     = errors.New("colltest: fault")
	errSwallowed = errors.New("no error")
)

// faults fails each of the first sends and receives of each member in turn: that
// member must return just this error, all others must return, and memory must be
// back.
func (k *checker) faults(o operation) {
	k.offered(o, func(n int) {
		for rank := range n {
			for at := 1; at <= 4; at++ {
				k.fault(n, rank, at, o)
			}
		}
	})
}

func (k *checker) fault(n, rank, at int, o operation) {
	w := NewWorld(n, Options{FailRank: rank, FailAt: at})
	ops := k.query(w)
	ctx, cancel := context.WithTimeout(k.Context(), stuck)
	defer cancel()
	errs := w.Run(ctx, func(ctx context.Context, p *Peer) error {
		err := o.once(ctx, p, ops[p.Rank()])
		if err == nil && p.rank == rank && p.ops >= at {
			return errSwallowed // so that the others are released
		}
		return err
	})
	if ctx.Err() != nil {
		k.Fatalf("%d members: somebody hangs after operation %d of rank %d failed", n, at, rank)
	}
	for r, p := range w.peers {
		if kept := p.scratch.Load(); kept != 0 {
			k.Fatalf("%d members: rank %d keeps %d pieces of scratch memory after operation %d of rank %d failed", n, r, kept, at, rank)
		}
	}
	if w.peers[rank].ops >= at && !errors.Is(errs[rank], errFault) {
		k.Fatalf("%d members: rank %d returns %v instead of the error of its operation %d", n, rank, errs[rank], at)
	}
}

func same(p *Peer, what string, got, want []byte) error {
	if err := kittest.Differ(got, want); err != nil {
		return fmt.Errorf("rank %d: wrong %s: %w", p.Rank(), what, err)
	}
	return nil
}
