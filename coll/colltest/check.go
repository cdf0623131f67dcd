package colltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
)

// Run checks c as a test.
func Run(t *testing.T, c coll.Component) {
	t.Helper()
	for _, err := range Check(t.Context(), c) {
		t.Error(err)
	}
}

// stuck is how long one operation may take before it counts as a deadlock. It
// bounds a failure; nothing that passes comes near it.
const stuck = 30 * time.Second

var (
	sizes  = []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	counts = []int{0, 1, 2, 7, 100, 1000}
)

// Check runs every operation that c offers over communicators of 1 to 9
// members, with 0 to 1000 elements, all roots, in place and not, operations that
// commute and one that does not, buffered and synchronous sends, and a member
// that fails. It returns what was wrong, and stops early after a few errors or
// when ctx ends.
func Check(ctx context.Context, c coll.Component) []error {
	k := &checker{ctx: ctx, component: c}
	if p := c.Params(); p != nil {
		framework.FillDefaults(p)
		k.params = p
	}
	if v := c.Probe(ctx, k.params); v.Status != framework.StatusUsable {
		return []error{fmt.Errorf("not usable here: %v", v)}
	}
	for _, n := range sizes {
		for _, synchronous := range []bool{false, true} {
			k.size(n, Options{Synchronous: synchronous})
		}
		k.faults(n)
	}
	return k.errs
}

type checker struct {
	ctx       context.Context
	component coll.Component
	params    any
	errs      []error
	hung      bool // a deadlock: each further one would cost as much time
}

const enough = 10 // errors, after which more would only hide the first

func (k *checker) fail(format string, args ...any) {
	k.errs = append(k.errs, fmt.Errorf(format, args...))
}

func (k *checker) done() bool { return k.hung || len(k.errs) >= enough || k.ctx.Err() != nil }

// query asks every member, and checks that they come to the same answer.
func (k *checker) query(w *World) []*coll.Ops {
	ops := make([]*coll.Ops, len(w.peers))
	for r, p := range w.peers {
		if ops[r] = k.component.Query(k.params, p); ops[r] == nil {
			ops[r] = &coll.Ops{}
		}
		if offers(ops[r]) != offers(ops[0]) || ops[r].Priority != ops[0].Priority {
			k.fail("size %d: Query of rank %d comes to another answer than that of rank 0", len(w.peers), r)
		}
		if p.ops != 0 {
			k.fail("size %d: Query sends or receives", len(w.peers))
		}
	}
	return ops
}

func offers(o *coll.Ops) [5]bool {
	return [5]bool{o.Barrier != nil, o.Bcast != nil, o.Reduce != nil, o.Allreduce != nil, o.Allgather != nil}
}

func (k *checker) size(n int, opt Options) {
	w := NewWorld(n, opt)
	ops := k.query(w)
	name := func(op string, rest ...any) string {
		return fmt.Sprintf("%s, %d members, synchronous %v %v", op, n, opt.Synchronous, rest)
	}
	if ops[0].Barrier != nil {
		k.barrier(w, ops, name("barrier"))
	}
	for _, count := range counts {
		if ops[0].Allgather != nil && !k.done() {
			k.allgather(w, ops, count, name("allgather", count))
		}
		for _, e := range elements {
			for _, inPlace := range []bool{false, true} {
				if ops[0].Allreduce != nil && !k.done() {
					k.allreduce(w, ops, e, count, inPlace, name("allreduce", e.name, count, inPlace))
				}
				for root := 0; root < n && ops[0].Reduce != nil && !k.done(); root++ {
					k.reduce(w, ops, e, count, inPlace, root, name("reduce", e.name, count, inPlace, root))
				}
			}
		}
		for root := 0; root < n && ops[0].Bcast != nil && !k.done(); root++ {
			k.bcast(w, ops, count, root, name("bcast", count, root))
		}
	}
}

// run calls f in all members and checks that none fails and nothing is left.
func (k *checker) run(w *World, name string, f func(ctx context.Context, p *Peer) error) bool {
	ctx, cancel := context.WithTimeout(k.ctx, stuck)
	defer cancel()
	before := len(k.errs)
	if err := errors.Join(w.Run(ctx, f)...); err != nil {
		k.hung = ctx.Err() != nil
		k.fail("%s: %w", name, err)
	}
	if err := w.Left(); err != nil {
		k.fail("%s: %w", name, err)
	}
	return len(k.errs) == before
}

// barrier checks that nobody leaves before all have entered: each member enters
// only after the one before it, so that an early leaver sees too few.
func (k *checker) barrier(w *World, ops []*coll.Ops, name string) {
	n := len(w.peers)
	entered := make([]chan struct{}, n)
	for i := range entered {
		entered[i] = make(chan struct{})
	}
	k.run(w, name, func(ctx context.Context, p *Peer) error {
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

func (k *checker) bcast(w *World, ops []*coll.Ops, count, root int, name string) {
	want := fill(count, root)
	k.run(w, name, func(ctx context.Context, p *Peer) error {
		buf := fill(count, p.Rank())
		if err := ops[p.Rank()].Bcast(ctx, p, buf, root); err != nil {
			return err
		}
		return same(p, "buf", buf, want)
	})
}

func (k *checker) allgather(w *World, ops []*coll.Ops, count int, name string) {
	var want []byte
	for r := range w.peers {
		want = append(want, fill(count, r)...)
	}
	k.run(w, name, func(ctx context.Context, p *Peer) error {
		send, recv := fill(count, p.Rank()), fill(len(want), 200)
		if err := ops[p.Rank()].Allgather(ctx, p, send, recv); err != nil {
			return err
		}
		return errors.Join(same(p, "recv", recv, want), same(p, "send", send, fill(count, p.Rank())))
	})
}

func (k *checker) allreduce(w *World, ops []*coll.Ops, e element, count int, inPlace bool, name string) {
	want := e.expect(len(w.peers), count)
	k.run(w, name, func(ctx context.Context, p *Peer) error {
		send := e.fill(count, p.Rank())
		recv := send
		if !inPlace {
			recv = fill(len(send), 200)
		}
		if err := ops[p.Rank()].Allreduce(ctx, p, send, recv, e.reducer()); err != nil {
			return err
		}
		if !inPlace {
			if err := same(p, "send", send, e.fill(count, p.Rank())); err != nil {
				return err
			}
		}
		return same(p, "recv", recv, want)
	})
}

func (k *checker) reduce(w *World, ops []*coll.Ops, e element, count int, inPlace bool, root int, name string) {
	want := e.expect(len(w.peers), count)
	k.run(w, name, func(ctx context.Context, p *Peer) error {
		send := e.fill(count, p.Rank())
		var recv []byte
		if p.Rank() == root {
			recv = send
			if !inPlace {
				recv = fill(len(send), 200)
			}
		}
		if err := ops[p.Rank()].Reduce(ctx, p, send, recv, e.reducer(), root); err != nil {
			return err
		}
		if p.Rank() == root {
			if err := same(p, "recv", recv, want); err != nil || inPlace {
				return err
			}
		}
		return same(p, "send", send, e.fill(count, p.Rank()))
	})
}

var (
	errFault     = errors.New("colltest: fault")
	errSwallowed = errors.New("no error")
)

// faults fails each of the first operations of each member in turn: that member
// must return just this error, all others must return, and memory must be back.
func (k *checker) faults(n int) {
	e := elements[len(elements)-1]
	calls := map[string]func(ctx context.Context, p *Peer, o *coll.Ops) error{
		"barrier": func(ctx context.Context, p *Peer, o *coll.Ops) error { return o.Barrier(ctx, p) },
		"bcast":   func(ctx context.Context, p *Peer, o *coll.Ops) error { return o.Bcast(ctx, p, fill(64, 1), n-1) },
		"reduce": func(ctx context.Context, p *Peer, o *coll.Ops) error {
			return o.Reduce(ctx, p, e.fill(3, p.Rank()), e.fill(3, 0), e.reducer(), n-1)
		},
		"allreduce": func(ctx context.Context, p *Peer, o *coll.Ops) error {
			return o.Allreduce(ctx, p, e.fill(3, p.Rank()), e.fill(3, 0), e.reducer())
		},
		"allgather": func(ctx context.Context, p *Peer, o *coll.Ops) error {
			return o.Allgather(ctx, p, fill(64, 1), fill(64*n, 1))
		},
	}
	have := k.query(NewWorld(n, Options{}))[0]
	offered := map[string]bool{"barrier": have.Barrier != nil, "bcast": have.Bcast != nil, "reduce": have.Reduce != nil,
		"allreduce": have.Allreduce != nil, "allgather": have.Allgather != nil}
	for name, call := range calls {
		for rank := 0; rank < n && offered[name] && !k.done(); rank++ {
			for at := 1; at <= 4; at++ {
				k.fault(n, rank, at, name, call)
			}
		}
	}
}

func (k *checker) fault(n, rank, at int, name string, call func(context.Context, *Peer, *coll.Ops) error) {
	w := NewWorld(n, Options{FailRank: rank, FailAt: at, FailWith: errFault})
	ops := k.query(w)
	ctx, cancel := context.WithTimeout(k.ctx, stuck)
	defer cancel()
	errs := w.Run(ctx, func(ctx context.Context, p *Peer) error {
		err := call(ctx, p, ops[p.Rank()])
		if err == nil && p.rank == rank && p.ops >= at {
			return errSwallowed // so that the others are released
		}
		return err
	})
	for r, p := range w.peers {
		if n := p.scratch.Load(); n != 0 {
			k.fail("%s, %d members: rank %d keeps %d pieces of scratch memory after operation %d of rank %d failed", name, len(w.peers), r, n, at, rank)
		}
	}
	if w.peers[rank].ops >= at && !errors.Is(errs[rank], errFault) {
		k.fail("%s, %d members: rank %d returns %v instead of the error of its operation %d", name, n, rank, errs[rank], at)
	}
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		k.hung = true
		k.fail("%s, %d members: somebody hangs after operation %d of rank %d failed", name, n, at, rank)
	}
}

func same(p *Peer, what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("rank %d: wrong %s (%d bytes) from byte %d on", p.Rank(), what, len(got), at)
}
