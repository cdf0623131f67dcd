package conform

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/ferrympi/ferry/mpi"
)

// changeCases are the cases that add processes. Each removes those that it has added. The first processes never leave, since they run
// the other cases.
func changeCases() []Case {
	all := []Case{
		psetCase("grow and shrink", (*env).growAndShrink),
		psetCase("add and sub, with a provided name", (*env).addAndSub),
		psetCase("replace", (*env).replace),
		psetCase("grow in two steps", (*env).growTwice),
		psetCase("asynchronous change", (*env).asyncChange),
		psetCase("waiting queries", (*env).waitingQueries),
		psetCase("another change of the same processes is refused", (*env).overlap),
		psetCase("integrate another delta", (*env).wrongDelta),
		psetCase("two provided names", (*env).twoProviders),
		psetCase("limit of the job", (*env).limitOfTheJob),
		psetCase("an added process ends before the integration", (*env).endBeforeIntegration),
		psetCase("the creator of a set has ended", (*env).creatorHasEnded),
	}
	for i := range all {
		all[i].AddsProcesses = true
	}
	return all
}

func (e *env) growAndShrink() {
	m := e.adds(Room)
	n, me := m.c.Size(), m.c.Rank()
	added := m.added()
	first := n - added
	g := m.group(m.session, m.mainPset)
	m.must(added == Room && g.Rank() == me && m.c.Group().Compare(g) == mpi.Identical, "rank %d of %d in the main set, %d in its communicator", g.Rank(), n, me)
	m.must((e.roleStage > 0) == (me >= first), "rank %d of the main set is an added process: %t", me, e.roleStage > 0)
	for _, x := range g.Members()[:first] {
		m.must(x.Namespace == g.Members()[first].Namespace && x.Rank < g.Members()[first].Rank, "the added process has rank %d, after %d", g.Members()[first].Rank, x.Rank)
	}
	info := need(m.session.PsetInfo(m.ctx, worldPset))(m.env)
	want := first
	if e.roleStage > 0 {
		want = Room
	}
	m.must(info.Size == want && info.Included, "WORLD is %+v, want %d members", info, want)
	m.exchanges()
	m.restores()
}

// addAndSub requests the deltas alone, and makes the main sets by further operations.
func (e *env) addAndSub() {
	var m *members
	if e.roleStage > 0 {
		m = e.joins()
	} else {
		m = e.world().change(mpi.PsetAdd, mpi.PsetArgs{Add: 1, Name: "conform.delta"})
	}
	info := need(m.session.PsetInfo(m.ctx, "conform.delta"))(m.env)
	m.must(info.Size == 1 && info.Dynamic && info.Included == (e.roleStage > 0), "the delta is %+v", info)
	m.exchanges()
	m.change(mpi.PsetSub, mpi.PsetArgs{Sub: 1}).discards()
}

// replace makes one process leave and another one join.
func (e *env) replace() {
	m := (*members)(nil)
	if e.roleStage < 2 {
		m = e.adds(1)
		m.exchanges()
		m = m.change(mpi.PsetReplace, mpi.PsetArgs{Add: 1, Sub: 1, Name: "conform.replaced"})
	} else {
		m = e.joins()
	}
	if m != nil {
		m.must(m.mainPset == "conform.replaced", "the main set is %q", m.mainPset)
		m.exchanges()
	}
	m.restores()
}

// growTwice adds a process twice. The first one takes part in the second change.
func (e *env) growTwice() {
	m := (*members)(nil)
	if e.roleStage < 2 {
		if room := e.room(); room < Room {
			e.Skipf("the job has room for %d processes, and the case adds %d", room, Room)
		}
		m = e.adds(1)
		m.exchanges()
		m = m.change(mpi.PsetGrow, mpi.PsetArgs{Add: 1})
	} else {
		m = e.joins()
	}
	added := m.added()
	m.must(added == 2, "%d processes were added", added)
	m.exchanges()
	m.restores()
}

// asyncChange exchanges messages during the calls.
func (e *env) asyncChange() {
	var m *members
	if e.roleStage > 0 {
		c := need(e.session.ResourceChangeAsync(selfPset).Wait(e.ctx))(e)
		got := need(e.session.IntegrateAsync(c.Delta, "").Wait(e.ctx))(e)
		m = e.of(got.Pset)
	} else {
		w := e.world()
		change := e.session.ResourceChangeAsync(worldPset)
		if e.c.Rank() == 0 {
			w.meanwhile(e.session.PsetOpAsync(mpi.PsetUnion, []string{worldPset}, mpi.PsetArgs{Name: "conform.union"}).Done())
		}
		r := w.request(mpi.PsetGrow, mpi.PsetArgs{Add: 1})
		c := need(change.Wait(e.ctx))(e)
		e.must(c == mpi.Change{Type: mpi.ChangeAdd, Delta: r.JoiningPset, Main: r.MainPset}, "the change is %+v", c)
		f := e.session.IntegrateAsync(c.Delta, "")
		w.meanwhile(f.Done())
		m = w.enters(r, false, need(f.Wait(e.ctx))(e))
		if e.c.Rank() == 0 {
			need(e.session.FinishChangeAsync(r.JoiningPset).Wait(e.ctx))(e)
			need(e.session.DeletePsetAsync("conform.union").Wait(e.ctx))(e)
		}
	}
	m.exchanges()
	m.restores()
}

// meanwhile exchanges messages with itself until done is closed.
func (m *members) meanwhile(done <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		case <-m.ctx.Done():
			m.Check(m.ctx.Err())
		default:
		}
		me, in := m.c.Rank(), make([]byte, 8)
		m.status("receive", me, 5, 8)(m.c.Sendrecv(m.ctx, pattern(8, me, i), me, 5, in, me, 5))
		m.Same("receive", in, pattern(8, me, i))
	}
}

// waitingQueries checks that a process gets each change once from queries that wait, and any number of times from
// those that return at once.
func (e *env) waitingQueries() {
	m := e.adds(1)
	s := e.open()
	main := s.ResourceChangeAsync(m.mainPset)
	m.barrier()
	r := m.request(mpi.PsetShrink, mpi.PsetArgs{Sub: 1})
	want := mpi.Change{Type: mpi.ChangeSub, Delta: r.LeavingPset, Main: r.MainPset, Included: e.roleStage > 0}
	c := need(main.Wait(m.ctx))(m.env)
	m.must(c == want, "the change is %+v, want %+v", c, want)
	again := []*mpi.Future[mpi.Change]{s.ResourceChangeAsync(m.mainPset), s.ResourceChangeAsync(selfPset)}
	m = m.integrate(r)
	for _, f := range again {
		c, err := f.Wait(e.ended()) // Rank 0 may have deleted the set.
		e.must(err != nil, "the change %+v is reported again", c)
	}
	e.Check(s.Close())
	m.discards()
}

// overlap checks that errors name the change in progress.
func (e *env) overlap() {
	m := e.adds(1)
	r := m.request(mpi.PsetShrink, mpi.PsetArgs{Sub: 1})
	right := mpi.PsetArgs{Add: 1, Sub: 1, Partial: true}
	if m.c.Rank() == 0 {
		for _, op := range []mpi.PsetOp{mpi.PsetAdd, mpi.PsetSub, mpi.PsetGrow, mpi.PsetShrink, mpi.PsetReplace} {
			for _, pset := range []string{m.mainPset, worldPset, r.LeavingPset} {
				m.refused(op, right, mpi.ErrPending, r.LeavingPset, pset)
			}
		}
		// Under other launchers than ferry run, rank 0 of the job can't leave.
		m.refused(mpi.PsetAdd, right, mpi.ErrPending, r.LeavingPset, selfPset)
		m.refused(mpi.PsetGrow, right, mpi.ErrPending, r.LeavingPset, selfPset)
		for _, name := range []string{m.mainPset, r.LeavingPset, r.MainPset} {
			err := m.session.DeletePset(m.ctx, name)
			m.Is("delete a set of a change", err, mpi.ErrPending)
			m.must(strings.Contains(err.Error(), r.LeavingPset), "%v does not name the change %q", err, r.LeavingPset)
		}
		m.Is("finish a change before its integration", m.session.FinishChange(m.ctx, r.LeavingPset), mpi.ErrPending)
	}
	m.barrier()
	m.integrate(r).discards()
}

// wrongDelta checks that the error comes at once, while the other members wait.
func (e *env) wrongDelta() {
	m := e.adds(1)
	r := m.request(mpi.PsetShrink, mpi.PsetArgs{Sub: 1})
	leaves := m.sees(r)
	n, me := m.c.Size(), m.c.Rank()
	var waits *mpi.Future[mpi.Integration]
	if me != n-1 {
		waits = m.session.IntegrateAsync(r.LeavingPset, "")
	} else {
		_, withdrawn := m.session.Integrate(m.ended(), r.LeavingPset, "")
		m.Is("an integration whose context has ended", withdrawn, errEnded)
		for _, name := range []string{m.mainPset, r.MainPset, "conform.none"} {
			_, integrate := m.session.Integrate(m.ctx, name, "")
			for _, err := range []error{integrate, m.session.FinishChange(m.ctx, name)} {
				m.Is(fmt.Sprintf("integrate %q", name), err, mpi.ErrPset)
				m.must(strings.Contains(err.Error(), r.LeavingPset), "%v does not name the delta %q", err, r.LeavingPset)
			}
		}
	}
	m.barrier()
	if waits != nil {
		unended(m.env, waits)
	}
	m.barrier()
	if waits == nil {
		waits = m.session.IntegrateAsync(selfPset, "") // It leaves.
	}
	m.enters(r, leaves, need(waits.Wait(m.ctx))(m.env)).discards()
}

// twoProviders checks that the change stays after the error, until one name is provided.
func (e *env) twoProviders() {
	m := e.adds(1)
	r := m.request(mpi.PsetShrink, mpi.PsetArgs{Sub: 1})
	leaves := m.sees(r)
	n, me := m.c.Size(), m.c.Rank()
	provide := map[int]string{0: "conform.0", n - 1: "conform.1"}[me]
	_, err := m.session.Integrate(m.ctx, r.LeavingPset, provide)
	m.Is("two names", err, mpi.ErrPset)
	m.must(strings.Contains(err.Error(), "conform.0") && strings.Contains(err.Error(), "conform.1"), "%v does not give both names", err)
	m.sees(r)
	m.barrier()
	if provide = ""; me == n-1 {
		provide = r.MainPset
	}
	m.enters(r, leaves, need(m.session.Integrate(m.ctx, r.LeavingPset, provide))(m.env)).discards()
}

var fits = regexp.MustCompile(`\b(\d+) fit\b`)

const tooMany = 1 << 20

// room is the number of processes that fit, as an error gives it.
func (e *env) room() (room int) {
	if e.roleStage > 0 {
		return Room // The case has begun.
	}
	e.creatingNothing(func() {
		_, err := e.session.PsetOp(e.ctx, mpi.PsetGrow, []string{worldPset}, mpi.PsetArgs{Add: tooMany})
		e.Is("grow beyond the limit", err, mpi.ErrUnsupported)
		if found := fits.FindStringSubmatch(err.Error()); found != nil {
			room, _ = strconv.Atoi(found[1])
		}
	})
	return share(e, room)
}

// limitOfTheJob checks that Partial adds as many processes as fit.
func (e *env) limitOfTheJob() {
	if e.roleStage > 0 {
		e.joins().restores()
		return
	}
	const most = 8
	room := e.room()
	if room > most {
		e.Skipf("the job has room for %d processes, and the case adds at most %d", room, most)
	}
	m := e.world().change(mpi.PsetGrow, mpi.PsetArgs{Add: tooMany, Partial: true})
	m.must(m.c.Size() == e.c.Size()+room, "%d processes in place of %d: %d fit", m.c.Size(), e.c.Size(), room)
	m.restores()
}

// endBeforeIntegration checks that the end of an added process undoes the change.
func (e *env) endBeforeIntegration() {
	if e.roleStage > 0 {
		return
	}
	r := e.world().request(mpi.PsetGrow, mpi.PsetArgs{Add: 1})
	_, err := e.session.Integrate(e.ctx, r.JoiningPset, "")
	e.Is("integrate with a process that ends", err, mpi.ErrProcFailed)
	_, err = e.session.Integrate(e.ctx, r.JoiningPset, "")
	e.Is("a late integrate", err, mpi.ErrProcFailed)
	for _, name := range r.sets() {
		_, err := e.session.Group(e.ctx, name)
		e.Is("a set of a change that is undone", err, mpi.ErrPset)
	}
	c, ok, err := e.session.ResourceChange(e.ctx, worldPset)
	e.must(!ok && err == nil, "WORLD has the change %+v, %v", c, err)
}

// creatorHasEnded checks that a member deletes the set.
func (e *env) creatorHasEnded() {
	m := e.adds(1)
	const name = "conform.orphan"
	if e.roleStage > 0 {
		need(m.session.PsetOp(m.ctx, mpi.PsetUnion, []string{m.mainPset}, mpi.PsetArgs{Name: name}))(m.env)
	}
	m.barrier()
	if e.roleStage == 0 {
		m.Is("delete another's set", m.session.DeletePset(m.ctx, name), mpi.ErrPset)
	}
	m.restores()
	if e.roleStage == 0 && e.c.Rank() == e.c.Size()-1 {
		e.Until("delete a set whose creator has left", func() bool { return e.session.DeletePset(e.ctx, name) == nil })
	}
}
