package bootstraptest

import (
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func changeEndCases() claimList {
	return claimList{
		kittest.New("ChangeResultIsSameForLateMembers", Want{Size: 3, Timeout: longTimeout}, (*job).integrateLate),
		kittest.New("ChangeIsUndoneByDeathOfRequester", Want{Size: 3, Timeout: longTimeout}, (*job).requesterDies),
		kittest.New("ChangeExcusesDeathOfLeavingProcess", Want{Size: 3, Timeout: longTimeout}, (*job).leavingProcessDies),
		kittest.New("ChangeDeletedDeltaRemainsWorld", Want{Size: 1, Timeout: longTimeout, MaxProcs: 3}, (*job).deleteWorld),
	}
}

// integrateLate calls after the end of the change, by each of its names.
func (j *job) integrateLate() {
	names := j.operate(0, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, bootstrap.PsetWorld)
	j.integrate(names[0], names[1], []int{2}, j.allMembers(0, 1, 2)...)
	j.Check(j.changer(0).DeletePset(j.Context(), names[0]))
	for rank, delta := range map[int]string{1: names[0], 2: bootstrap.PsetSelf} {
		got, err := j.changer(rank).Integrate(j.Context(), delta, "late")
		if want := (bootstrap.Integration{Pset: names[1], Terminate: rank == 2}); err != nil || got != want {
			j.Fatalf("rank %d: a late call got %+v, %v, want %+v", rank, got, err, want)
		}
		j.Check(j.changer(rank).FinishChange(j.Context(), delta))
	}
}

func (j *job) requesterDies() {
	j.needKillAfterFence()
	j.operate(2, bootstrap.PsetUnion, bootstrap.PsetArgs{Name: "all"}, bootstrap.PsetWorld)
	parts := j.operate(2, bootstrap.PsetSplit, bootstrap.PsetArgs{Sizes: []int{2, 1}}, "all")
	delta := j.operate(2, bootstrap.PsetSub, bootstrap.PsetArgs{Sub: 1}, parts[0])[0]
	dead := j.group(2)
	killed := j.Go(func() { j.Check(j.Kill(2)) })
	for range 2 { // The second call is late.
		_, err := j.changer(0).Integrate(j.Context(), delta, "")
		j.checkMissing("integrate", err, nil, dead)
	}
	killed()
	_, err := j.changer(1).Integrate(j.Context(), bootstrap.PsetSelf, "")
	j.checkMissing("a late integrate", err, nil, dead)
	j.checkNoChange(0, parts[0])
	delta = j.operate(0, bootstrap.PsetSub, bootstrap.PsetArgs{Sub: 1}, parts[0])[0]
	j.integrate(delta, "", []int{1}, j.allMembers(0, 1)...)
}

// leavingProcessDies kills a process between its integration and the end of the change.
func (j *job) leavingProcessDies() {
	j.needKillAfterFence()
	names := j.operate(0, bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: 1}, bootstrap.PsetWorld)
	j.Each(3, func(r int) { j.Check(errOf2(j.changer(r).Integrate(j.Context(), names[0], ""))) })
	j.Check(j.Kill(2))
	_, err := j.Clients[0].Get(j.Context(), j.group(2)[0], "never")
	j.checkMissing("get", err, nil, j.group(2)) // The server has noticed the death.
	j.Check(j.changer(1).FinishChange(j.Context(), names[0]))
	for _, pset := range append(names, bootstrap.PsetWorld) {
		j.checkNoChange(0, pset)
	}
}

// deleteWorld deletes the name of a delta that is the mpi://WORLD of its processes.
func (j *job) deleteWorld() {
	j.needAddedProcs()
	names := j.operate(0, bootstrap.PsetGrow, bootstrap.PsetArgs{Add: 2}, bootstrap.PsetWorld)
	members := j.allMembers(0, 1, 2)
	j.integrate(names[0], names[1], nil, members...)
	ctx, world := j.Context(), bootstrap.PsetWorld
	waiting := j.Go(func() {
		got, err := members[1].LookupData(ctx, world, "key")
		j.Check(err)
		j.Same("data", got, []byte("value"))
	})
	j.Is("delete of mpi://WORLD", members[2].DeletePset(ctx, world), framework.ErrPset)
	j.Check(members[0].DeletePset(ctx, names[0]))
	j.Is("query by the deleted name", errOf3(members[0].Query(ctx, names[0], false)), framework.ErrPset)
	j.Check(members[2].PublishData(ctx, world, "key", []byte("value")))
	waiting()
	less, err := members[2].Operate(ctx, bootstrap.PsetShrink, []string{world}, bootstrap.PsetArgs{Sub: 1})
	j.Check(err)
	if got := j.changeOf(ctx, members[1], "added", world, true); got.Delta != less[0] {
		j.Fatalf("the change of mpi://WORLD is %+v, want %q", got, less[0])
	}
	j.integrate(less[0], less[1], []int{2}, members[1:]...)
}

func errOf3[T, U any](_ T, _ U, err error) error { return err }
