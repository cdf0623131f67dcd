package bootstraptest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func changeCases() claimList {
	return claimList{
		kittest.New("ChangeShrinks", Want{Size: 4, Timeout: longTimeout}, (*job).shrink),
		kittest.New("ChangeGrows", Want{Size: 2, Timeout: longTimeout, MaxProcs: 4}, (*job).grow),
		kittest.New("ChangeQueryIsWithdrawn", Want{Size: 2, Timeout: longTimeout}, (*job).queryWithdrawn),
		kittest.New("ChangeHasOneProvider", Want{Size: 2, Timeout: longTimeout}, (*job).twoProviders),
		kittest.New("ChangeIsWithdrawnByOneMember", Want{Size: 2, Timeout: longTimeout}, (*job).integrateWithdrawn),
		kittest.New("ChangeIsUndoneByDeadline", Want{Size: 3, Timeout: shortTimeout}, (*job).integrateTimesOut),
		kittest.New("ChangesOfDisjointSets", Want{Size: 4, Timeout: longTimeout}, (*job).disjointChanges),
		kittest.New("ChangeIsUndoneByDeathOfMember", Want{Size: 3, Timeout: longTimeout, MaxProcs: 5}, (*job).memberDiesBeforeIntegration),
		kittest.New("ChangeIsUndoneByDeathOfAddedProcess", Want{Size: 2, Timeout: longTimeout, MaxProcs: 4}, (*job).addedProcessDies),
		kittest.New("ChangeSurvivesLaterDeath", Want{Size: 3, Timeout: longTimeout}, (*job).memberDiesAfterIntegration),
		kittest.New("ChangeReplacesEndedProcesses", Want{Size: 3, Timeout: longTimeout, MaxProcs: 3}, (*job).replaceEnded),
		kittest.New("ChangeRepeats", Want{Size: 1, Timeout: longTimeout, MaxProcs: 3}, (*job).hundredChanges),
	}
}

// A member is an initial or added process of a change.
type member struct {
	bootstrap.Changer
	client bootstrap.Client
	rank   int
}

// member returns a process. It waits for an added one.
func (j *job) member(rank int) member {
	if rank < len(j.Clients) {
		return member{j.changer(rank), j.Clients[rank], rank}
	}
	client, err := j.Added(j.Context(), rank)
	j.Check(err)
	c, ok := framework.As[bootstrap.Changer](client)
	if !ok {
		j.Fatalf("added rank %d can't change the job", rank)
	}
	return member{c, client, rank}
}

func (j *job) allMembers(ranks ...int) (all []member) {
	for _, r := range ranks {
		all = append(all, j.member(r))
	}
	return all
}

// needKillAfterFence skips the case if no process can be killed. Without a launcher that reports deaths,
// a process notices only the deaths of its peers.
func (j *job) needKillAfterFence() {
	j.changer(0)
	j.needKill()
	j.fenceAll("start")
}

// needAddedProcs skips the case if no process can be added.
func (j *job) needAddedProcs() {
	j.changer(0)
	if j.Added == nil {
		j.Skipf("the launcher starts no processes while the job runs")
	}
}

// integrate integrates a change in all members, and finishes it in the first.
func (j *job) integrate(delta, main string, leaving []int, members ...member) {
	j.Each(len(members), func(i int) {
		m := members[i]
		got, err := m.Integrate(j.Context(), delta, "")
		if err != nil || got.Pset != main || got.Terminate != slices.Contains(leaving, m.rank) {
			j.Fatalf("rank %d: integrate %q: %+v, %v", m.rank, delta, got, err)
		}
	})
	j.Check(members[0].FinishChange(j.Context(), delta))
}

func (j *job) shrink() {
	waited := j.Go(func() {
		for _, pset := range []string{bootstrap.PsetWorld, bootstrap.PsetSelf} {
			if got := j.change(3, pset, pset == bootstrap.PsetWorld); got.Type != bootstrap.ChangeSub || !got.Included {
				j.Fatalf("the change is %+v", got)
			}
		}
	})
	names := j.operate(1, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 2, Name: "less"}, bootstrap.PsetWorld)
	waited()
	if len(names) != 2 || names[1] != "less" {
		j.Fatalf("shrink makes %q", names)
	}
	j.checkMembers(names[0], 2, 3)
	j.checkMembers("less", 0, 1)
	if got := j.change(0, bootstrap.PsetWorld, false); got != (bootstrap.Change{Type: bootstrap.ChangeSub, Delta: names[0], Main: "less"}) {
		j.Fatalf("the change is %+v", got)
	}
	j.Is("a change that overlaps", errOf2(j.changer(0).Operate(j.Context(), bootstrap.PsetSub, []string{"less"}, bootstrap.PsetArgs{Sub: 1})), framework.ErrPending)
	j.Is("finish before the integration", j.changer(0).FinishChange(j.Context(), names[0]), framework.ErrPending)
	j.Is("delete of a set in use", j.changer(1).DeletePset(j.Context(), "less"), framework.ErrPending)
	_, err := j.changer(2).Integrate(j.Context(), "less", "")
	j.Is("integrate of another delta", err, framework.ErrPset)
	if !strings.Contains(err.Error(), names[0]) {
		j.Fatalf("%v does not name the delta", err)
	}
	j.integrate(names[0], "less", []int{2, 3}, j.allMembers(0, 1, 2, 3)...)
	j.Check(j.changer(1).FinishChange(j.Context(), names[0])) // A second time.
	for r := range j.Clients {
		j.checkNoChange(r, bootstrap.PsetWorld)
	}
	j.Check(j.changer(1).DeletePset(j.Context(), names[0]))
}

func errOf2[T any](_ T, err error) error { return err }

func (j *job) grow() {
	j.needAddedProcs()
	_, err := j.changer(0).Operate(j.Context(), bootstrap.PsetGrow, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Add: 3})
	j.Is("grow beyond the limit", err, framework.ErrUnsupported)
	if !strings.Contains(err.Error(), "2 fit") {
		j.Fatalf("%v does not give the number that fits", err)
	}
	if most := j.Clients[0].Identity().MaxSize; most != 4 {
		j.Fatalf("the limit is %d", most)
	}
	waited := j.Go(func() { j.change(1, bootstrap.PsetWorld, true) })
	names := j.operate(0, bootstrap.PsetGrow, bootstrap.PsetArgs{Add: 3, Partial: true}, bootstrap.PsetWorld)
	waited()
	members := j.allMembers(0, 1, 2, 3)
	for _, m := range members[2:] {
		if id := m.client.Identity(); id.FirstRank != 2 || id.Size != 2 || int(id.Proc.Rank) != m.rank || id.MaxSize != 4 {
			j.Fatalf("an added process is %+v", id)
		}
		got := j.changeOf(j.Context(), m, "added", bootstrap.PsetSelf, false)
		if got != (bootstrap.Change{Type: bootstrap.ChangeAdd, Delta: names[0], Main: names[1], Included: true}) {
			j.Fatalf("an added process has the change %+v", got)
		}
	}
	j.integrate(names[0], names[1], nil, members...)
	j.checkMembers(names[1], 0, 1, 2, 3)
	var seen ids
	j.Each(4, func(i int) { // The new set is a group for constructs.
		got, err := members[i].client.Construct(j.Context(), j.procs(0, 1, 2, 3), "new", nil)
		j.Check(err)
		seen.add(j, got.ContextID, "new")
	})
	seen.count(j, 1)
}

func (j *job) queryWithdrawn() {
	j.changer(0)
	ctx, cancel := j.shortContext()
	defer cancel()
	_, ok, err := j.changer(0).Query(ctx, bootstrap.PsetWorld, true)
	j.Is("query", err, errCause)
	if ok {
		j.Fatalf("a change without a request")
	}
	j.operate(1, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, bootstrap.PsetWorld)
	j.change(0, bootstrap.PsetWorld, true) // The withdrawn query has not consumed it.
	_, ok, err = j.changer(0).Query(ctx, bootstrap.PsetWorld, true)
	j.Is("query in an ended context", err, errCause)
	if ok {
		j.Fatalf("a query in an ended context finds a change")
	}
}

func (j *job) twoProviders() {
	delta := j.operate(0, bootstrap.PsetSub, bootstrap.PsetArgs{Sub: 1}, bootstrap.PsetWorld)[0]
	j.onAllRanks(func(r int) {
		_, err := j.changer(r).Integrate(j.Context(), delta, fmt.Sprint("name-", r))
		j.Is("two providers", err, framework.ErrPset)
		for _, name := range []string{"name-0", "name-1"} {
			if !strings.Contains(err.Error(), name) {
				j.Fatalf("%v does not give %s", err, name)
			}
		}
	})
	j.onAllRanks(func(r int) {
		got, err := j.changer(r).Integrate(j.Context(), delta, []string{"name", ""}[r])
		if err != nil || got.Pset != "name" || got.Terminate != (r == 1) {
			j.Fatalf("rank %d: %+v, %v", r, got, err)
		}
	})
}

func (j *job) integrateWithdrawn() {
	delta := j.operate(0, bootstrap.PsetSub, bootstrap.PsetArgs{Sub: 1}, bootstrap.PsetWorld)[0]
	ctx, cancel := j.shortContext()
	defer cancel()
	_, err := j.changer(0).Integrate(ctx, delta, "withdrawn")
	j.Is("integrate", err, errCause)
	j.integrate(delta, "", []int{1}, j.allMembers(0, 1)...)
}

// integrateTimesOut checks that present and late members get one result.
func (j *job) integrateTimesOut() {
	names := j.operate(0, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, bootstrap.PsetWorld)
	late := j.group(2)
	j.Each(2, func(r int) {
		_, err := j.changer(r).Integrate(j.Context(), names[0], "")
		j.Is("integrate", err, framework.ErrTimeout)
		j.checkMissing("integrate", err, late, nil)
	})
	_, err := j.changer(2).Integrate(j.Context(), names[0], "")
	j.checkMissing("a late integrate", err, late, nil)
	_, err = optional[bootstrap.PsetSource](j, 2).Pset(j.Context(), names[1])
	j.Is("a set of an undone change", err, framework.ErrPset)
	j.checkNoChange(1, bootstrap.PsetWorld)
}

func (j *job) disjointChanges() {
	halves := j.operate(0, bootstrap.PsetSplit, bootstrap.PsetArgs{Sizes: []int{2, 2}}, bootstrap.PsetWorld)
	first := j.operate(0, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, halves[0])
	other := j.operate(2, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, halves[1])
	_, err := j.changer(3).Operate(j.Context(), bootstrap.PsetShrink, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Sub: 1})
	j.Is("a change that overlaps two", err, framework.ErrPending)
	j.integrate(other[0], other[1], []int{3}, j.allMembers(2, 3)...)
	j.integrate(first[0], first[1], []int{1}, j.allMembers(0, 1)...)
}

// memberDiesBeforeIntegration kills a member that has not called, or waits already.
func (j *job) memberDiesBeforeIntegration() {
	j.needKillAfterFence()
	names := j.operate(0, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, bootstrap.PsetWorld)
	dead := j.group(2)
	killed := j.Go(func() { j.Check(j.Kill(2)) })
	j.Each(2, func(r int) {
		for range 2 {
			_, err := j.changer(r).Integrate(j.Context(), names[0], "")
			j.Is("integrate", err, framework.ErrProcFailed)
			j.checkMissing("integrate", err, nil, dead)
		}
	})
	killed()
	got := j.change(1, bootstrap.PsetWorld, true)
	if got.Type != bootstrap.ChangeFailed || got.Included {
		j.Fatalf("the change is %+v", got)
	}
	info, err := optional[bootstrap.PsetSource](j, 0).Pset(j.Context(), got.Delta)
	if err != nil || !slices.Equal(info.Members.List(), dead) {
		j.Fatalf("the failed processes are %v, %v", info.Members.List(), err)
	}
	_, err = j.changer(0).Operate(j.Context(), bootstrap.PsetGrow, []string{bootstrap.PsetWorld}, bootstrap.PsetArgs{Add: 1})
	j.Is("grow of a set with ended members", err, framework.ErrProcFailed)
	names = j.operate(0, bootstrap.PsetShrink, bootstrap.PsetArgs{Name: "alive"}, bootstrap.PsetWorld)
	j.integrate(names[0], "alive", nil, j.allMembers(0, 1)...)
}

func (j *job) addedProcessDies() {
	j.needAddedProcs()
	j.needKillAfterFence()
	names := j.operate(0, bootstrap.PsetGrow, bootstrap.PsetArgs{Add: 2}, bootstrap.PsetWorld)
	j.allMembers(2, 3)
	killed := j.Go(func() { j.Check(j.Kill(3)) })
	j.Each(2, func(r int) {
		_, err := j.changer(r).Integrate(j.Context(), names[0], "")
		j.checkMissing("integrate", err, nil, j.procs(3))
	})
	killed()
	j.checkNoChange(1, bootstrap.PsetWorld)
	// There is room again, and the ranks are new ones.
	names = j.operate(0, bootstrap.PsetGrow, bootstrap.PsetArgs{Add: 2}, bootstrap.PsetWorld)
	j.integrate(names[0], names[1], nil, j.allMembers(0, 1, 4, 5)...)
}

func (j *job) memberDiesAfterIntegration() {
	j.needKillAfterFence()
	names := j.operate(1, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, bootstrap.PsetWorld)
	j.Each(3, func(r int) { j.Check(errOf2(j.changer(r).Integrate(j.Context(), names[0], ""))) })
	j.Check(j.Kill(1)) // It would have finished the change.
	got := j.change(0, names[1], true)
	if got.Type != bootstrap.ChangeFailed {
		j.Fatalf("the change of the new set is %+v", got)
	}
	j.Check(j.changer(0).FinishChange(j.Context(), names[0]))
	info, err := optional[bootstrap.PsetSource](j, 0).Pset(j.Context(), names[1])
	if err != nil || !slices.Equal(info.Members.List(), j.group(0, 1)) {
		j.Fatalf("the new set is %v, %v: a death removes no member", info.Members.List(), err)
	}
}

func (j *job) replaceEnded() {
	j.needAddedProcs()
	j.needKillAfterFence()
	j.Check(j.Kill(1))
	if got := j.change(0, bootstrap.PsetWorld, true); got.Type != bootstrap.ChangeFailed {
		j.Fatalf("the change is %+v", got)
	}
	names := j.operate(2, bootstrap.PsetReplace, bootstrap.PsetArgs{Add: 1}, bootstrap.PsetWorld)
	if len(names) != 3 {
		j.Fatalf("replace makes %q", names)
	}
	members := j.allMembers(0, 2, 3)
	joins := j.changeOf(j.Context(), members[2], "added", bootstrap.PsetSelf, false)
	stays := j.change(0, bootstrap.PsetWorld, false)
	if joins.Delta != names[1] || !joins.Included || stays.Delta != names[0] || stays.Included || stays.Type != bootstrap.ChangeReplace {
		j.Fatalf("of %q, the process that joins has %+v, and one that stays %+v", names, joins, stays)
	}
	j.Each(3, func(i int) {
		m := members[i]
		got, err := m.Integrate(j.Context(), names[i%2], "") // Either delta names the change.
		if err != nil || got != (bootstrap.Integration{Pset: names[2]}) {
			j.Fatalf("rank %d: %+v, %v", m.rank, got, err)
		}
	})
	j.Check(members[1].FinishChange(j.Context(), names[1]))
	info, err := optional[bootstrap.PsetSource](j, 0).Pset(j.Context(), names[2])
	if err != nil || !slices.Equal(info.Members.List(), j.procs(0, 2, 3)) {
		j.Fatalf("the new set is %v, %v", info.Members.List(), err)
	}
}

// hundredChanges repeatedly adds a process and removes it.
func (j *job) hundredChanges() {
	j.needAddedProcs()
	main, next := bootstrap.PsetWorld, 1
	root := j.member(0)
	for range 50 {
		names := j.operate(0, bootstrap.PsetGrow, bootstrap.PsetArgs{Add: 1}, main)
		added := j.member(next)
		j.integrate(names[0], names[1], nil, root, added)
		less := j.operate(0, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, names[1])
		j.integrate(less[0], less[1], []int{next}, root, added)
		j.Check(added.client.Close())
		for _, name := range append(names, less[0]) {
			j.Check(root.DeletePset(j.Context(), name))
		}
		if main != bootstrap.PsetWorld {
			j.Check(root.DeletePset(j.Context(), main))
		}
		main = less[1]
		next++
	}
	names, err := optional[bootstrap.PsetSource](j, 0).Psets(j.Context())
	if err != nil || len(names) != 1 || names[0] != main {
		j.Fatalf("the sets are %q, %v, want %q", names, err, main)
	}
}
