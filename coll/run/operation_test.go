package run

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// silentHost is a communicator that nothing calls.
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
	k.Init(Env{Host: silentHost{}, ID: cid.Extended{Base: 1}, Size: 2, Local: local, CommState: new(atomic.Uint32)})
	k.resources = &resources{peers: peers{state: k}, table: shape.table, plainTable: shape.table, comparesCalls: true}
	return k
}

// A failed start leaves the operation of a persistent request usable.
func TestStart_NoAlgorithmToExchangeRecords_LeavesKeptOperationFree(t *testing.T) {
	k := newState(t, coll.Barrier)
	kept := k.env.Local.NewKept()
	before := k.operationCount
	if _, err := k.Start(kept, &Call{Op: coll.Barrier}); !errors.Is(err, framework.ErrUnsupported) {
		t.Fatalf("%v, want ErrUnsupported", err)
	}
	if kept.inUse.Load() || k.operationCount != before {
		t.Errorf("in use: %v; %d operations were counted", kept.inUse.Load(), k.operationCount-before)
	}
}
