package base

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// stub is a PML's process type.
type stub struct{ Proc }

func (s *stub) Fail(err error) { s.MarkEnded(err) }

func incarnation(n int) framework.Incarnation {
	return framework.Incarnation{ID: framework.MakeProcID(0, uint32(n)), Nonce: uint64(n) + 1}
}

// newProcs returns the processes of a module. This process is 0. The cards of the first n are
// known.
func newProcs(n int) *Procs[*stub] {
	env := &pml.Env{Env: progress.Env{Worlds: framework.NewWorlds("test"), Self: incarnation(0)}}
	t := NewProcs("test", env, func(p Proc) *stub { return &stub{p} }, nil)
	for i := range n {
		t.SetPresent(t.Get(incarnation(i)))
	}
	return &t
}

// members returns members from pairs of process and endpoint.
func members(pairs ...[2]int) pml.Members {
	var list []pml.Member
	for _, p := range pairs {
		list = append(list, pml.Member{Incarnation: incarnation(p[0]), Endpoint: uint16(p[1])})
	}
	return pml.NewMembers(list)
}

func rankSet(n int, ranks ...int) *pml.RankSet {
	s := pml.NewRankSet(n)
	for _, rank := range ranks {
		s.Add(rank)
	}
	return s
}

func TestComm_MembersOfOwnProcess_AreElsewhere(t *testing.T) {
	for _, c := range []struct {
		what string
		spec pml.CommSpec
		want error
	}{
		{"two processes", pml.CommSpec{Members: members([2]int{0, 0}, [2]int{1, 0})}, nil},
		{"endpoints of another one", pml.CommSpec{Members: members([2]int{0, 0}, [2]int{1, 1}, [2]int{1, 0})}, nil},
		{"endpoints of this one", pml.CommSpec{Members: members([2]int{0, 0}, [2]int{0, 1})}, framework.ErrUnsupported},
		{"endpoints of this one, elsewhere", pml.CommSpec{Members: members([2]int{0, 0}, [2]int{0, 1}), Elsewhere: rankSet(2, 1)}, nil},
		{"all of this one elsewhere", pml.CommSpec{Members: members([2]int{0, 0}, [2]int{0, 1}), Elsewhere: rankSet(2, 0, 1)}, nil},
		{"one endpoint twice", pml.CommSpec{Members: members([2]int{0, 0}, [2]int{1, 7}, [2]int{1, 7})}, framework.ErrGroup},
		{"this process twice", pml.CommSpec{Members: members([2]int{0, 0}, [2]int{0, 0})}, framework.ErrGroup},
		{"another process's rank", pml.CommSpec{Members: members([2]int{1, 0}, [2]int{0, 0})}, framework.ErrGroup},
		{"a process without a card", pml.CommSpec{Members: members([2]int{0, 0}, [2]int{5, 0})}, framework.ErrGroup},
		{"a member too few elsewhere", pml.CommSpec{Members: members([2]int{0, 0}, [2]int{1, 0}), Elsewhere: rankSet(1)}, framework.ErrGroup},
		{"no member", pml.CommSpec{Members: members()}, framework.ErrGroup},
		{"nothing", pml.CommSpec{}, framework.ErrGroup},
	} {
		procs := newProcs(2)
		known, err := procs.Comm(c.spec, cid.CommClose{})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
		if err == nil {
			procs.Drop(&known)
		}
		if len(procs.newestRosters) != 0 {
			t.Errorf("%s: %d rosters are left", c.what, len(procs.newestRosters))
		}
	}
}

// TestComm_HandlesOfOneProcess_ShareTables guards against memory that grows by the square of the
// number of handles.
func TestComm_HandlesOfOneProcess_ShareTables(t *testing.T) {
	const ranks = 1000
	var pairs [][2]int
	elsewhere := pml.NewRankSet(2 * ranks)
	for i := range ranks {
		pairs = append(pairs, [2]int{0, i}, [2]int{1, i})
		elsewhere.Add(2 * i)
	}
	procs, all := newProcs(2), members(pairs...)
	table := cid.NewTable(cid.IndexBits)
	comms := NewComms[Comm[*stub]](table)
	handles := make([]Comm[*stub], ranks)
	peers := make([]Table[*int], ranks)
	for i := range handles {
		local, err := table.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		c := &handles[i]
		if *c, err = procs.Comm(pml.CommSpec{ID: cid.Extended{Base: 1}, Local: local, Members: all, Rank: 2 * i, Elsewhere: elsewhere}, cid.CommClose{}); err != nil {
			t.Fatal(err)
		}
		if err := comms.Add("test", &c.State, c); err != nil {
			t.Fatal(err)
		}
		if c.roster != handles[0].roster {
			t.Fatalf("handle %d has a table of its own", i)
		}
		peers[i] = NewTable[*int](c.Len(), c.IsWhole())
	}
	bytes := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			p := NewTable[*int](2*ranks, false)
			p.Set(7, new(int))
		}
	}).AllocedBytesPerOp()
	if bytes > 1024 {
		t.Errorf("the states of one peer take %d bytes in a handle", bytes)
	}
	for i := range handles {
		if c := &handles[i]; comms.ByID[c.ID()] != c || c.RankOf(c.Proc(1), uint16(i)) != 2*i+1 || c.EndpointOf(2*i+1) != uint16(i) {
			t.Fatalf("handle %d is not found by endpoint", i)
		}
	}
	if err := comms.Add("test", &handles[3].State, &handles[3]); !errors.Is(err, framework.ErrGroup) {
		t.Errorf("a second handle of an endpoint: %v", err)
	}
	for i := range handles {
		comms.Remove(&handles[i].State)
		procs.Drop(&handles[i])
	}
	if len(procs.newestRosters) != 0 || len(comms.ByID) != 0 {
		t.Errorf("%d rosters and %d handles are left", len(procs.newestRosters), len(comms.ByID))
	}
}

// TestComm_ProcessRenewed_OlderHandlesKeepIt checks that a handle keeps the processes of its
// creation.
func TestComm_ProcessRenewed_OlderHandlesKeepIt(t *testing.T) {
	procs, all := newProcs(2), members([2]int{0, 0}, [2]int{1, 0})
	spec := pml.CommSpec{Members: all}
	before, err := procs.Comm(spec, cid.CommClose{})
	if err != nil {
		t.Fatal(err)
	}
	old := procs.Find(incarnation(1))
	if !procs.Reconnect(incarnation(1), old) {
		t.Fatal("not renewed")
	}
	procs.SetPresent(procs.Get(incarnation(1)))
	after, err := procs.Comm(spec, cid.CommClose{})
	if err != nil {
		t.Fatal(err)
	}
	if before.Proc(1) != old || after.Proc(1) == old || before.RankOf(old, 0) != 1 || after.RankOf(old, 0) != -1 {
		t.Error("the handles mix up the processes")
	}
	procs.Drop(&before)
	procs.Drop(&after)
	if len(procs.newestRosters) != 0 {
		t.Errorf("%d rosters are left", len(procs.newestRosters))
	}
}

// TestComm_ProcessOfSeveralRanksFails_ErrorsNameAll also checks that receives from other processes continue.
func TestComm_ProcessOfSeveralRanksFails_ErrorsNameAll(t *testing.T) {
	procs := newProcs(3)
	c, err := procs.Comm(pml.CommSpec{Members: members([2]int{0, 0}, [2]int{1, 0}, [2]int{2, 0}, [2]int{1, 1}), Rank: 0}, cid.CommClose{})
	if err != nil {
		t.Fatal(err)
	}
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(1), "killed"))
	dead := c.Proc(1)
	for what, err := range map[string]error{
		"receive from rank 3": c.SourceError(3, pml.PointToPoint),
		"pending from rank 1": c.EndError(1, pml.PointToPoint, dead),
	} {
		failed, ok := errors.AsType[*framework.ProcFailedError](err)
		if !ok || !slices.Equal(failed.Ranks, []int{1, 3}) || failed.Cause != "killed" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := c.SourceError(2, pml.PointToPoint); err != nil || c.EndError(2, pml.PointToPoint, dead) != nil {
		t.Errorf("receive from another process: %v", err)
	}
}

// TestComm_MembersFail_ReceivesFromAnyEndWithLast checks that a failure ends no receive from any source while
// it is suspended, or Suspend was not called yet.
func TestComm_MembersFail_ReceivesFromAnyEndWithLast(t *testing.T) {
	procs, why := newProcs(4), errors.New("a reason")
	c, err := procs.Comm(pml.CommSpec{Members: members([2]int{0, 0}, [2]int{1, 0}, [2]int{2, 0}, [2]int{3, 0}), Rank: 0}, cid.CommClose{})
	if err != nil {
		t.Fatal(err)
	}
	ends := func(what string, p *stub, want error) {
		t.Helper()
		for _, err := range []error{c.EndError(pml.AnySource, pml.PointToPoint, p), c.SourceError(pml.AnySource, pml.PointToPoint)} {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
	}
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(1), "killed"))
	ends("one has died", c.Proc(1), nil)
	c.SetSuspended(pml.PointToPoint, why)
	ends("suspended", c.Proc(1), nil)
	procs.HandlePeerEvent(framework.LeftEvent(incarnation(2)))
	ends("another one has left", c.Proc(2), nil)
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(3), "killed"))
	ends("no member is left, suspended", c.Proc(3), nil)
	c.SetSuspended(pml.PointToPoint, nil)
	ends("no member is left", c.Proc(3), framework.ErrProcFailed)
}

// TestComm_PathBreaks_ReceivesFromAnyEnd checks that an unreachable process is not failed until its failure is reported.
func TestComm_PathBreaks_ReceivesFromAnyEnd(t *testing.T) {
	procs := newProcs(3)
	c, err := procs.Comm(pml.CommSpec{Members: members([2]int{0, 0}, [2]int{1, 0}, [2]int{2, 0}), Rank: 0}, cid.CommClose{})
	if err != nil {
		t.Fatal(err)
	}
	procs.HandlePeerEvent(framework.UnreachableEvent(incarnation(1), framework.ErrPeerDisconnected))
	if err := c.SourceError(pml.AnySource, pml.PointToPoint); !errors.Is(err, framework.ErrProcFailedPending) {
		t.Errorf("after the path has broken: %v", err)
	}
	procs.HandlePeerEvent(framework.FailedEvent(incarnation(1), "killed"))
	if err := c.SourceError(pml.AnySource, pml.PointToPoint); err != nil {
		t.Errorf("after the death: %v", err)
	}
}

func TestTable_SliceAndPages_HoldTheSame(t *testing.T) {
	for _, of := range []struct {
		n     int
		whole bool
	}{{maxFlat, true}, {maxFlat + 1, true}, {maxFlatHandles, false}, {maxFlatHandles + 1, false}} {
		n, p := of.n, NewTable[*int](of.n, of.whole)
		want := map[int]*int{}
		for _, rank := range []int{n - 1, 0, 77, 3} {
			if p.Get(rank) != nil {
				t.Errorf("rank %d has a state already", rank)
			}
			want[rank] = new(int)
			p.Set(rank, want[rank])
		}
		if got := maps.Collect(p.All()); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		var ranks []int
		for rank := range p.All() {
			if ranks = append(ranks, rank); rank == 77 {
				break
			}
		}
		if !slices.Equal(ranks, []int{0, 3, 77}) || p.Get(n) != nil || p.Get(n+1<<20) != nil || p.Get(-1) != nil {
			t.Errorf("ranks %v of %+v", ranks, of)
		}
	}
}

func TestTable_ManyMembers_TakesMemoryForTheUsed(t *testing.T) {
	bytes := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p := NewTable[*int](196608, true)
			p.Set(7, new(int))
			p.Set(8, new(int))
		}
	}).AllocedBytesPerOp()
	if bytes > 32<<10 {
		t.Errorf("two states of 196,608 members take %d bytes", bytes)
	}
}

// TestRefuse_OneEndpoint_CoversNoOther checks that the other endpoints of a process continue.
func TestRefuse_OneEndpoint_CoversNoOther(t *testing.T) {
	comms := NewComms[Comm[*stub]](cid.NewTable(4))
	id := func(base uint64, endpoint uint16) cid.EndpointID {
		return cid.EndpointID{Extended: cid.Extended{Base: base}, Endpoint: endpoint}
	}
	comms.Refuse(cid.Descendants(cid.Extended{Base: 1}), 3)
	comms.Refuse(cid.Descendants(cid.Extended{Base: 2}), pml.AllEndpoints)
	for _, c := range []struct {
		id   cid.EndpointID
		want bool
	}{{id(1, 3), true}, {id(1, 0), false}, {id(1, 4), false}, {id(2, 0), true}, {id(2, 9), true}, {id(3, 3), false}} {
		if comms.IsRefused(c.id) != c.want || comms.IsEnded(c.id) != c.want {
			t.Errorf("%v: refused %v", c.id, !c.want)
		}
	}
}
