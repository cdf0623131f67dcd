package run

import (
	"errors"
	"runtime/pprof"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// silentHost is a communicator without methods.
type silentHost struct{ Host }

// newState returns the state of rank 0 in a communicator of two, with algorithms of these
// operations.
func newState(t *testing.T, ops ...coll.Operation) *State {
	t.Helper()
	engine := progress.New(progress.Options{})
	t.Cleanup(engine.Close)
	offer := &coll.Offer{}
	for _, op := range ops {
		offer.Algorithms = append(offer.Algorithms, coll.Algorithm{Name: "test", Op: op, Plan: func(*coll.Schedule, coll.Member, *coll.Args) {}})
	}
	shape := MakeShape(coll.PlacementOf(0, 0), nil, []coll.ComponentOffer{{Component: "test", Offer: offer}}, true)
	k, local := new(State), new(Rank)
	local.Init(engine, new(Pieces))
	k.Init(Env{Host: silentHost{}, ID: cid.Extended{Base: 1}, Size: 2, RankResources: local, CommState: new(atomic.Uint32)})
	k.resources = &resources{peers: peers{collState: k}, usableTable: shape.plainTable, plainTable: shape.plainTable, comparesCalls: true}
	return k
}

// A failed start leaves the operation of a persistent request usable.
func TestStart_NoAlgorithmToExchangeRecords_LeavesKeptOperationFree(t *testing.T) {
	k := newState(t, coll.Barrier)
	kept := k.env.RankResources.NewKept()
	before := k.operationCount
	if _, err := k.Start(kept, &Call{Op: coll.Barrier}); !errors.Is(err, framework.ErrUnsupported) {
		t.Fatalf("%v, want ErrUnsupported", err)
	}
	if kept.inUse.Load() || k.operationCount != before {
		t.Errorf("in use: %v; %d operations were counted", kept.inUse.Load(), k.operationCount-before)
	}
}

// busyInstance reports its buffers as used until isQuiet is set.
type busyInstance struct {
	coll.Instance
	isQuiet atomic.Bool
}

func (x *busyInstance) Withdraw(*coll.Call) bool { return x.isQuiet.Load() }

func TestWithdrawBuffers_AnotherRankUsesThem_ReturnsErrorAfterLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := new(busyInstance)
		if err := withdrawBuffers(x, new(coll.Call)); !errors.Is(err, framework.ErrPending) {
			t.Errorf("%v, want ErrPending", err)
		}
		x.isQuiet.Store(true)
		if err := withdrawBuffers(x, new(coll.Call)); err != nil {
			t.Error(err)
		}
	})
}

// The memory of a call that is still in use is not used for another one.
func TestInline_BuffersStayInUse_DropsWorkingMemory(t *testing.T) {
	k := newState(t, coll.Barrier)
	k.comparesCalls = false
	k.usableTable[coll.Barrier][0].Algorithm.Plan = func(s *coll.Schedule, _ coll.Member, _ *coll.Args) {
		s.Temp = 100
		s.Steps = append(s.Steps, coll.Step{Kind: coll.Own})
	}
	x := new(failingInstance)
	k.instances = []openInstance{{"test", x}}
	synctest.Test(t, func(t *testing.T) {
		if err := k.Inline(t.Context(), &Call{Op: coll.Barrier}); !errors.Is(err, framework.ErrPending) || !errors.Is(err, errStep) {
			t.Errorf("%v, want ErrPending and %v", err, errStep)
		}
		x.isQuiet.Store(true)
		if err := k.Inline(t.Context(), &Call{Op: coll.Barrier}); errors.Is(err, framework.ErrPending) || !errors.Is(err, errStep) {
			t.Errorf("%v, want %v alone", err, errStep)
		}
	})
	if n := len(k.peers.freeScratch); n != 1 {
		t.Errorf("%d pieces of working memory were kept, want that of the second call only", n)
	}
}

var errStep = errors.New("a step failed")

// failingInstance is a busyInstance with failing steps.
type failingInstance struct{ busyInstance }

func (x *failingInstance) Memory() []byte { return nil }

func (x *failingInstance) PollStep(*coll.Step, *coll.Call) (bool, error) { return false, errStep }

// withoutReports is a host of operations that fail.
type withoutReports struct{ silentHost }

func (withoutReports) ReportBroken(error)     {}
func (withoutReports) Labels() pprof.LabelSet { return pprof.Labels() }

// quietPML is a PML without messages.
type quietPML struct{ pml.Comm }

func (quietPML) Abort(pml.Plane, error) {}

// blockingInstance is a failingInstance with steps of kind Work that last longer than the wait for
// the buffers.
type blockingInstance struct {
	failingInstance
	before, after []byte
}

func (x *blockingInstance) Work(_ *coll.Step, c *coll.Call) {
	x.before = c.Temp
	time.Sleep(2 * withdrawTimeout)
	x.after = c.Temp
}

// A step in progress reads the call until it ends. The memory is not used for another operation.
func TestStart_BuffersStayInUse_DropsWorkingMemoryAtTheEnd(t *testing.T) {
	k := newState(t, coll.Barrier)
	k.comparesCalls = false
	k.env.Host, k.env.PML = withoutReports{}, quietPML{}
	k.usableTable[coll.Barrier][0].Algorithm.Plan = func(s *coll.Schedule, _ coll.Member, _ *coll.Args) {
		s.Temp = 100
		s.Work(0, 0, quickBytes+1, coll.Ref{Slot: coll.Temp}, coll.Ref{Slot: coll.Temp})
		s.Own(0, 0, 0, coll.Ref{Slot: coll.Temp}, coll.Ref{Slot: coll.Temp})
	}
	x := new(blockingInstance)
	k.instances = []openInstance{{"test", x}}
	synctest.Test(t, func(t *testing.T) {
		h, err := k.Start(nil, &Call{Op: coll.Barrier})
		if err != nil {
			t.Fatal(err)
		}
		done := false
		for startedAt := time.Now(); !done && time.Since(startedAt) < 4*withdrawTimeout; time.Sleep(time.Second) {
			k.engine().Lock()
			_, done, err = h.Request.Take(h.Generation)
			k.engine().Unlock()
		}
		if !done || !errors.Is(err, framework.ErrPending) || !errors.Is(err, errStep) {
			t.Errorf("done: %v; %v, want ErrPending and %v", done, err, errStep)
		}
	})
	if len(x.before) != 100 || len(x.after) != 100 {
		t.Errorf("the step had %d bytes of working memory at first, and %d at its end", len(x.before), len(x.after))
	}
	if free := k.env.RankResources.freeOperations; len(free) != 1 || free[0].call.Temp != nil {
		t.Errorf("free operations: %d; the first one keeps memory: %v", len(free), len(free) > 0 && free[0].call.Temp != nil)
	}
}
