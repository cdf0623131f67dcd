package matrix_test

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/conform"
	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/internal/needs"
)

// adding is the number of conformance cases that add processes.
func adding() (n int) {
	for _, c := range conform.Cases() {
		if c.AddsProcesses {
			n++
		}
	}
	return n
}

func TestMatrix_SuiteFull_AddsProcessesOverTheStack(t *testing.T) {
	t.Parallel()
	r := start(t, nil, "matrix", "--suite", "full", "--components", "ob1+shm,ob1+tcp", "--ranks", "2", "--cases", "^conform/2/pset/", "--json", "$JSON").wait(0)
	for _, stack := range []string{"ob1+shm", "ob1+tcp"} {
		passes(t, r, stack, adding()+1)
	}
	for _, row := range r.Rows {
		if row.Status != report.Pass {
			t.Errorf("%s %s: %s: %s", row.Stack, row.Case, row.Status, row.Reason)
		}
	}
}

// A broken transport fails the case that adds processes, and leaves no process.
func TestMatrix_AddedProcessesOverBrokenTransport_CaseFails(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	const name = "conform/2/pset/grow and shrink"
	r := start(t, nil, "matrix", "--suite", "full", "--components", "ob1+drop,ob1+crash,ob1+corrupt", "--ranks", "2", "--cases", "^"+name, "--timeout", limit, "--json", "$JSON").wait(1)
	for _, stack := range []string{"ob1+drop", "ob1+crash", "ob1+corrupt"} {
		if got := row(t, r, stack, name); !got.Status.Bad() {
			t.Errorf("%s: %s: %s", stack, got.Status, got.Reason)
		}
	}
}

// The launcher starts the processes of --job. Its room for more is not used.
func TestMatrixJob_LauncherHasRoom_AddsNoProcesses(t *testing.T) {
	t.Parallel()
	r := start(t, nil, "run", "-n", "2", "--max-ranks", "4", tool(t), "matrix", "--job", "--suite", "full", "--components", "ob1+shm", "--cases", "^conform/2/pset/", "--json", "$JSON").wait(0)
	passes(t, r, "ob1+shm", 2)
	for _, row := range r.Rows {
		if strings.HasSuffix(row.Case, "/grow and shrink") {
			t.Errorf("%+v", row)
		}
	}
}
