package conform

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/mpi"
)

// members are the processes of a main set, those of WORLD first, and then added ones. The env has their
// communicator.
type members struct {
	*env
	// The name of the main set.
	mainPset     string
	createdPsets []string
	// Number of changes that have added processes. Valid in rank 0.
	addedStages int
}

// A request is a change that rank 0 has requested.
type request struct {
	psetOp mpi.PsetOp
	// MainPset is made of the deltas for an operation that creates no main set.
	LeavingPset, JoiningPset, MainPset string
}

// delta is the name that a process uses for the change.
func (r request) delta() string {
	if r.LeavingPset != "" {
		return r.LeavingPset
	}
	return r.JoiningPset
}

func (r request) kind() mpi.ChangeType {
	switch r.psetOp {
	case mpi.PsetAdd, mpi.PsetGrow:
		return mpi.ChangeAdd
	case mpi.PsetSub, mpi.PsetShrink:
		return mpi.ChangeSub
	}
	return mpi.ChangeReplace
}

// createsMain reports whether the operation creates the main set.
func (r request) createsMain() bool { return r.psetOp != mpi.PsetAdd && r.psetOp != mpi.PsetSub }

func (r request) sets() []string {
	return slices.DeleteFunc([]string{r.LeavingPset, r.JoiningPset, r.MainPset}, func(s string) bool { return s == "" })
}

// world are the first processes.
func (e *env) world() *members { return &members{env: e, mainPset: worldPset} }

// request requests a change in rank 0. If it adds processes, they enter the case at the next stage. Without
// room for the first ones the case is skipped.
func (m *members) request(op mpi.PsetOp, args mpi.PsetArgs) request {
	type answer struct {
		Request     request
		Err         string
		Unsupported bool
	}
	var mine answer
	if m.c.Rank() == 0 {
		var err error
		if mine.Request, err = m.operateOnce(op, args); err != nil {
			mine.Err, mine.Unsupported = err.Error(), errors.Is(err, mpi.ErrUnsupported)
		}
	}
	all := share(m.env, mine)
	switch {
	case all.Unsupported && m.mainPset == worldPset:
		m.Skipf("%s", all.Err)
	case all.Err != "":
		m.Fatalf("%v: %s", op, all.Err)
	}
	r := all.Request
	r.psetOp = op
	return r
}

// operateOnce is request of rank 0.
func (m *members) operateOnce(op mpi.PsetOp, args mpi.PsetArgs) (r request, err error) {
	names, err := m.session.PsetOp(m.ctx, op, []string{m.mainPset}, args)
	if err != nil {
		return r, err
	}
	switch op {
	case mpi.PsetAdd, mpi.PsetGrow:
		r.JoiningPset = names[0]
	case mpi.PsetSub, mpi.PsetShrink:
		r.LeavingPset = names[0]
	default:
		r.LeavingPset, r.JoiningPset = names[0], names[1]
	}
	r.MainPset = names[len(names)-1]
	if derive := map[mpi.PsetOp]mpi.PsetOp{mpi.PsetAdd: mpi.PsetUnion, mpi.PsetSub: mpi.PsetDifference}[op]; derive != 0 {
		if names, err = m.session.PsetOp(m.ctx, derive, []string{m.mainPset, r.delta()}, mpi.PsetArgs{}); err != nil {
			return r, err
		}
		r.MainPset = names[0]
	}
	if r.JoiningPset != "" {
		err = m.enlist(r.JoiningPset)
	}
	return r, err
}

// change requests a change and integrates it.
func (m *members) change(op mpi.PsetOp, args mpi.PsetArgs) *members {
	return m.integrate(m.request(op, args))
}

// integrate integrates a change in all members, and returns the members of the new main set; nil in a process that leaves.
func (m *members) integrate(r request) *members {
	leaves := m.sees(r)
	provide := ""
	if !r.createsMain() && m.c.Rank() == 0 {
		provide = r.MainPset
	}
	return m.enters(r, leaves, need(m.session.Integrate(m.ctx, r.delta(), provide))(m.env))
}

// sees checks the answers of queries to a change, and reports whether this process leaves by it.
func (m *members) sees(r request) (leaves bool) {
	leaves = r.LeavingPset != "" && m.group(m.session, r.LeavingPset).Rank() != mpi.Undefined
	want := mpi.Change{Type: r.kind(), Delta: r.delta(), Included: leaves}
	if r.createsMain() {
		want.Main = r.MainPset
	}
	for range 2 {
		got, ok, err := m.session.ResourceChange(m.ctx, m.mainPset)
		m.must(ok && err == nil && got == want, "the change of %q is %+v, %t, %v; want %+v", m.mainPset, got, ok, err, want)
	}
	got, ok, err := m.session.ResourceChange(m.ctx, selfPset)
	m.must(err == nil && ok == leaves && (!leaves || got == want), "the change of SELF is %+v, %t, %v; want %+v, %t", got, ok, err, want, leaves)
	return leaves
}

// enters checks the result of an integration, which rank 0 finishes.
func (m *members) enters(r request, leaves bool, got mpi.Integration) *members {
	m.must(got == mpi.Integration{Pset: r.MainPset, Terminate: leaves}, "integrate %q: %+v, want %q and %t", r.delta(), got, r.MainPset, leaves)
	if m.c.Rank() == 0 {
		m.Check(m.session.FinishChange(m.ctx, r.delta()), m.session.FinishChange(m.ctx, r.delta()))
	}
	m.barrier() // Processes that leave communicate until they end.
	if _, ok, err := m.session.ResourceChange(m.ctx, m.mainPset); ok || err != nil {
		m.Fatalf("%q has a change after its end: %v", m.mainPset, err)
	}
	m.barrier() // The sets are deleted later.
	if m.mainPset != worldPset {
		m.Check(m.c.Close())
	}
	if leaves {
		return nil
	}
	next := m.of(r.MainPset)
	next.createdPsets, next.addedStages = append(m.createdPsets, r.sets()...), m.addedStages
	return next
}

// of returns the members of a main set. It is collective over them.
func (e *env) of(main string) *members {
	next := e.on(e.fromTag(e.group(e.session, main), "conform.members"))
	return &members{env: &next, mainPset: main}
}

// joins integrates the change that has added this process, and returns the members of the new main set.
func (e *env) joins() *members {
	c, ok, err := e.session.ResourceChange(e.ctx, selfPset)
	e.must(ok && err == nil && c.Included && (c.Type == mpi.ChangeAdd || c.Type == mpi.ChangeReplace), "the change of an added process is %+v, %t, %v", c, ok, err)
	mine, delta := e.group(e.session, worldPset), e.group(e.session, c.Delta)
	e.must(mine.Compare(delta) == mpi.Identical, "WORLD has the members %v, and the delta %v", mine.Members(), delta.Members())
	got := need(e.session.Integrate(e.ctx, c.Delta, ""))(e)
	e.must(!got.Terminate && (c.Main == "" || got.Pset == c.Main), "integrate %q: %+v, want %q", c.Delta, got, c.Main)
	return e.of(got.Pset)
}

// adds adds n processes to WORLD. It returns the members of the new main set, in the added processes too.
func (e *env) adds(n int) *members {
	if e.roleStage > 0 {
		return e.joins()
	}
	return e.world().change(mpi.PsetGrow, mpi.PsetArgs{Add: n})
}

// added is the number of members that were added.
func (m *members) added() int {
	return share(m.env, m.c.Size()-m.group(m.session, worldPset).Size()) // Rank 0 is one of the first processes.
}

// restores removes the added processes, and deletes the sets.
func (m *members) restores() {
	if m == nil {
		return // This process has left.
	}
	m.change(mpi.PsetShrink, mpi.PsetArgs{Sub: m.added()}).discards()
}

// discards deletes the sets of a case when the added processes have left.
func (m *members) discards() {
	if m == nil {
		return // This process has left.
	}
	world := m.group(m.session, worldPset)
	m.must(m.c.Group().Compare(world) == mpi.Identical, "the members are %v in the end", m.c.Group().Members())
	m.deletes(m.createdPsets...)
	m.works(m.c)
}

// exchanges checks messages between all pairs of members.
func (m *members) exchanges() {
	n, me := m.c.Size(), m.c.Rank()
	sizes := []int{0, 8, 100 << 10}
	var requests []mpi.Request
	in := map[[2]int][]byte{}
	for i, size := range sizes {
		for peer := range n {
			in[[2]int{peer, i}] = make([]byte, size)
			requests = append(requests, m.irecv(in[[2]int{peer, i}], peer, i))
		}
	}
	for i, size := range sizes {
		for peer := range n {
			requests = append(requests, m.isend(m.c, pattern(size, me, peer), peer, i))
		}
	}
	m.Check(mpi.WaitAll(m.ctx, requests, nil))
	for at, got := range in {
		m.Same(fmt.Sprintf("message %d of rank %d", at[1], at[0]), got, pattern(sizes[at[1]], at[0], me))
	}
	m.works(need(m.c.Dup(m.ctx))(m.env))
}
