package launch

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/attacktest"
)

func TestAttack_LinkInOutputDir_IsNotTruncated(t *testing.T) {
	j := shell(t, 1, "echo overwritten")
	j.OutputDir = t.TempDir()
	precious := attacktest.Link(t, filepath.Join(j.OutputDir, "rank.0"), "precious")
	if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "symbolic link of user 65534") {
		t.Error(err)
	}
	if b, err := os.ReadFile(precious); err != nil || string(b) != "precious" {
		t.Errorf("the target of the link has %q, %v", b, err)
	}
}

func TestOutput_PipeWithoutReaderInOutputDir_IsAnError(t *testing.T) {
	j := shell(t, 1, "echo lost")
	j.OutputDir = t.TempDir()
	if err := unix.Mkfifo(filepath.Join(j.OutputDir, "rank.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "rank.0: no process reads from it") {
		t.Error(err)
	}
}

// The limit of TestAttack_ReportsWithoutEnd_TakeBoundedMemory is that of each rank. Its first excess is logged.
func TestAttack_ReportsWithoutEnd_TakeBoundedMemory(t *testing.T) {
	log := make(chan string, 10)
	r := reports{bytesByRank: map[int]int{}, logger: slog.New(lines(log))}
	body := make([]byte, 1<<20)
	for range 100 {
		r.add(Report{0, "junk", body})
	}
	r.add(Report{1, "report", body})
	if n := len(r.keptReports); n > mostReported>>20+1 || r.keptReports[n-1].Rank != 1 {
		t.Errorf("%d reports are kept", n)
	}
	if len(log) != 1 {
		t.Fatalf("%d lines of log for one rank with dropped reports", len(log))
	}
	if got, want := <-log, "rank 0 reported more than 16 MiB: further reports are dropped"; got != want {
		t.Errorf("log %q, want %q", got, want)
	}
}
