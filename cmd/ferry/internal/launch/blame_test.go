package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/framework"
)

// incarnation opens and closes a session, as far as the launcher sees.
func incarnation() error {
	c, err := local.Dial(context.Background(), os.Environ(), bootstrap.Env{})
	if err != nil {
		return err
	}
	source, ok := framework.As[bootstrap.EventSource](c)
	if !ok {
		return fmt.Errorf("no EventSource")
	}
	source.BeginIncarnation(7)
	return c.Close()
}

// parts closes its session, and fails later than the server's delay of the report. Rank 0 fails because of it, and
// ends before.
func parts() error {
	if os.Getenv("FERRY_BOOTSTRAP_LOCAL_RANK") == "0" {
		time.Sleep(time.Second)
		fmt.Fprintln(os.Stderr, "the peer has closed its session")
		os.Exit(1)
	}
	if err := incarnation(); err != nil {
		return err
	}
	time.Sleep(1500 * time.Millisecond)
	fmt.Fprint(os.Stderr, "before\npanic: the cause\n\ngoroutine 1 [running]:\nmain.main()\n\tx.go:3\n", strings.Repeat("more\n", 1000))
	os.Exit(3)
	return nil
}

// early closes its session and does something else until it is asked to end, because
// another rank fails.
func early() error {
	if os.Getenv("FERRY_BOOTSTRAP_LOCAL_RANK") == "0" {
		time.Sleep(100 * time.Millisecond)
		fmt.Fprintln(os.Stderr, "its own fault")
		os.Exit(5)
	}
	if err := incarnation(); err != nil {
		return err
	}
	time.Sleep(time.Minute)
	return nil
}

// The rank that leaves first is named, although its process ends last.
func TestBlame_FirstLeavingRankEndsLast_IsNamed(t *testing.T) {
	j, notes, _ := acting(t, "parts")
	j.RankCount = 2
	res := run(t, j)
	if res.Status != 3 || len(res.Failures) != 2 || res.Failures[0].Rank != 1 {
		t.Errorf("%+v", res)
	}
	all := strings.Join(*notes, "\n")
	for _, want := range []string{"rank 1 failed first, and one rank after it:", "exited with status 3\n      panic: the cause\n      goroutine 1", "exited with status 1: the peer has closed its session"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in:\n%s", want, all)
		}
	}
	if strings.Contains(all, "before") || strings.Count(all, "more") > maxPanic {
		t.Errorf("of the panic there is more than its first lines:\n%s", all)
	}
}

// A rank that had left before is not a failed one.
func TestBlame_RankAskedToEnd_IsExcused(t *testing.T) {
	j, notes, _ := acting(t, "early")
	j.RankCount = 2
	res := run(t, j)
	if res.Status != 5 || len(res.Failures) != 2 || res.Failures[0].Rank != 0 || len(*notes) != 1 {
		t.Errorf("%+v, notes %q", res, *notes)
	}
}

func TestTail_Memory_IsBounded(t *testing.T) {
	var all tail
	for range 10000 {
		all.add([]byte(strings.Repeat("x", 1000)))
		all.add([]byte("\r\n\n"))
	}
	all.add([]byte("\tlast \xff"))
	got := all.lines()
	if len(got) != maxLast || len(got[0]) != maxLine || got[maxLast-1] != "    last ?" {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

// deaths is a shell script. Rank 1 kills itself, rank 2 fails after that, and the others succeed.
const deaths = `
case $FERRY_BOOTSTRAP_LOCAL_RANK in
1) kill -9 $$;;
2) read x <"$FIFO"; echo out of luck >&2; exit 4;;
esac`

// deathsJob returns a job of 4 ranks with two failures, and its notes.
func deathsJob(t *testing.T, tolerate int) (Job, *[]string) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	j := shell(t, 4, deaths)
	j.Env, j.ContinuesOnFailure, j.ToleratedFailures = []string{"FIFO=" + fifo}, true, tolerate
	notes := new([]string)
	j.Note = func(line string) {
		if *notes = append(*notes, line); len(*notes) == 1 {
			go func() { _ = os.WriteFile(fifo, []byte("go\n"), 0) }()
		}
	}
	return j, notes
}

func TestAccount_JobContinues_ListsDeathsInOrder(t *testing.T) {
	j, notes := deathsJob(t, 0)
	res := run(t, j)
	want := regexp.MustCompile(`(?s)\n2 of 4 ranks failed:` +
		`\n  \S+s after the start, rank 1 \(pid \d+\) killed by signal 9 \(killed\)` +
		`\n  \S+s after the start, rank 2 \(pid \d+\) exited with status 4: out of luck$`)
	if all := strings.Join(*notes, "\n"); res.Status != 137 || !want.MatchString(all) {
		t.Errorf("status %d, notes\n%s", res.Status, all)
	}
}

func TestTolerate_FailuresWithinLimit_StatusIsZero(t *testing.T) {
	for limit, want := range map[int]int{1: 137, 2: 0, 3: 0} {
		j, notes := deathsJob(t, limit)
		res := run(t, j)
		if heading := fmt.Sprintf("2 of 4 ranks failed; the job tolerates %d:", limit); res.Status != want || len(res.Failures) != 2 || !slices.Contains(*notes, heading) {
			t.Errorf("tolerate %d: status %d, failures %v, notes %q", limit, res.Status, res.Failures, *notes)
		}
	}
}

func TestTolerate_JobIsInterrupted_StatusIsTheSignal(t *testing.T) {
	j := shell(t, 2, "echo ready; exec sleep 100")
	j.ContinuesOnFailure, j.ToleratedFailures = true, 2
	signals := make(chan os.Signal, 1)
	j.Signals = signals
	j.Stdout = &watcher{want: "ready", seen: func() { signals <- syscall.SIGINT }}
	if res := run(t, j); res.Status != 130 {
		t.Errorf("status %d, failures %v", res.Status, res.Failures)
	}
}
