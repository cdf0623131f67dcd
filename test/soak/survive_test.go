package soak

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/needs"
)

// Ranks die at random moments of messages, collectives, creations, Revoke, Shrink and Agree. The
// survivors continue, no call hangs, all of them get the same outcomes and values, and no process
// or file remains.
//
//	go test ./test/soak -v -run Survive                                       a few jobs
//	go test ./test/soak -v -full -run Survive -timeout 2h                     the full number
//	go test ./test/soak -v -run Survive/ob1.shm -survive.seed 17 -survive.jobs 50    one of them, 50 times
var (
	surviveSeed = flag.Uint64("survive.seed", 0, "the seed of all jobs in which ranks die; 0: a random one for each")
	surviveJobs = flag.Int("survive.jobs", 0, "jobs of each stack in which ranks die; 0: some, or up to 1,000 with -full")
)

func TestSurvive(t *testing.T) {
	none := func(*testing.T) []string { return nil }
	for _, x := range []struct {
		name string
		env  func(t *testing.T) []string
		// Number of deaths, 0 for one or two.
		deaths     int
		full, some int
	}{
		{"ob1+shm", none, 0, 1000, 5},
		{"ob1+tcp", func(*testing.T) []string { return overSockets }, 0, 100, 2},
		{"cm+ofi", overNetwork, 0, 100, 1},
		{"cm+ucx", func(t *testing.T) []string { return overUCX(t, "tcp") }, 0, 100, 1},
		{"until one is left", none, surviveRanks - 1, 100, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			if strings.HasPrefix(x.name, "cm") {
				needs.Time(t)
			}
			env := x.env(t)
			n := size(x.full, x.some)
			if *surviveJobs > 0 {
				n = *surviveJobs
			}
			began, ends := time.Now(), map[jobEnd]int{}
			for range n {
				seed := *surviveSeed
				if seed == 0 {
					seed = randv2.Uint64()>>1 + 1
				}
				ends[runSurvival(t, newSurvival(seed, x.deaths), x.deaths, env)]++
			}
			t.Logf("%d jobs, %d failed, %d ended by UCX, in %v", n, ends[failed], ends[endedByUCX], time.Since(began).Round(time.Millisecond))
			if most := 1 + n/20; ends[endedByUCX] > most {
				t.Errorf("UCX has ended %d of %d jobs, want at most %d", ends[endedByUCX], n, most)
			}
		})
	}
}

// surviveTimeout is the timeout of a job on a busy machine. After it the launcher reports the calls
// in which ranks wait.
const surviveTimeout = 60 * time.Second

// jobEnd is the end of a job with deaths.
type jobEnd uint8

const (
	passed jobEnd = iota
	failed
	// An assertion of UCX has ended a survivor, so that the job has another group.
	endedByUCX
)

// abortsConnecting is an assertion of UCX before 1.14, which ends a process that replies to a dead one
// (docs/provider-defects.md, UCX).
var abortsConnecting = regexp.MustCompile(`ucp_request\.c:\d+ +Assertion .*UCP_WIREUP_MSG_EP_REMOVED`)

// runSurvival runs a job, and reports whether the survivors agree.
func runSurvival(t *testing.T, p *survival, deaths int, env []string) jobEnd {
	shm, runtimeDir, mark := segments(t), t.TempDir(), envMark+"="+rand.Text()
	ctx, cancel := context.WithTimeout(t.Context(), surviveTimeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "run", "-n", fmt.Sprint(surviveRanks), "--on-failure", "continue", "--tolerate", fmt.Sprint(len(p.deaths)),
		"--timeout", surviveTimeout.String(), "-x", envFerry+"=0", os.Args[0])
	cmd.Env = append(os.Environ(), mark, envFerry+"=1", "XDG_RUNTIME_DIR="+runtimeDir, "FERRY_BTL_SHM_DIR="+shm, "LOCALTEST_PROGRAM=survive",
		"LOCALTEST_TIMEOUT="+(2*surviveTimeout).String(), fmt.Sprint(envSurviveSeed, "=", p.seed), fmt.Sprint(envSurviveDeaths, "=", deaths))
	cmd.Env = append(cmd.Env, env...)
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	end, early := passed, missingSurvivors(p, out.String(), err)
	if len(early) > 0 && abortsConnecting.Match(notes.Bytes()) {
		end, early = endedByUCX, nil
	}
	found := append(early, differences(out.String())...)
	if left := append(files(t, shm), files(t, runtimeDir)...); len(left) > 0 {
		found = append(found, fmt.Sprintf("files left: %v", left))
	}
	if left := markedProcesses(mark); len(left) > 0 {
		found = append(found, fmt.Sprintf("processes left: %v", left))
	}
	if len(found) > 0 {
		t.Errorf("-survive.seed %d (%v):\n%s\n%s", p.seed, p, strings.Join(found, "\n"), excerpt(notes.String(), 60))
		return failed
	}
	return end
}

// excerpt returns the first and the last n lines of text. The cause of a crash precedes the stacks of all goroutines.
func excerpt(text string, n int) string {
	if lines := strings.Split(strings.TrimSpace(text), "\n"); len(lines) > 2*n {
		return fmt.Sprintf("%s\n[%d lines]\n%s", strings.Join(lines[:n], "\n"), len(lines)-2*n, strings.Join(lines[len(lines)-n:], "\n"))
	}
	return text
}

// differences returns the outcomes that differ among ranks.
func differences(out string) (found []string) {
	outcomes := map[string]string{}
	for line := range strings.Lines(out) {
		if kind, rest, _ := strings.Cut(strings.TrimSpace(line), " "); kind != "survived" {
			call, outcome, _ := strings.Cut(rest, " ")
			if first, ok := outcomes[call]; ok && first != outcome {
				found = append(found, fmt.Sprintf("call %s: %q in one rank, %q in another", call, first, outcome))
			}
			outcomes[call] = outcome
		}
	}
	return found
}

// missingSurvivors returns the error of a job, and the survivors that have not reached the end.
func missingSurvivors(p *survival, out string, err error) (found []string) {
	if err != nil {
		found = append(found, err.Error())
	}
	var ended []string
	for line := range strings.Lines(out) {
		if rank, ok := strings.CutPrefix(strings.TrimSpace(line), "survived "); ok {
			ended = append(ended, rank)
		}
	}
	slices.Sort(ended)
	if want := strings.Fields(strings.Trim(fmt.Sprint(p.survivors()), "[]")); !slices.Equal(ended, want) {
		found = append(found, fmt.Sprintf("survivors that come to the end: %v, want %v", ended, want))
	}
	return found
}

func TestExcerpt_LongText_HasBeginningAndEnd(t *testing.T) {
	if got, want := excerpt("a\nb\nc\nd\ne\n", 2), "a\nb\n[1 lines]\nd\ne"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := excerpt("a\nb\nc\nd", 2); got != "a\nb\nc\nd" {
		t.Errorf("%q is not complete", got)
	}
}

func TestAbortsConnecting_OutputOfUCX_Matches(t *testing.T) {
	const line = "[vm:25190:0:25338] ucp_request.c:684  Assertion `(req->send.wireup.type == UCP_WIREUP_MSG_EP_REMOVED) || (req->send.wireup.type == UCP_WIREUP_MSG_EP_CHECK)' failed"
	for out, want := range map[string]bool{line: true, "SIGABRT: abort": false, "[vm:1:0:2] ucp_worker.inl:92 Assertion `ext != NULL' failed": false} {
		if got := abortsConnecting.MatchString(out); got != want {
			t.Errorf("%q: %t, want %t", out, got, want)
		}
	}
}

func TestDifferences_RanksDisagreeOrAreMissing_AreFound(t *testing.T) {
	p := &survival{deaths: []death{{rank: 0}, {rank: 1}, {rank: 2}, {rank: 3}, {rank: 4}, {rank: 5}}} // 6 and 7 survive.
	for out, want := range map[string]string{
		"outcome a/1 agree 0x1\noutcome a/1 agree 0x1\nsurvived 7\nsurvived 6\n":            "",
		"outcome a/1 agree 0x1\noutcome a/1 agree 0x1 failed [2]\nsurvived 7\nsurvived 6\n": "a/1",
		"outcome a/1 shrink [6 7] b\noutcome a/1 agree 0x1\nsurvived 7\nsurvived 6\n":       "a/1",
		"outcome a/1 agree 0x1\noutcome a/2 agree 0x0\noutcome a/1 agree 0x1\nsurvived 7\n": "come to the end: [7], want [6 7]",
		"survived 5\nsurvived 6\nsurvived 7\n":                                              "want [6 7]",
	} {
		found := strings.Join(append(missingSurvivors(p, out, nil), differences(out)...), "; ")
		if (found == "") != (want == "") || !strings.Contains(found, want) {
			t.Errorf("%q: %q, want %q", out, found, want)
		}
	}
}

// The deaths of many jobs are in operations of all kinds, and in recoveries.
func TestSurvival_ManySeeds_HaveDeathsInAllSteps(t *testing.T) {
	type moment struct {
		kind       stepKind
		inRecovery bool
	}
	seen, two := map[moment]int{}, 0
	for seed := range uint64(500) {
		p := newSurvival(seed, 0)
		if len(p.deaths) == 2 {
			two++
		}
		for _, d := range p.deaths {
			seen[moment{p.steps[d.step], d.inRecovery}]++
		}
	}
	if want := 2 * int(stepKinds); len(seen) != want || two < 200 || two > 300 {
		t.Errorf("%d jobs of 500 with two deaths, in %d kinds of moments, want %d: %v", two, len(seen), want, seen)
	}
	if p := newSurvival(1, surviveRanks-1); len(p.survivors()) != 1 || fmt.Sprint(p) != fmt.Sprint(newSurvival(1, surviveRanks-1)) {
		t.Errorf("until one is left: %v", p)
	}
}
