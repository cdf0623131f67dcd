package mpi

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// The launcher may have ended, so that standard error is a pipe without a reader.
func TestDump_ReaderEnds_ProgramContinues(t *testing.T) {
	const child = "MPI_TEST_DUMP"
	if os.Getenv(child) != "" {
		before := runtime.NumGoroutine()
		new(process).Dump(reportWaits)
		for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the write does not end")
			}
		}
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.Stderr = w
	out, err := cmd.Output()
	w.Close()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
