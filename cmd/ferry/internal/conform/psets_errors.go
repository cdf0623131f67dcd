package conform

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/mpi"
)

// refused checks that an operation is an error which contains a text, in this rank.
func (e *env) refused(op mpi.PsetOp, args mpi.PsetArgs, want error, text string, psets ...string) {
	names, err := e.session.PsetOp(e.ctx, op, psets, args)
	what := fmt.Sprintf("%v of %q with %+v", op, psets, args)
	if names != nil {
		e.Fatalf("%s: %q, want an error", what, names)
	}
	e.Is(what, err, want)
	e.must(strings.Contains(err.Error(), text), "%s: %v does not contain %s", what, err, text)
}

// creatingNothing checks that calls of rank 0 create no set and no change.
func (e *env) creatingNothing(calls func()) {
	e.barrier()
	before := need(e.session.Psets(e.ctx))(e)
	e.barrier()
	if e.c.Rank() == 0 {
		calls()
	}
	e.barrier()
	after := need(e.session.Psets(e.ctx))(e)
	e.must(slices.Equal(before, after), "the sets were %q, and are %q", before, after)
	c, ok, err := e.session.ResourceChange(e.ctx, worldPset)
	e.must(!ok && err == nil, "the change %+v, %v", c, err)
	e.barrier()
}

func (e *env) psetBadNames() {
	all := e.operate(mpi.PsetUnion, mpi.PsetArgs{Name: "conform.all"}, worldPset)[0]
	empty := e.operate(mpi.PsetDifference, mpi.PsetArgs{Name: "conform.empty"}, worldPset, worldPset)[0]
	deleted := e.operate(mpi.PsetUnion, mpi.PsetArgs{}, worldPset)[0]
	e.deletes(deleted)
	ops := []mpi.PsetOp{mpi.PsetUnion, mpi.PsetDifference, mpi.PsetIntersection, mpi.PsetSplit, mpi.PsetAdd, mpi.PsetSub, mpi.PsetGrow, mpi.PsetShrink, mpi.PsetReplace}
	right := mpi.PsetArgs{Sizes: []int{e.c.Size()}, Add: 1, Sub: 1}
	e.creatingNothing(func() {
		for _, op := range ops {
			e.refused(op, right, mpi.ErrPset, all, "conform.al")
			e.refused(op, right, mpi.ErrPset, "rank 0 deleted it", deleted)
			e.refused(op, right, mpi.ErrPset, empty, empty)
			e.refused(op, right, mpi.ErrPset, "")
			for _, name := range []string{"mpi://conform", "MPIX://conform", "Ferry://conform", worldPset, "CONFORM.all"} {
				named := right
				named.Name = name
				e.refused(op, named, mpi.ErrPset, "", worldPset)
			}
		}
		for _, op := range ops[3:] {
			e.refused(op, right, mpi.ErrPset, "2", worldPset, all)
		}
		e.refused(mpi.PsetUnion, mpi.PsetArgs{}, mpi.ErrPset, all, worldPset, "conform.al")
		e.refused(mpi.PsetSplit, mpi.PsetArgs{Name: "conform.two", Sizes: []int{e.c.Size(), 0}}, mpi.ErrPset, "conform.two", worldPset)
		e.refused(mpi.PsetSplit, mpi.PsetArgs{Sizes: make([]int, 1<<18)}, mpi.ErrUnsupported, "65535", worldPset)
		e.refused(mpi.PsetUnion, mpi.PsetArgs{}, mpi.ErrUnsupported, "", slices.Repeat([]string{worldPset}, 1<<18)...)
		e.refused(mpi.PsetUnion, mpi.PsetArgs{Name: strings.Repeat("n", 1<<18)}, mpi.ErrUnsupported, "", worldPset)
		e.refused(0, right, mpi.ErrUnsupported, "", worldPset)
		e.refused(mpi.PsetReplace+1, right, mpi.ErrUnsupported, "", worldPset)
	})
	for _, name := range []string{"conform.al", deleted} {
		_, _, change := e.session.ResourceChange(e.ctx, name)
		_, integrate := e.session.Integrate(e.ctx, name, "")
		_, group := e.session.Group(e.ctx, name)
		_, lookup := e.session.LookupData(e.ctx, name, "key")
		for _, err := range []error{
			change, integrate, group, lookup, e.session.FinishChange(e.ctx, name), e.session.DeletePset(e.ctx, name), e.session.PublishData(e.ctx, name, "key", nil),
		} {
			e.Is(fmt.Sprintf("a call with %q", name), err, mpi.ErrPset)
		}
	}
	e.deletes(all, empty)
}

func (e *env) psetBadNumbers() {
	n := e.c.Size()
	size := fmt.Sprint(n)
	e.creatingNothing(func() {
		for _, sizes := range [][]int{nil, {n + 1}, {n - 1}, {n, 1}, {-1, n + 1}, {n, 0, -1}, {math.MaxInt, math.MaxInt}, {math.MinInt, n}} {
			e.refused(mpi.PsetSplit, mpi.PsetArgs{Sizes: sizes}, mpi.ErrRank, size, worldPset)
		}
		for _, op := range []mpi.PsetOp{mpi.PsetSub, mpi.PsetShrink, mpi.PsetReplace} {
			for _, sub := range []int{n + 1, -1, math.MaxInt, math.MinInt, 0} { // No member has ended.
				e.refused(op, mpi.PsetArgs{Sub: sub, Add: 1}, mpi.ErrRank, size, worldPset)
			}
		}
		for _, op := range []mpi.PsetOp{mpi.PsetAdd, mpi.PsetGrow, mpi.PsetReplace} {
			for _, add := range []int{0, -1, math.MinInt} {
				for _, partial := range []bool{false, true} {
					args := mpi.PsetArgs{Add: add, Sub: 1, Partial: partial}
					names, err := e.session.PsetOp(e.ctx, op, []string{worldPset}, args)
					e.must(names == nil, "%v with %+v: %q", op, args, names)
					if !errors.Is(err, mpi.ErrUnsupported) { // The launcher may start no processes.
						e.Is(fmt.Sprintf("%v with %+v", op, args), err, mpi.ErrRank)
					}
				}
			}
		}
	})
}

// psetDeletion checks that the creator deletes a set, and that groups of it stay.
func (e *env) psetDeletion() {
	name := e.operate(mpi.PsetUnion, mpi.PsetArgs{Name: "conform.short"}, worldPset)[0]
	g := e.group(e.session, name)
	waits := e.session.LookupDataAsync(name, "never")
	queries := e.session.ResourceChangeAsync(name)
	if e.c.Rank() != 0 {
		e.Is("delete another's set", e.session.DeletePset(e.ctx, name), mpi.ErrPset)
	}
	for _, builtin := range []string{worldPset, selfPset} {
		e.Is("delete "+builtin, e.session.DeletePset(e.ctx, builtin), mpi.ErrPset)
	}
	e.deletes("CONFORM.short")
	_, err := waits.Wait(e.ctx)
	e.Is("a lookup of a set that is deleted", err, mpi.ErrPset)
	_, err = queries.Wait(e.ctx)
	e.Is("a query of a set that is deleted", err, mpi.ErrPset)
	_, err = e.session.Group(e.ctx, name)
	e.Is("a deleted set", err, mpi.ErrPset)
	e.must(strings.Contains(err.Error(), "rank 0 deleted"), "%v does not name the rank that deleted the set", err)
	e.works(e.fromTag(g, "conform.deleted"))
	e.operate(mpi.PsetDifference, mpi.PsetArgs{Name: name}, worldPset, selfPset)
	e.isPset(name, upTo(e.c.Size())[1:]...)
	e.deletes(name)
}

// ended is a context that has ended.
func (e *env) ended() context.Context {
	ctx, cancel := context.WithCancelCause(e.ctx)
	cancel(errEnded)
	return ctx
}
