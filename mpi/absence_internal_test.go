package mpi

import (
	"testing"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// A revocation is kept without a limit, so that those for which no handle comes must not be kept.
func TestRevoke_CommunicatorIsClosedOrRefused_IsNotKept(t *testing.T) {
	closed, partly, refused, later := cid.Extended{Base: 1}, cid.Extended{Base: 2}, cid.Extended{Base: 3}, cid.Extended{Base: 4}
	e := &process{Assembly: &assembly.Assembly{}, registry: newRegistry()}
	e.absence.close(cid.EndpointID{Extended: closed}, 1)
	e.absence.close(cid.EndpointID{Extended: partly, Endpoint: 1}, 2)
	e.refuseHandles(cid.Descendants(refused), pml.AllEndpoints)
	e.refuseHandles(cid.Descendants(later), 1) // Another rank of this process may create it.
	for id, want := range map[cid.Extended]bool{closed: false, partly: true, refused: false, later: true} {
		e.revoke(id, Proc{}, stateRevoked)
		if _, isKept := e.earlyRevocations[id]; isKept != want {
			t.Errorf("the revocation of %v is kept: %t", id, isKept)
		}
	}
}
