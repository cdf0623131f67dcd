package mpi

import (
	"testing"

	"github.com/ferrympi/ferry/agreement"
)

// A context that ends at the moment of the decision leaves no member in a communicator that it has not created.
func TestAbandon_InstanceIsDecided_ReturnsTheOutcome(t *testing.T) {
	for _, op := range []agreement.Operation{agreement.Agree, agreement.Shrink} {
		c := &Comm{size: 1, membership: membership{session: &Session{process: &process{}}}}
		a := &agreements{c: c, callWakeup: make(chan struct{}, 1), machine: agreement.New(0, 1)}
		if err := a.start(t.Context(), agreementCall{Call: agreement.Call{Operation: op}}); err != nil {
			t.Fatal(err)
		}
		if a.abandon(op) {
			t.Errorf("%v is abandoned after its decision", op)
		}
		if _, isDecided, err := a.result(); !isDecided || err != nil {
			t.Errorf("%v has no outcome: %v", op, err)
		}
		a.mu.Lock()
		a.close()
		a.mu.Unlock()
	}
}
