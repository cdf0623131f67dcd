package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/mpi"
)

const (
	worldPset = "mpi://WORLD"
	selfPset  = "mpi://SELF"
)

// psetCases are the cases about process sets and changes of the job.
func psetCases() []Case {
	return slices.Concat([]Case{
		psetCase("union, difference, intersection", (*env).psetAlgebra),
		psetCase("split", (*env).psetSplit),
		psetCase("names", (*env).psetNames),
		psetCase("bad operands and names", (*env).psetBadNames),
		psetCase("bad numbers", (*env).psetBadNumbers),
		psetCase("deletion", (*env).psetDeletion),
		psetCase("no change of a set", (*env).psetNoChange),
		psetCase("published data", (*env).psetData),
		psetCase("lookup of a key to come", (*env).psetDataToCome),
		psetCase("asynchronous calls", (*env).psetAsync),
	}, changeCases())
}

// psetCase makes a case of the family pset, which is skipped where process sets can't change.
func psetCase(name string, run func(*env)) Case {
	c := of("pset/"+name, "", 1, func(e *env) {
		if e.roleStage == 0 { // To an added process the query would give the change.
			_, _, err := e.session.ResourceChange(e.ctx, worldPset)
			if errors.Is(err, mpi.ErrUnsupported) {
				e.Skipf("%v", err)
			}
			e.Check(err)
			e.barrier() // Otherwise the query may be given the first change of the case.
		}
		run(e)
	})
	c.IsOfProcesses = true
	return c
}

// share returns rank 0's value in all ranks.
func share[V any](e *env, mine V) V {
	text, err := json.Marshal(mine)
	e.Check(err)
	size := []int{len(text)}
	e.Check(mpi.Bcast(e.ctx, e.c, size, 0))
	if e.c.Rank() != 0 {
		text = make([]byte, size[0])
	}
	e.Check(mpi.Bcast(e.ctx, e.c, text, 0))
	var all V
	e.Check(json.Unmarshal(text, &all))
	return all
}

// operate performs an operation on sets in rank 0, and returns the names in all ranks.
func (e *env) operate(op mpi.PsetOp, args mpi.PsetArgs, psets ...string) []string {
	var names []string
	if e.c.Rank() == 0 {
		names = need(e.session.PsetOp(e.ctx, op, psets, args))(e)
	}
	return share(e, names)
}

// deletes deletes sets in rank 0, when all ranks have used them.
func (e *env) deletes(names ...string) {
	e.barrier()
	if e.c.Rank() != 0 {
		return
	}
	for _, name := range names {
		e.Check(e.session.DeletePset(e.ctx, name))
	}
}

// isPset checks that a set has the given ranks of mpi://WORLD as its members, and that these can communicate.
func (e *env) isPset(name string, ranks ...int) {
	g := e.group(e.session, name)
	e.in(name, g, e.group(e.session, worldPset), ranks...)
	info := need(e.session.PsetInfo(e.ctx, name))(e)
	included := slices.Contains(ranks, e.c.Rank())
	e.must(info.Size == len(ranks) && info.Dynamic && info.Included == included, "%q: %+v, want %d members, included %t", name, info, len(ranks), included)
	names := need(e.session.Psets(e.ctx))(e)
	e.must(slices.Contains(names, name), "%q is not in the list %q", name, names)
	if included {
		e.works(e.fromTag(g, "conform.pset"))
	}
}

// psetAlgebra checks the members of the results. The first operand decides their order.
func (e *env) psetAlgebra() {
	n := e.c.Size()
	others := upTo(n)[1:]
	rest := e.operate(mpi.PsetDifference, mpi.PsetArgs{}, worldPset, selfPset)[0] // SELF is rank 0's.
	e.isPset(rest, others...)
	made := []string{rest}
	check := func(op mpi.PsetOp, want []int, psets ...string) {
		names := e.operate(op, mpi.PsetArgs{}, psets...)
		e.must(len(names) == 1 && !slices.Contains(made, names[0]), "%v of %q: %q", op, psets, names)
		made = append(made, names[0])
		e.isPset(names[0], want...)
	}
	check(mpi.PsetUnion, upTo(n), worldPset)
	check(mpi.PsetUnion, upTo(n), selfPset, worldPset)
	check(mpi.PsetIntersection, []int{0}, worldPset, selfPset)
	check(mpi.PsetDifference, nil, worldPset, worldPset)
	if n > 1 { // Else the rest has no members.
		check(mpi.PsetUnion, append(others, 0), rest, selfPset)
		check(mpi.PsetUnion, append(others, 0), rest, worldPset, selfPset)
		check(mpi.PsetIntersection, others, rest, worldPset)
		check(mpi.PsetIntersection, nil, worldPset, rest, selfPset)
		check(mpi.PsetDifference, nil, worldPset, rest, selfPset)
	}
	e.deletes(made...)
}

func (e *env) psetSplit() {
	n := e.c.Size()
	parts := e.operate(mpi.PsetSplit, mpi.PsetArgs{Sizes: []int{1, 0, n - 1}}, worldPset)
	e.must(len(parts) == 3, "3 sizes: %q", parts)
	e.isPset(parts[0], 0)
	e.isPset(parts[1])
	e.isPset(parts[2], upTo(n)[1:]...)
	single := e.operate(mpi.PsetSplit, mpi.PsetArgs{Sizes: slices.Repeat([]int{1}, n)}, worldPset)
	e.must(len(single) == n, "%d sizes: %q", n, single)
	for rank, name := range single {
		e.isPset(name, rank)
	}
	e.deletes(slices.Concat(parts, single)...)
}

// psetNames checks that names hold arbitrary bytes, and that they compare without regard to case.
func (e *env) psetNames() {
	names := []string{"conform \x00 \xff/é", "conform \x00 \xfe/é", strings.Repeat("conform", 10), "c"}
	for _, name := range names {
		if e.c.Rank() == 0 {
			got := need(e.session.PsetOp(e.ctx, mpi.PsetUnion, []string{worldPset}, mpi.PsetArgs{Name: name}))(e)
			e.must(slices.Equal(got, []string{name}), "%q is the name of %q", got, name)
		}
	}
	e.barrier()
	for _, name := range names {
		e.isPset(name, upTo(e.c.Size())...)
		other := strings.NewReplacer("c", "C", "é", "É").Replace(name)
		info := need(e.session.PsetInfo(e.ctx, other))(e)
		e.must(info.Name == name, "%q is the set %q", other, info.Name)
	}
	e.deletes(names...)
}

func (e *env) psetNoChange() {
	name := e.operate(mpi.PsetUnion, mpi.PsetArgs{}, worldPset)[0]
	for _, pset := range []string{worldPset, selfPset, name} {
		c, ok, err := e.session.ResourceChange(e.ctx, pset)
		e.must(!ok && err == nil, "%q has the change %+v, %v", pset, c, err)
	}
	for _, pset := range []string{worldPset, selfPset} {
		_, err := e.session.Integrate(e.ctx, pset, "")
		e.Is(fmt.Sprintf("integrate %q", pset), err, mpi.ErrPset)
		e.Is(fmt.Sprintf("finish %q", pset), e.session.FinishChange(e.ctx, pset), mpi.ErrPset)
	}
	e.deletes(name)
}
