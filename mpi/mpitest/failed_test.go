package mpitest

import (
	"errors"
	"testing"
)

// An error of another rank that follows from the end of the context must not be the first.
func TestFailed_ContextEnds_ErrorIsRecorded(t *testing.T) {
	recorded := -1
	r := &run{job: Job{Size: 2}}
	r.end = func(error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		recorded = len(r.errs)
	}
	r.failed(1, errors.New("out of luck"))
	if recorded != 1 {
		t.Errorf("%d errors are recorded when the context ends, want 1", recorded)
	}
}
