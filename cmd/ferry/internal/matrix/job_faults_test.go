package matrix_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
	"github.com/ferrympi/ferry/internal/needs"
)

// job starts a job of ranks of ferry matrix.
func job(t *testing.T, ranks string, args ...string) *command {
	t.Helper()
	words := []string{"run", "-n", ranks, tool(t), "matrix", "--job", "--json", "$JSON"}
	return start(t, nil, append(words, args...)...)
}

// signalRank sends a signal to a rank of a job.
func (c *command) signalRank(rank int, sig syscall.Signal) {
	c.t.Helper()
	found := 0
	for pid, line := range c.processes(fmt.Sprint("FERRY_BOOTSTRAP_LOCAL_RANK=", rank)) {
		if strings.Contains(line, "--job") {
			found++
			if err := syscall.Kill(pid, sig); err != nil {
				c.t.Error(err)
			}
		}
	}
	if found != 1 {
		c.t.Fatalf("%d processes are rank %d", found, rank)
	}
}

// killRank kills a rank of a job.
func (c *command) killRank(rank int) {
	c.t.Helper()
	c.signalRank(rank, syscall.SIGKILL)
}

func TestJob_SharedMemory_Passes(t *testing.T) {
	t.Parallel()
	for _, ranks := range []string{"2", "4"} {
		r := job(t, ranks, "--components", "ob1+shm,ob1+self", "--timeout", "60s").wait(0)
		passes(t, r, "ob1+shm", 60)
		expect(t, r, "ob1+shm", "btltest", report.Skip, "without --job")
		expect(t, r, "ob1+self", report.OpenCase, report.Skip, "no message leaves")
		for _, name := range []string{"bench/latency", "bench/rate", "bench/bandwidth"} {
			if got := row(t, r, "ob1+shm", name); len(got.Points) < 5 || got.Points[0].Unit == "" {
				t.Errorf("%s: %+v", name, got.Points)
			}
		}
	}
}

// One job runs all stacks in turn.
func TestJob_Network_Passes(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	needLibfabric(t)
	for _, ranks := range []string{"2", "4"} {
		r := job(t, ranks, "--components", "ob1+shm,cm+ofi tcp;ofi_rxm", "--timeout", "60s").wait(0)
		passes(t, r, "ob1+shm", 60)
		passes(t, r, "cm+ofi tcp;ofi_rxm", 60)
		for _, s := range r.Stacks {
			if s.Device == "" {
				t.Errorf("the transport of %s is unknown", s.Name)
			}
		}
	}
}

// The ranks connect again after the failure of their messages, and the next stack passes.
func TestJob_BrokenStack_ContinuesWithNext(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"ob1+drop", "ob1+duplicate"} {
		r := job(t, "3", "--components", broken+",ob1+shm", "--timeout", "10s", "--cases", "^conform/3/message|^bench/rate").wait(1)
		bad := 0
		for _, x := range r.Rows {
			if x.Stack == broken && x.Status.Bad() {
				bad++
			}
		}
		if bad == 0 || r.EndReason != "" {
			t.Errorf("%s: %d cases failed; partial: %q", broken, bad, r.EndReason)
		}
		passes(t, r, "ob1+shm", 10)
	}
}

// A hung rank cannot be replaced, so that the run ends.
func TestJob_RankHangs_IsNamed(t *testing.T) {
	t.Parallel()
	r := job(t, "2", "--components", "ob1+hang,ob1+shm", "--timeout", "3s", "--cases", "^conform/2/message").wait(1)
	const first = "conform/2/message/every size arrives whole"
	expect(t, r, "ob1+hang", first, report.Timeout, "rank [01] .*ignores its deadline")
	expect(t, r, "ob1+shm", report.OpenCase, report.Skip, "not run: rank")
	if !strings.Contains(r.EndReason, "hangs in "+first) {
		t.Errorf("partial: %q", r.EndReason)
	}
}

// This includes a hung rank 0, and cases that do not need the rank. The partial report is written.
func TestJob_RankDies_IsNamedByRunningCase(t *testing.T) {
	t.Parallel()
	const message = "conform/3/message/every size arrives whole"
	for stack, runs := range map[string]string{"ob1+hang": message, "ob1+shm": "bench/latency"} {
		c := job(t, "3", "--components", stack, "--suite", "full", "--timeout", "10m", "--cases", "^("+message+"|bench/(latency|rate))$")
		c.until("running      " + stack + "  " + runs)
		c.killRank(1)
		const ended = `rank 1 .*has ended \(signal: killed\)`
		r := c.wait(128 + int(syscall.SIGKILL))
		expect(t, r, stack, runs, report.Fail, ended)
		expect(t, r, stack, "bench/rate", report.Skip, "not run: "+ended)
	}
}

// A rank exits with 128 plus the number of its signal. None of these statuses is a loss for the others.
func TestJob_RankIsTerminated_FailsNothing(t *testing.T) {
	t.Parallel()
	c := job(t, "3", "--components", "ob1+shm", "--suite", "full")
	c.until("running      ob1+shm  bench/latency")
	c.signalRank(1, syscall.SIGTERM)
	r := c.wait(128 + int(syscall.SIGTERM))
	passes(t, r, "ob1+shm", 0)
	if r != nil && !strings.Contains(r.EndReason, "interrupt") {
		t.Errorf("partial: %q", r.EndReason)
	}
}

// The end of other ranks is not a failure. The signal of the launcher reaches some ranks first, and that of a user
// only one.
func TestJob_Interrupt_FailsNoCase(t *testing.T) {
	t.Parallel()
	for _, begins := range []string{"ob1+shm  open", "ob1+shm  conform/3/message/all to all", "ob1+shm  bench/latency"} {
		for who, interrupt := range map[string]func(*command){
			"all ranks": func(c *command) {
				if err := c.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
			},
			"rank 1": func(c *command) { c.signalRank(1, syscall.SIGINT) },
		} {
			c := job(t, "3", "--components", "ob1+shm", "--suite", "full")
			c.until("running      " + begins)
			interrupt(c)
			r := c.wait(130)
			passes(t, r, "ob1+shm", 0)
			if r != nil && !strings.Contains(r.EndReason, "interrupt") {
				t.Errorf("%s at %s: partial: %q", who, begins, r.EndReason)
			}
			expect(t, r, "ob1+shm", "bench/rate", report.Skip, "not run: interrupt")
		}
	}
}

// The report has the finished stacks and the name of the running case, and no other files remain.
func TestJob_RankZeroDies_LeavesReport(t *testing.T) {
	t.Parallel()
	c := job(t, "2", "--components", "ob1+corrupt,ob1+hang", "--cases", "^conform/2/message/every", "--timeout", "5s")
	c.until("running      ob1+hang  conform/2/message/") // where it stays for seconds
	c.killRank(0)
	r := c.wait(128 + int(syscall.SIGKILL))
	expect(t, r, "ob1+corrupt", report.OpenCase, report.Pass, "")
	if got := row(t, r, "ob1+corrupt", "conform/2/message/every size arrives whole"); !got.Status.Bad() {
		t.Errorf("what was found before is lost: %+v", got)
	}
	expect(t, r, "ob1+hang", report.OpenCase, report.Skip, "not run: no results after the start of stack ob1.hang")
	if r.EndReason == "" {
		t.Error("the report is not marked")
	}
	lines := strings.Split(strings.TrimSpace(c.out.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "running ") || !strings.Contains(last, "ob1+hang  conform/2/message/") {
		t.Errorf("the last word is %q", last)
	}
	if files, err := os.ReadDir(filepath.Dir(c.json)); err != nil || len(files) != 1 {
		t.Errorf("beside the report: %v, %v", files, err)
	}
}

// Otherwise they would wait for each other forever, and working stacks would fail.
func TestJob_DifferentFlags_RunNoCase(t *testing.T) {
	t.Parallel()
	// Rank 2 of three has another expression.
	c := start(t, nil, "run", "-n", "3", "sh", "-c", `exec "$0" matrix --job --components ob1+shm --json "$1" --cases "conform/3/message/[$((FERRY_BOOTSTRAP_LOCAL_RANK / 2))a]"`, tool(t), "$JSON")
	if r := c.wait(2); r != nil {
		t.Errorf("there is a report: %+v", r)
	}
	if text := c.stderr.String(); !regexp.MustCompile(`rank 2 \(.*\): --cases is ".*1a.", and in rank 0 ".*0a."`).MatchString(text) || strings.Contains(text, "rank 1 (") {
		t.Error(text)
	}
}

// Flags about ranks and --list are refused with a launcher.
func TestJob_WithoutLauncher_IsRefused(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "matrix", "--job")
	c.wait(2)
	if !strings.Contains(c.stderr.String(), "ferry run -n 4 ferry matrix --job") {
		t.Error(&c.stderr)
	}
	for _, args := range [][]string{{"--list"}, {"--ranks", "2"}} {
		c := job(t, "2", args...)
		c.wait(2)
		if !strings.Contains(c.stderr.String(), args[0]) {
			t.Error(&c.stderr)
		}
	}
}
