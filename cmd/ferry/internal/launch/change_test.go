package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/limits"
)

// The variables of an elastic rank: the changes of rank 0, such as "grow:3 shrink:2", and the
// conduct of the others (see follow).
const (
	envChanges = "LAUNCH_TEST_CHANGES"
	envConduct = "LAUNCH_TEST_CONDUCT"
)

// elastic changes the job as rank 0, and takes part in changes as another rank.
func elastic() error {
	ctx := context.Background()
	client, err := local.Dial(ctx, os.Environ(), bootstrap.Env{})
	if err != nil {
		return err
	}
	defer client.Close()
	c, ok := framework.As[bootstrap.Changer](client)
	if !ok {
		return errors.New("no changes here")
	}
	id := client.Identity()
	if id.Proc.Rank > 0 {
		pset := bootstrap.PsetWorld
		if id.FirstRank > 0 {
			fmt.Println("joined")
			pset = bootstrap.PsetSelf
		}
		return follow(ctx, client, c, pset)
	}
	main := bootstrap.PsetWorld
	for change := range strings.FieldsSeq(os.Getenv(envChanges)) {
		if main, err = lead(ctx, c, main, change); err != nil {
			fmt.Println("failed:", err)
		}
	}
	fmt.Println("done")
	return nil
}

// lead makes one change, and returns the main set after it.
func lead(ctx context.Context, c bootstrap.Changer, main, change string) (string, error) {
	kind, number, _ := strings.Cut(change, ":")
	n, _ := strconv.Atoi(number)
	var names []string
	var err error
	switch kind {
	case "grow":
		names, err = c.Operate(ctx, bootstrap.PsetGrow, []string{main}, bootstrap.PsetArgs{Add: n})
	case "shrink":
		names, err = c.Operate(ctx, bootstrap.PsetShrink, []string{main}, bootstrap.PsetArgs{Sub: n})
	case "failure": // Wait for one.
		_, _, err = c.Query(ctx, main, true)
		return main, err
	case "replace":
		names, err = c.Operate(ctx, bootstrap.PsetReplace, []string{main}, bootstrap.PsetArgs{Add: 1, Sub: n})
	case "hang": // Until the end of the input.
		_, err = io.Copy(io.Discard, os.Stdin)
		return main, err
	case "remove": // The program, so that it can't be started.
		return main, os.Remove(os.Args[0])
	}
	if err != nil {
		return main, err
	}
	if _, err := c.Integrate(ctx, names[0], ""); err != nil {
		return main, err
	}
	return names[len(names)-1], c.FinishChange(ctx, names[0])
}

// follow integrates changes until one removes the process.
func follow(ctx context.Context, client bootstrap.Client, c bootstrap.Changer, pset string) error {
	conduct := os.Getenv(envConduct)
	switch rank := client.Identity().Proc.Rank; {
	case conduct == "crash", conduct == "die" && rank == 1:
		os.Exit(3)
	case conduct == "idle":
		select {}
	}
	for {
		change, _, err := c.Query(ctx, pset, true)
		if err != nil {
			return err
		}
		got, err := c.Integrate(ctx, change.Delta, "")
		if err != nil {
			return err
		}
		if pset = got.Pset; got.Terminate {
			break
		}
	}
	client.Close()
	switch conduct {
	case "fail":
		os.Exit(4)
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
		fallthrough
	case "stay":
		select {}
	}
	return nil
}

// elasticJob is a job of n ranks that may have 4.
func elasticJob(t *testing.T, n int, changes, conduct string) (j Job, notes *[]string) {
	t.Helper()
	j = shell(t, n, "")
	j.Program, j.Args, j.MaxRanks = os.Args[0], nil, 4
	j.Env = []string{envAct + "=elastic", envChanges + "=" + changes, envConduct + "=" + conduct}
	j.TagsLines = true
	notes = new([]string)
	j.Note = func(line string) { *notes = append(*notes, line) }
	return j, notes
}

// succeeded fails unless a job has ended with status 0 and no failure, and rank 0 has made all
// changes.
func succeeded(t *testing.T, j Job, res Result, notes []string) {
	t.Helper()
	if out := stdoutOf(j); res.Status != 0 || len(res.Failures) > 0 || !strings.Contains(out, "[0] done") || strings.Contains(out, "failed") {
		t.Errorf("status %d, failures %v, notes %q, output:\n%s", res.Status, res.Failures, notes, out)
	}
}

func TestChange_AddedRanks_HaveEverythingOfTheFirst(t *testing.T) {
	j, notes := elasticJob(t, 1, "grow:3 replace:2 shrink:3", "")
	j.BindsOneCore = true
	res := run(t, j)
	succeeded(t, j, res, *notes)
	for rank := 1; rank < 5; rank++ {
		if !strings.Contains(stdoutOf(j), fmt.Sprintf("[%d] joined\n", rank)) {
			t.Errorf("no line of rank %d in %q", rank, stdoutOf(j))
		}
	}
	if len(res.Trace.Ranks) != 5 || res.Trace.Ranks[4].Rank != 4 || res.Trace.Ranks[4].EndSeenAt == 0 {
		t.Errorf("trace %+v", res.Trace.Ranks)
	}
}

func TestChange_AddedRanks_HaveOutputFiles(t *testing.T) {
	j, notes := elasticJob(t, 1, "grow:2 shrink:2", "")
	j.OutputDir, j.TagsLines = t.TempDir(), false
	res := run(t, j)
	if res.Status != 0 {
		t.Errorf("status %d, %q", res.Status, *notes)
	}
	for rank, want := range []string{"done\n", "joined\n", "joined\n"} {
		got, err := os.ReadFile(filepath.Join(j.OutputDir, fmt.Sprint("rank.", rank)))
		if err != nil || string(got) != want {
			t.Errorf("rank %d: %q, %v", rank, got, err)
		}
	}
}

func TestChange_MoreThanTheLimit_GivesTheNumberThatFits(t *testing.T) {
	j, _ := elasticJob(t, 1, "grow:4", "")
	if res := run(t, j); res.Status != 0 || !strings.Contains(stdoutOf(j), "3 fit") {
		t.Errorf("status %d: %s", res.Status, stdoutOf(j))
	}
	j.MaxRanks = 0
	if run(t, j); !strings.Contains(stdoutOf(j), "0 fit") {
		t.Errorf("without a limit: %s", stdoutOf(j))
	}
	j.RankCount, j.MaxRanks = 3, 2
	if _, err := j.Run(t.Context()); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "at most 2 ranks") {
		t.Errorf("a limit below the first ranks: %v", err)
	}
}

// A rank that has left may still run.
func TestChange_CoresPerRank_AddedRanksHaveTheirOwn(t *testing.T) {
	all, err := cores()
	if err != nil {
		t.Fatal(err)
	}
	j, notes := elasticJob(t, 1, fmt.Sprintf("grow:%d grow:%d shrink:1 grow:1", len(all), len(all)-1), "")
	if len(all) == 1 {
		j, notes = elasticJob(t, 1, "grow:1", "")
	}
	j.MaxRanks, j.CoresPerRank = 2*len(all), 1
	res := run(t, j)
	out := stdoutOf(j)
	want := fmt.Sprintf("new processes: %d requested, %d fit: %d of %d cores are free", len(all), len(all)-1, len(all)-1, len(all))
	if res.Status != 0 || strings.Count(out, "[0] failed") != 1 || !strings.Contains(out, want) {
		t.Errorf("status %d, notes %q, want %q in output:\n%s", res.Status, *notes, want, out)
	}
	if len(all) == 1 {
		return
	}
	// The first order has started none of its ranks, and the last rank has the cores of the one that left.
	used := map[int]int{}
	last := len(res.ProcessorsByRank) - 1
	for rank, binding := range res.ProcessorsByRank {
		if isAdded := rank > 0 && rank <= len(all); isAdded != (binding == nil) {
			t.Errorf("rank %d is bound to %v", rank, binding)
		}
		for _, core := range binding {
			used[core]++
		}
	}
	if last != 2*len(all) || len(used) != len(all) || used[res.ProcessorsByRank[last][0]] != 2 {
		t.Errorf("bindings %v", res.ProcessorsByRank)
	}
}

func TestFitting_RunningRanks_AreNotCountedTwice(t *testing.T) {
	check := func(n limits.Need) error {
		if n.Space > 0 || n.Threads > 20 {
			return errors.New("full")
		}
		return nil
	}
	for n, want := range map[int]int{0: 0, 3: 3, 4: 3, 100: 3} {
		if fit, err := fitting(n, check); fit != want || (err != nil) != (n > want) {
			t.Errorf("%d further ranks: %d fit, %v", n, fit, err)
		}
	}
}

func TestChange_ProgramIsGone_IsRefused(t *testing.T) {
	j, notes := elasticJob(t, 1, "remove grow:2", "")
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	j.Program = executable(t, t.TempDir(), "program", string(program))
	res := run(t, j)
	if out := stdoutOf(j); res.Status != 0 || !strings.Contains(out, "0 fit: start rank 1") || !strings.Contains(out, "done") {
		t.Errorf("status %d, notes %q, output:\n%s", res.Status, *notes, out)
	}
}

func TestChange_LeaverStaysOrFails_IsNoFailure(t *testing.T) {
	for conduct, want := range map[string]string{
		"stay":   "left the job 10ms ago and is still running",
		"ignore": "left the job 10ms ago and is still running",
		"fail":   "exited with status 4, which does not end the job",
	} {
		t.Run(conduct, func(t *testing.T) {
			j, notes := elasticJob(t, 2, "shrink:1", conduct)
			j.LeaveGrace = 10 * time.Millisecond
			if conduct == "fail" {
				j.LeaveGrace = 0
			}
			succeeded(t, j, run(t, j), *notes)
			if !slices.ContainsFunc(*notes, func(n string) bool { return strings.Contains(n, "rank 1 (pid ") && strings.Contains(n, want) }) || len(*notes) != 1 {
				t.Errorf("notes %q, want %q", *notes, want)
			}
		})
	}
}

func TestChange_AddedRankFails_IsUndone(t *testing.T) {
	j, notes := elasticJob(t, 1, "grow:2", "crash")
	res := run(t, j)
	out := stdoutOf(j)
	if res.Status != 0 || len(res.Failures) > 0 || !strings.Contains(out, "failed: ") || !strings.Contains(out, "the change is undone") || !strings.Contains(out, "[0] done") {
		t.Errorf("status %d, failures %v, output:\n%s", res.Status, res.Failures, out)
	}
	if !slices.ContainsFunc(*notes, func(n string) bool { return strings.Contains(n, "exited with status 3, which does not end the job") }) {
		t.Errorf("notes %q", *notes)
	}
}

// TestChange_HandlesADeath_StatusIsZero also without a change, where the death decides.
func TestChange_HandlesADeath_StatusIsZero(t *testing.T) {
	j, notes := elasticJob(t, 2, "failure replace:0 shrink:1", "die")
	j.ContinuesOnFailure = true
	succeeded(t, j, run(t, j), *notes)
	j, notes = elasticJob(t, 2, "failure", "die")
	j.ContinuesOnFailure = true
	if res := run(t, j); res.Status != 3 || len(res.Failures) != 1 || res.Failures[0].Rank != 1 {
		t.Errorf("status %d, failures %v, notes %q", res.Status, res.Failures, *notes)
	}
}

// By default the failure has ended the job.
func TestChange_RemovesTheFailedRankOfAnEndingJob_StatusIsItsOwn(t *testing.T) {
	j, notes := elasticJob(t, 2, "failure shrink:0", "die")
	if res := run(t, j); res.Status != 3 || len(res.Failures) != 1 || res.Failures[0].Rank != 1 {
		t.Errorf("status %d, failures %v, notes %q", res.Status, res.Failures, *notes)
	}
}

// TestChange_TimeLimit_EndsAddedRanks that have not integrated the change, for which rank 0 waits.
func TestChange_TimeLimit_EndsAddedRanks(t *testing.T) {
	j, notes := elasticJob(t, 1, "grow:2", "idle")
	j.Timeout = 500 * time.Millisecond
	if res := run(t, j); res.Status != StatusTimeout || len(res.Trace.Ranks) > 1 && res.Trace.Ranks[len(res.Trace.Ranks)-1].EndSeenAt == 0 {
		t.Errorf("status %d, notes %q, trace %v", res.Status, *notes, res.Trace.Ranks)
	}
}

func TestChange_Interrupt_EndsAddedRanks(t *testing.T) {
	input, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	defer end.Close()
	j, notes := elasticJob(t, 1, "grow:2 hang", "")
	signals := make(chan os.Signal, 1)
	j.Signals, j.Stdin = signals, input
	out := &watcher{want: "joined", seen: func() { signals <- syscall.SIGINT }}
	j.Stdout = out
	res := run(t, j)
	if res.Status != 128+int(syscall.SIGINT) {
		t.Errorf("status %d, failures %v, notes %q", res.Status, res.Failures, *notes)
	}
}

// The request is made after rank 2 has joined.
func TestChange_AddedRanks_AreInReportOfHang(t *testing.T) {
	input, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	defer end.Close()
	j, notes := elasticJob(t, 1, "grow:2 hang", "")
	signals := make(chan os.Signal, 2)
	j.Stdin, j.Signals = input, signals
	j.Stdout = &watcher{want: "[2] joined", seen: func() { signals <- syscall.SIGUSR2 }}
	note := j.Note
	j.Note = func(line string) {
		if note(line); strings.HasPrefix(line, "rank 2 ") && len(signals) == 0 {
			signals <- syscall.SIGINT
		}
	}
	if res := run(t, j); res.Status != 128+int(syscall.SIGINT) {
		t.Errorf("status %d, notes %q", res.Status, *notes)
	}
	for _, want := range []string{"rank 0 ", "rank 1 ", "rank 2 "} {
		if !slices.ContainsFunc(*notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
			t.Errorf("notes %q have no line of %s", *notes, want)
		}
	}
}

// Another rank may write there later.
func TestChange_OneRankThatMayGrow_SharesItsOutput(t *testing.T) {
	k := &sink{}
	for most, want := range map[int]bool{0: true, 1: true, 2: false} {
		s := &supervisor{job: &Job{layout: layout{initialSize: 1}, MaxRanks: most}}
		if got := s.isExclusive(&rank{}, k); got != want {
			t.Errorf("at most %d ranks: exclusive %t", most, got)
		}
	}
}

// watcher calls seen when a text has been written.
type watcher struct {
	buffer
	want string
	seen func()
}

func (w *watcher) Write(p []byte) (int, error) {
	n, err := w.buffer.Write(p)
	if w.seen != nil && strings.Contains(w.String(), w.want) {
		w.seen()
		w.seen = nil
	}
	return n, err
}
