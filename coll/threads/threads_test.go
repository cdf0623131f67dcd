package threads

import (
	"testing"

	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/colltest"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/framework/scripttest"
	"go.uber.org/goleak"
)

func TestContract(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(Component()).Run(t)
}

// variant is the component with other parameters, limited to small communicators.
type variant struct {
	component
	params
}

func (v variant) Query(_ any, shape coll.Shape) *coll.Offer {
	if shape.Size > 5 { // Larger ones take long and cover nothing new.
		return nil
	}
	return v.component.Query(&v.params, shape)
}

func TestContract_SmallChunks(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(variant{params: params{FlatRanks: 1, ChunkSize: 64, ReduceMost: 1 << 20}}).Run(t)
}

func TestContract_AllFlat(t *testing.T) {
	defer goleak.VerifyNone(t)
	colltest.Cases(variant{params: params{FlatRanks: 64, ChunkSize: 64, ReduceMost: 1 << 20}}).Run(t)
}

// TestSchedules prints the steps of each member.
func TestSchedules(t *testing.T) {
	scripttest.Run(t, "testdata/*.txt", func() func(string) ([]string, error) {
		return colltest.Script(Component(), &params{FlatRanks: 2, ChunkSize: framework.Size(16 << 10), ReduceMost: 1 << 20})
	})
}

func TestOffer_FewRanksOfOneProcess_LeavesSmallOperandsToAreas(t *testing.T) {
	par := kittest.Params(Component(), nil)
	for _, x := range []struct {
		shape                    coll.Shape
		reduce, allreduce, bcast int
	}{
		{coll.Shape{Size: 2, Procs: coll.OnOneNode(2)}, 16<<10 + 1, 4 << 10, 32 << 10},
		{coll.Shape{Size: 8, Procs: coll.OnOneNode(8)}, 8<<10 + 1, 4 << 10, 32 << 10},
		{coll.Shape{Size: 9, Procs: coll.OnOneNode(9)}, 0, 0, 0},
		{coll.Shape{Size: 3, Procs: coll.PlacementOf(0, 0, 1)}, 0, 0, 0},
	} {
		from := map[coll.Operation]int{}
		for _, a := range Component().Query(par, x.shape).Algorithms {
			from[a.Op] = a.From
		}
		if from[coll.Reduce] != x.reduce || from[coll.Allreduce] != x.allreduce || from[coll.Bcast] != x.bcast || from[coll.Barrier] != 0 {
			t.Errorf("%+v: %v", x, from)
		}
	}
}

func TestOffer_OneRankPerProcessOrScatteredProcesses_IsLimited(t *testing.T) {
	par := kittest.Params(Component(), nil)
	if Component().Query(par, coll.Shape{Size: 3}) != nil || Component().Query(par, coll.Shape{Size: 2, Procs: coll.PlacementOf(0, 1)}) != nil {
		t.Error("Query returned an offer for processes of one rank")
	}
	for _, a := range Component().Query(par, coll.Shape{Size: 3, Procs: coll.PlacementOf(0, 1, 0)}).Algorithms {
		if a.Op == coll.Reduce || a.Op == coll.Allreduce {
			t.Errorf("%v is offered where ranks of processes are not consecutive", a.Op)
		}
	}
}
