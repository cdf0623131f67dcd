package mpi

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// TestEndReceive_ReceiveHasCompleted_KeepsTheErrorOfTheSend tests a send that fails after the message
// has arrived.
func TestEndReceive_ReceiveHasCompleted_KeepsTheErrorOfTheSend(t *testing.T) {
	e := progress.New(progress.Options{})
	defer e.Close()
	var r rankState
	r.init(e, new(run.Pieces))
	errSend := errors.New("the send failed")
	for _, recv := range []Request{r.nullRequests.request(nullStatus()), {}} {
		if _, err := endReceive(recv, pml.NoMessage(), nil, errSend); !errors.Is(err, errSend) {
			t.Errorf("got %v", err)
		}
	}
}
