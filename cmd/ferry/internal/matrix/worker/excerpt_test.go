package worker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

func TestFindCause_CrashOutput_ReturnsCause(t *testing.T) {
	for output, want := range map[string]string{
		"":                             "",
		"note\nferry: no such thing\n": "ferry: no such thing",
		"panic: index out of range [5]\n\ngoroutine 1 [running]:\nmain.main()\n":                                                                                  "panic: index out of range [5]",
		"panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x1]\n\ngoroutine": "panic: runtime error: invalid memory address or nil pointer dereference (SIGSEGV: segmentation violation)",
		"ferry: prov/x.c:7: f: Assertion `a' failed.\nSIGABRT: abort\nPC=0x1\n":                                                                                   "ferry: prov/x.c:7: f: Assertion `a' failed.; SIGABRT: abort",
		"\nferry:11911 terminated with signal 11 at PC=7f40\n/lib/x(+0x1)\n/tmp/f[0x2]\n":                                                                         "terminated with signal 11",
		"fatal error: all goroutines are asleep - deadlock!\n":                                                                                                    "fatal error: all goroutines are asleep - deadlock!",
	} {
		if got := findCause(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

func TestExcerpt_LongOutput_KeepsBothEnds(t *testing.T) {
	x := &excerpt{}
	for i := range 10000 {
		fmt.Fprintln(x, "line", i)
	}
	text := x.String()
	if !strings.HasPrefix(text, "line 0\n") || !strings.HasSuffix(text, "line 9999\n") || len(text) > 2*excerptHalf+100 || !strings.Contains(text, " bytes ...]") {
		t.Errorf("%d bytes: %.50q", len(text), text)
	}
}

// The cause is between the output of a library and thousands of goroutines.
func TestExcerpt_ProcessCrashes_KeepsCause(t *testing.T) {
	x := &excerpt{}
	for i := range 10000 {
		fmt.Fprintln(x, "line", i)
	}
	fmt.Fprintln(x, "SIGSEGV: segmentation violation")
	for i := range 10000 {
		fmt.Fprintln(x, "goroutine", i)
	}
	text := x.String()
	if !strings.Contains(text, "line 9999\nSIGSEGV: segmentation violation\ngoroutine 0\n") || findCause(text) != "SIGSEGV: segmentation violation" {
		t.Errorf("%.3000q", text)
	}
}

func TestDescribe_SeveralRanksFail_NamesTheCause(t *testing.T) {
	e := workerExit{jobResult: launch.Result{Status: 2, Failures: []launch.Failure{{Rank: 1, Status: 2, HowEnded: "exited with status 2"}, {Rank: 0, HowEnded: "x"}}}, rankCount: 2,
		outputText: "SIGSEGV: segmentation violation\n"}
	if got := e.describe(); got != "rank 1 exited with status 2: SIGSEGV: segmentation violation" {
		t.Error(got)
	}
}
