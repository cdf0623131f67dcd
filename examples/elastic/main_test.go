package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/cmd/ferry/ferrytest"
	"github.com/ferrympi/ferry/internal/needs"
)

func TestMain(m *testing.M) { ferrytest.Main(m, map[string]func(){"elastic": main}) }

func TestScripts(t *testing.T) { ferrytest.Run(t) }

func TestElastic_MemberDies_IsReplaced(t *testing.T) {
	for _, rank := range []int{0, 2} {
		for _, flag := range []string{"-async=false", "-async"} {
			t.Run(fmt.Sprint(rank, flag), func(t *testing.T) {
				longer(t, func(t *testing.T, d string) bool {
					j := ferrytest.Start(t, "-n", "3", "--on-failure", "continue", "elastic", flag, "-for", d)
					if line := j.Line(t); line != "3 processes after 0 rounds" {
						t.Fatalf("%q", line)
					}
					isKilled := j.Kill(rank)
					out := j.Succeeds(t)
					return isKilled && strings.Contains(out, "3 processes after")
				})
			})
		}
	}
}

// longer calls f with increasing times for a job, until f reports that the time was enough.
func longer(t *testing.T, f func(t *testing.T, d string) bool) {
	t.Helper()
	const longest = time.Minute
	for d := 2 * time.Second; !f(t, d.String()); d *= 4 {
		if d > longest {
			t.Fatalf("not done within %v", d)
		}
	}
}

func TestElastic_UserResizes_TakesTheChanges(t *testing.T) {
	for _, flag := range []string{"-async=false", "-async"} {
		longer(t, func(t *testing.T, d string) bool {
			j := ferrytest.Start(t, "-n", "2", "--max-ranks", "4", "elastic", flag, "-for", d)
			j.Line(t)
			isDone := true
			for _, change := range []string{"--add=2", "--sub=3", "--replace=1"} { // The last one replaces all processes.
				if out, ok := j.Resize(change); !ok {
					t.Logf("resize %s: %s", change, out)
					isDone = false
				}
			}
			out := j.Succeeds(t)
			return isDone && strings.Contains(out, "4 processes after") && strings.Count(out, "1 processes after") == 2 &&
				strings.Contains(out, "3 changes, 1 processes at the end")
		})
	}
}

// TestElastic_UserWithdraws_Continues adds a process that never integrates, and interrupts the
// request when the members wait for it.
func TestElastic_UserWithdraws_Continues(t *testing.T) {
	longer(t, func(t *testing.T, d string) bool {
		j := ferrytest.Start(t, "-n", "2", "--max-ranks", "3", "sh", "-c",
			`test "$FERRY_BOOTSTRAP_LOCAL_RANK" -lt 2 && exec elastic -for `+d+`; exec sleep 60`)
		j.Line(t)
		request := j.Command("resize", j.Pid(), "--add=1")
		if err := request.Start(); err != nil {
			t.Fatal(err)
		}
		areWaiting := false
		for isRunning := true; isRunning && !areWaiting; {
			out, _ := j.Command("ps").Output()
			areWaiting = bytes.Contains(out, []byte("2 of 3 integrated"))
			isRunning = bytes.Contains(out, []byte("elastic"))
		}
		request.Process.Signal(syscall.SIGINT)
		request.Wait()
		return strings.Contains(j.Succeeds(t), " 0 changes, 2 processes at the end") && areWaiting
	})
}

// TestElastic_OverCM_GrowsAndShrinks needs the library of a network.
func TestElastic_OverCM_GrowsAndShrinks(t *testing.T) {
	info, err := exec.Command("ferry", "info").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^mtl \w+ +usable`).Match(info) {
		needs.Missing(t, "no MTL is usable: install libfabric1, and build with cgo")
	}
	for _, flag := range []string{"-async=false", "-async"} {
		j := ferrytest.Start(t, "-n", "1", "--max-ranks", "3", "--set", "pml=cm", "elastic", "-to", "3", "-rounds", "4", flag)
		if out := j.Succeeds(t); !strings.Contains(out, "4 changes, 1 processes") {
			t.Errorf("%s: %s", flag, out)
		}
	}
}
