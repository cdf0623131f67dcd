package mpitest

import (
	"errors"
	"testing"

	"github.com/ferrympi/ferry/bootstrap/local/server"
)

// An error of another rank that follows from the end of the context must not be the first.
func TestFailed_ContextEnds_ErrorIsRecorded(t *testing.T) {
	recorded := -1
	srv, err := server.New(server.Options{Size: 2})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{job: Job{Size: 2}, server: srv}
	r.endContexts = func(error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		recorded = len(r.errorLines)
	}
	r.failed(1, errors.New("out of luck"))
	if recorded != 1 {
		t.Errorf("%d errors are recorded when the context ends, want 1", recorded)
	}
}
