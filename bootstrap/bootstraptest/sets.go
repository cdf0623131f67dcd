package bootstraptest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func setCases() claimList {
	return claimList{
		kittest.New("SetsAreDerived", Want{Size: 4, Timeout: longTimeout}, (*job).deriveSets),
		kittest.New("SetsOfSingleProcess", Want{Size: 1, Timeout: longTimeout}, (*job).setsAlone),
		kittest.New("SetNamesAreAnyBytes", Want{Size: 2, Timeout: longTimeout}, (*job).setNames),
		kittest.New("SetIsDeletedByItsCreator", Want{Size: 2, Timeout: longTimeout}, (*job).deleteSets),
		kittest.New("SetDataWaitsForPublish", Want{Size: 2, Timeout: longTimeout}, (*job).setData),
		kittest.New("SetDataExpires", Want{Size: 1, Timeout: shortTimeout}, (*job).setDataTimesOut),
	}
}

// changer returns the Changer of a process, or skips the case.
func (j *job) changer(rank int) bootstrap.Changer { return optional[bootstrap.Changer](j, rank) }

// operate makes an operation that must succeed.
func (j *job) operate(rank int, op bootstrap.PsetOp, args bootstrap.PsetArgs, operands ...string) []string {
	names, err := j.changer(rank).Operate(j.Context(), op, operands, args)
	if err != nil {
		j.Fatalf("rank %d: %v of %q: %v", rank, op, operands, err)
	}
	return names
}

// checkMembers fails unless a set has these members in all processes.
func (j *job) checkMembers(name string, want ...int) {
	for r := range j.Clients {
		info, err := optional[bootstrap.PsetSource](j, r).Pset(j.Context(), name)
		if err != nil || !slices.Equal(info.Members.List(), j.procs(want...)) {
			j.Fatalf("rank %d: %q is %v, %v, want ranks %v", r, name, info.Members.List(), err, want)
		}
		if !info.Dynamic {
			j.Fatalf("rank %d: %q was created after the start, and is not dynamic", r, name)
		}
	}
}

// procs returns the processes of ranks, which need not have started.
func (j *job) procs(ranks ...int) []framework.Proc {
	id := j.Clients[0].Identity()
	var all []framework.Proc
	for _, r := range ranks {
		all = append(all, id.Procs([]uint32{uint32(r)})...)
	}
	return all
}

func (j *job) deriveSets() {
	world := bootstrap.PsetWorld
	parts := j.operate(1, bootstrap.PsetSplit, bootstrap.PsetArgs{Sizes: []int{1, 3}}, world)
	if len(parts) != 2 {
		j.Fatalf("split makes %q", parts)
	}
	j.checkMembers(parts[0], 0)
	j.checkMembers(parts[1], 1, 2, 3)
	self := j.operate(3, bootstrap.PsetUnion, bootstrap.PsetArgs{}, bootstrap.PsetSelf, parts[0])
	j.checkMembers(self[0], 3, 0)
	j.checkMembers(j.operate(0, bootstrap.PsetDifference, bootstrap.PsetArgs{}, world, self[0])[0], 1, 2)
	j.checkMembers(j.operate(0, bootstrap.PsetIntersection, bootstrap.PsetArgs{Name: "common"}, parts[1], self[0])[0], 3)
	names, err := optional[bootstrap.PsetSource](j, 2).Psets(j.Context())
	if err != nil || !slices.Contains(names, "common") || !slices.Contains(names, parts[0]) {
		j.Fatalf("the sets are %q, %v", names, err)
	}
	c := j.changer(2)
	for what, bad := range map[string]struct {
		op   bootstrap.PsetOp
		args bootstrap.PsetArgs
		in   []string
		want error
	}{
		"an unknown set":           {bootstrap.PsetUnion, bootstrap.PsetArgs{}, []string{world, "comon"}, framework.ErrPset},
		"no set":                   {bootstrap.PsetUnion, bootstrap.PsetArgs{}, nil, framework.ErrPset},
		"a taken name":             {bootstrap.PsetUnion, bootstrap.PsetArgs{Name: "COMMON"}, []string{world}, framework.ErrPset},
		"a reserved name":          {bootstrap.PsetUnion, bootstrap.PsetArgs{Name: "mpi://x"}, []string{world}, framework.ErrPset},
		"sizes of another number":  {bootstrap.PsetSplit, bootstrap.PsetArgs{Sizes: []int{1, 2}}, []string{world}, framework.ErrRank},
		"a negative size":          {bootstrap.PsetSplit, bootstrap.PsetArgs{Sizes: []int{5, -1}}, []string{world}, framework.ErrRank},
		"more members than it has": {bootstrap.PsetSub, bootstrap.PsetArgs{Sub: 5}, []string{world}, framework.ErrRank},
		"a negative number":        {bootstrap.PsetShrink, bootstrap.PsetArgs{Sub: -1}, []string{world}, framework.ErrRank},
		"an unknown operation":     {99, bootstrap.PsetArgs{}, []string{world}, framework.ErrUnsupported},
		"a name over the limit":    {bootstrap.PsetUnion, bootstrap.PsetArgs{Name: strings.Repeat("n", bootstrap.MaxName+1)}, []string{world}, framework.ErrUnsupported},
	} {
		_, err := c.Operate(j.Context(), bad.op, bad.in, bad.args)
		j.Is(what, err, bad.want)
		if errors.Is(bad.want, framework.ErrRank) && bad.op == bootstrap.PsetSub && !strings.Contains(err.Error(), "4") {
			j.Fatalf("%s: %v does not have the size", what, err)
		}
	}
	if after, err := optional[bootstrap.PsetSource](j, 2).Psets(j.Context()); err != nil || len(after) != len(names) {
		j.Fatalf("after errors the sets are %q, %v, not %q", after, err, names)
	}
}

// A process without a launcher has sets, too.
func (j *job) setsAlone() {
	c, world := j.changer(0), bootstrap.PsetWorld
	j.checkMembers(j.operate(0, bootstrap.PsetUnion, bootstrap.PsetArgs{}, world, bootstrap.PsetSelf, bootstrap.PsetShared)[0], 0)
	_, err := c.Operate(j.Context(), bootstrap.PsetGrow, []string{world}, bootstrap.PsetArgs{Add: 1})
	j.Is("grow beyond the limit", err, framework.ErrUnsupported)
	j.checkNoChange(0, world)
	names, err := c.Operate(j.Context(), bootstrap.PsetShrink, []string{world}, bootstrap.PsetArgs{Sub: 1})
	if errors.Is(err, framework.ErrUnsupported) && strings.Contains(err.Error(), "rank 0") {
		return // Rank 0 holds the sets.
	}
	j.Check(err)
	if got := j.change(0, bootstrap.PsetSelf, true); got.Type != bootstrap.ChangeSub || got.Delta != names[0] || got.Main != names[1] || !got.Included {
		j.Fatalf("the change is %+v", got)
	}
	got, err := c.Integrate(j.Context(), names[0], "")
	if err != nil || !got.Terminate || got.Pset != names[1] {
		j.Fatalf("integrate: %+v, %v", got, err)
	}
	j.Check(c.FinishChange(j.Context(), names[0]))
	j.checkNoChange(0, world)
}

func (j *job) setNames() {
	for i, name := range []string{"\xff\xfe", "\xff\xfd", "a\x00b", "a=b c\n", "\u20ac"} {
		j.operate(i%2, bootstrap.PsetUnion, bootstrap.PsetArgs{Name: name}, bootstrap.PsetWorld)
		j.checkMembers(name, 0, 1)
		j.Check(j.changer(i%2).PublishData(j.Context(), name, name, []byte(name)))
		got, err := j.changer(1-i%2).LookupData(j.Context(), name, name)
		j.Check(err)
		j.Same("data", got, []byte(name))
	}
}

func (j *job) deleteSets() {
	ctx := j.Context()
	j.operate(0, bootstrap.PsetUnion, bootstrap.PsetArgs{Name: "short"}, bootstrap.PsetWorld)
	lookup := j.Go(func() {
		_, err := j.changer(1).LookupData(ctx, "short", "never")
		j.Is("lookup in a deleted set", err, framework.ErrPset)
	})
	j.fenceAll("begun")
	j.Is("delete of another's set", j.changer(1).DeletePset(ctx, "short"), framework.ErrPset)
	j.Is("delete of a built-in set", j.changer(1).DeletePset(ctx, bootstrap.PsetWorld), framework.ErrPset)
	j.Check(j.changer(0).DeletePset(ctx, "SHORT"))
	lookup()
	_, err := optional[bootstrap.PsetSource](j, 1).Pset(ctx, "short")
	j.Is("a deleted set", err, framework.ErrPset)
	if !strings.Contains(err.Error(), "rank 0") {
		j.Fatalf("%v does not name the process that deleted it", err)
	}
	j.Is("second delete", j.changer(0).DeletePset(ctx, "short"), framework.ErrPset)
}

func (j *job) setData() {
	ctx := j.Context()
	j.Each(4, func(i int) {
		c := j.changer(i % 2)
		if i == 3 {
			value := []byte("7")
			j.Check(c.PublishData(ctx, bootstrap.PsetWorld, "port", value))
			clear(value)
		}
		got, err := c.LookupData(ctx, bootstrap.PsetWorld, "port")
		j.Check(err)
		j.Same("data", got, []byte("7"))
	})
	j.Check(j.changer(0).PublishData(ctx, bootstrap.PsetWorld, "port", []byte("8")))
	got, err := j.changer(0).LookupData(ctx, bootstrap.PsetWorld, "port")
	j.Check(err)
	j.Same("replaced data", got, []byte("8"))
	short, cancel := j.shortContext()
	defer cancel()
	_, err = j.changer(1).LookupData(short, bootstrap.PsetWorld, "never")
	j.Is("a withdrawn lookup", err, errCause)
	j.Is("a value over the limit", j.changer(0).PublishData(ctx, bootstrap.PsetWorld, "k", make([]byte, bootstrap.MaxValue+1)), framework.ErrUnsupported)
}

func (j *job) setDataTimesOut() {
	_, err := j.changer(0).LookupData(j.Context(), bootstrap.PsetSelf, "never")
	j.Is("lookup", err, framework.ErrTimeout)
}

// change makes a query that must return a change.
func (j *job) change(rank int, pset string, wait bool) bootstrap.Change {
	return j.changeOf(j.Context(), j.changer(rank), fmt.Sprint("rank ", rank), pset, wait)
}

func (j *job) changeOf(ctx context.Context, c bootstrap.Changer, who, pset string, wait bool) bootstrap.Change {
	got, ok, err := c.Query(ctx, pset, wait)
	if err != nil || !ok {
		j.Fatalf("%s: the change of %q is %+v, %t, %v", who, pset, got, ok, err)
	}
	return got
}

func (j *job) checkNoChange(rank int, pset string) {
	if got, ok, err := j.changer(rank).Query(j.Context(), pset, false); ok || err != nil {
		j.Fatalf("rank %d: the change of %q is %+v, %v", rank, pset, got, err)
	}
}
