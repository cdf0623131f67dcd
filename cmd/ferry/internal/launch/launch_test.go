package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
)

// envAwait makes this program a rank that ends with the signal of that number.
const envAwait = "LAUNCH_TEST_AWAIT"

func TestMain(m *testing.M) {
	if number, err := strconv.Atoi(os.Getenv(envAwait)); err == nil {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.Signal(number))
		fmt.Println("ready")
		<-c
		fmt.Println("got")
		os.Exit(0)
	}
	if act, ok := acts[os.Getenv(envAct)]; ok {
		if err := act(); err != nil {
			fmt.Println(err)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// buffer is a writer that ranks' output and the test share.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// shell is a job of n shells in an own runtime directory, which must be empty
// afterwards.
func shell(t *testing.T, n int, script string) Job {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Cleanup(func() {
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left in the runtime directory: %v %v", left, err)
		}
	})
	return Job{Part: Part{Program: "/bin/sh", Args: []string{"-c", script}, RankCount: n}, Output: Output{Stdout: &buffer{}, Stderr: &buffer{}}}
}

func run(t *testing.T, j Job) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := j.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func stdoutOf(j Job) string { return j.Stdout.(*buffer).String() }

func TestStatus_SeveralFailures_IsThatOfTheFirst(t *testing.T) {
	for script, want := range map[string]int{
		"exit 0": 0,
		`test $FERRY_BOOTSTRAP_LOCAL_RANK = 1 && exit 7; exit 0`:         7,
		`test $FERRY_BOOTSTRAP_LOCAL_RANK = 1 && kill -9 $$; sleep 100`:  137,
		`test $FERRY_BOOTSTRAP_LOCAL_RANK = 2 && exit 3; exec sleep 100`: 3,
	} {
		j := shell(t, 3, script)
		var notes []string
		j.Note = func(s string) { notes = append(notes, s) }
		res := run(t, j)
		if res.Status != want {
			t.Errorf("%s: status %d, want %d", script, res.Status, want)
		}
		if want != 0 && len(notes) != 1 {
			t.Errorf("%s: notes %q: want one line, the cause", script, notes)
		}
		if want == 137 && !strings.HasSuffix(notes[0], "killed by signal 9 (killed)") {
			t.Errorf("note %q doesn't name the signal", notes[0])
		}
	}
}

func TestRun_RankIgnoresSIGTERM_IsKilled(t *testing.T) {
	j := shell(t, 2, `trap "" TERM; test $FERRY_BOOTSTRAP_LOCAL_RANK = 0 && exit 5; while :; do sleep 1; done`)
	if res := run(t, j); res.Status != 5 || len(res.Failures) != 2 || res.Failures[1].Status != 137 {
		t.Errorf("result %+v, want status 5 and rank 1 killed", res)
	}
}

func TestContinue_RankFails_OthersContinue(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// Rank 1 fails, and rank 0 waits until the failure is reported.
	j := shell(t, 2, `test $FERRY_BOOTSTRAP_LOCAL_RANK = 1 && exit 4; read x <`+fifo+`; echo went on`)
	j.ContinuesOnFailure = true
	var resume sync.Once
	j.Note = func(string) {
		resume.Do(func() { go func() { _ = os.WriteFile(fifo, []byte("go\n"), 0) }() })
	}
	if res := run(t, j); res.Status != 4 || stdoutOf(j) != "went on\n" {
		t.Errorf("status %d, output %q", res.Status, stdoutOf(j))
	}
}

func TestTimeout_StatusIs124(t *testing.T) {
	j := shell(t, 2, "exec sleep 100")
	j.Timeout = 10 * time.Millisecond
	if res := run(t, j); res.Status != StatusTimeout {
		t.Errorf("status %d", res.Status)
	}
}

func TestRun_Grandchildren_EndWithTheirRank(t *testing.T) {
	j := shell(t, 2, "sleep 1000 & echo $!")
	run(t, j)
	pids := strings.Fields(stdoutOf(j))
	if len(pids) != 2 {
		t.Fatalf("output %q", stdoutOf(j))
	}
	for _, p := range pids {
		pid, err := strconv.Atoi(p)
		if err != nil {
			t.Fatal(err)
		}
		// A killed orphan may still await its reaper: only its state counts.
		for deadline := time.Now().Add(10 * time.Second); ; {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || strings.Contains(string(b), ") Z ") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("process %d is still there", pid)
			}
		}
	}
}

func TestOutput_TaggedLines_NeverMix(t *testing.T) {
	// Each line is written in two pieces, so that lines of ranks would mix if
	// pieces were passed on.
	j := shell(t, 4, `i=0; while [ $i -lt 100 ]; do printf "aaaa"; printf "bbbb %s\n" $FERRY_BOOTSTRAP_LOCAL_RANK; i=$((i+1)); done; printf "no end"`)
	j.TagsLines = true
	run(t, j)
	count := map[string]int{}
	for line := range strings.Lines(stdoutOf(j)) {
		count[line]++
	}
	if len(count) != 8 {
		t.Fatalf("lines: %v", count)
	}
	for r := range 4 {
		if count[fmt.Sprintf("[%d] aaaabbbb %d\n", r, r)] != 100 || count[fmt.Sprintf("[%d] no end\n", r)] != 1 {
			t.Errorf("rank %d: %v", r, count)
		}
	}
}

func TestOutput_EndlessLine_MemoryIsBounded(t *testing.T) {
	script := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", 3*MaxLine+1)
	j := shell(t, 1, script)
	j.TagsLines = true
	run(t, j)
	lines := strings.Split(strings.TrimSuffix(stdoutOf(j), "\n"), "\n")
	if len(lines) != 4 || len(lines[0]) != len("[0] ")+MaxLine || len(lines[3]) != len("[0] x") {
		t.Errorf("%d lines", len(lines))
	}
	j = shell(t, 1, script)
	out := &pieces{}
	j.Stdout = out
	run(t, j)
	if out.sum != 3*MaxLine+1 || out.largest > 2*MaxLine {
		t.Errorf("%d bytes in pieces of up to %d", out.sum, out.largest)
	}
}

// pieces counts writes.
type pieces struct{ sum, largest int }

func (p *pieces) Write(b []byte) (int, error) {
	p.sum, p.largest = p.sum+len(b), max(p.largest, len(b))
	return len(b), nil
}

// Each line is written in two pieces, which ranks with the file itself would mix.
func TestOutput_NotTerminal_LinesAreWhole(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	j := shell(t, 4, `i=0; while [ $i -lt 200 ]; do printf "aaaa"; printf "bbbb %s\n" $FERRY_BOOTSTRAP_LOCAL_RANK; i=$((i+1)); done`)
	j.Stdout = file
	run(t, j)
	out, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(out)) {
		count[line]++
	}
	for r := range 4 {
		if line := fmt.Sprintf("aaaabbbb %d\n", r); len(count) != 4 || count[line] != 200 {
			t.Fatalf("%d different lines, %q %d times", len(count), line, count[line])
		}
	}
}

func TestOutput_BinaryData_IsUnchanged(t *testing.T) {
	j := shell(t, 1, `printf 'a\n\000\377\r\n\nno end'`)
	run(t, j)
	if want := "a\n\x00\xff\r\n\nno end"; stdoutOf(j) != want {
		t.Errorf("%q, want %q", stdoutOf(j), want)
	}
}

// Each file has both streams.
func TestOutputDir_HasOneFilePerRank(t *testing.T) {
	j := shell(t, 11, `echo out $FERRY_BOOTSTRAP_LOCAL_RANK; echo err $FERRY_BOOTSTRAP_LOCAL_RANK >&2`)
	j.OutputDir = filepath.Join(t.TempDir(), "new", "dir")
	run(t, j)
	for r := range 11 {
		b, err := os.ReadFile(filepath.Join(j.OutputDir, fmt.Sprintf("rank.%02d", r)))
		if err != nil {
			t.Fatal(err)
		}
		if s := string(b); len(s) != len(fmt.Sprintf("out %d\nerr %d\n", r, r)) || !strings.Contains(s, fmt.Sprintf("out %d\n", r)) || !strings.Contains(s, fmt.Sprintf("err %d\n", r)) {
			t.Errorf("rank %d: %q", r, s)
		}
	}
	if stdoutOf(j) != "" || j.Stderr.(*buffer).String() != "" {
		t.Error("there is output beside the files")
	}
}

func TestSignals_ReachEveryRank(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGINT} {
		j := shell(t, 3, "")
		j.Program, j.Args = os.Args[0], nil
		j.Env = []string{fmt.Sprint(envAwait, "=", int(sig))}
		out := &counter{want: 3, word: "ready", reached: make(chan struct{})}
		j.Stdout = out
		signals := make(chan os.Signal, 1)
		j.Signals = signals
		go func() { <-out.reached; signals <- sig }()
		if res := run(t, j); res.Status != 0 || strings.Count(out.b.String(), "got") != 3 {
			t.Errorf("%v: status %d, output %q", sig, res.Status, out.b.String())
		}
	}
}

// counter closes reached when word has been written want times.
type counter struct {
	want    int
	word    string
	reached chan struct{}
	b       bytes.Buffer
}

func (c *counter) Write(p []byte) (int, error) {
	before := strings.Count(c.b.String(), c.word)
	c.b.Write(p)
	if before < c.want && strings.Count(c.b.String(), c.word) >= c.want {
		close(c.reached)
	}
	return len(p), nil
}

// The user need not wait for the start of all ranks.
func TestRun_InterruptDuringStart_Ends(t *testing.T) {
	j := shell(t, 500, `echo started; exec sleep 100`)
	out := &counter{want: 1, word: "started", reached: make(chan struct{})}
	j.Stdout = out
	signals := make(chan os.Signal, 1)
	signals <- syscall.SIGINT
	j.Signals = signals
	if res := run(t, j); res.Status != 128+int(syscall.SIGINT) || strings.Count(out.b.String(), "started") > 0 {
		t.Errorf("status %d, output %q", res.Status, out.b.String())
	}
}

func TestSignals_SecondInterrupt_Kills(t *testing.T) {
	for _, twice := range [][2]syscall.Signal{{syscall.SIGINT, syscall.SIGINT}, {syscall.SIGTERM, syscall.SIGTERM}, {syscall.SIGINT, syscall.SIGTERM}} {
		j := shell(t, 2, `trap "" INT TERM; echo ready; while :; do sleep 0.02; done`)
		out := &counter{want: 2, word: "ready", reached: make(chan struct{})}
		j.Stdout = out
		signals := make(chan os.Signal, 2)
		j.Signals = signals
		go func() { <-out.reached; signals <- twice[0]; signals <- twice[1] }()
		if res := run(t, j); res.Status != 128+int(twice[1]) {
			t.Errorf("%v: status %d", twice, res.Status)
		}
	}
}

func TestRun_CanceledContext_LeavesNoProcess(t *testing.T) {
	j := shell(t, 2, `echo ready; exec sleep 100`)
	out := &counter{want: 2, word: "ready", reached: make(chan struct{})}
	j.Stdout = out
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() { <-out.reached; cancel(why) }()
	if _, err := j.Run(ctx); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

func TestInput_RankZeroOnly_ReadsIt(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	j := shell(t, 3, `read x; echo "$FERRY_BOOTSTRAP_LOCAL_RANK:$x"`)
	j.Stdin = r
	run(t, j)
	for _, want := range []string{"0:hello\n", "1:\n", "2:\n"} {
		if !strings.Contains(stdoutOf(j), want) {
			t.Errorf("output %q lacks %q", stdoutOf(j), want)
		}
	}
}

func TestBind_EachRank_HasOneCore(t *testing.T) {
	n := cpu.Available() + 1
	j := shell(t, n, `grep Cpus_allowed_list /proc/self/status`)
	j.BindsOneCore = true
	var notes []string
	j.Note = func(s string) { notes = append(notes, s) }
	run(t, j)
	used := map[string]int{}
	for line := range strings.Lines(stdoutOf(j)) {
		used[line]++
	}
	if len(used) != cpu.Available() {
		t.Errorf("processors used: %v", used)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "share") {
		t.Errorf("notes %q: want one on sharing", notes)
	}
	if cpu.Available() != n-1 {
		t.Error("the launcher's own affinity changed")
	}
}

func TestCores_SeveralPerRank_BelongToOneRank(t *testing.T) {
	n := cpu.Available()
	j := shell(t, 1, `grep Cpus_allowed: /proc/self/status; echo $GOMAXPROCS`)
	j.CoresPerRank = n
	res := run(t, j)
	if got := strings.Count(stdoutOf(j), "\n"); len(res.ProcessorsByRank) != 1 || len(res.ProcessorsByRank[0]) != n || got != 2 {
		t.Errorf("bindings %v, output %q", res.ProcessorsByRank, stdoutOf(j))
	}
	if want := fmt.Sprintf("\n%d\n", max(2, n)); !strings.HasSuffix(stdoutOf(j), want) {
		t.Errorf("output %q: want GOMAXPROCS %q", stdoutOf(j), want)
	}
	j = shell(t, 1, "exit")
	j.CoresPerRank, j.RankCount = n, 2
	if _, err := j.Run(t.Context()); !errors.Is(err, framework.ErrConfig) || !strings.Contains(err.Error(), "2 ranks with") {
		t.Errorf("two ranks with all cores each: %v", err)
	}
}

func TestEnoughCores_TooFew_ErrorHasTheRemedy(t *testing.T) {
	for _, c := range []struct {
		each, ranks, available int
		want                   string
	}{
		{0, 9, 2, ""}, {2, 4, 8, ""}, {1, 8, 8, ""},
		{3, 3, 8, "choose at most 2 for each"},
		{1, 9, 8, "start fewer ranks, or let them share cores"},
		{math.MaxInt, 2, 8, "choose at most 4 for each"},
	} {
		err := enoughCores(c.each, c.ranks, c.available)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Without the timer slack, the Go runtime's
// monitor interrupts a polling rank.
func TestRun_TimerSlackOfRanks(t *testing.T) {
	j := shell(t, 2, "cat /proc/self/timerslack_ns")
	run(t, j)
	want := fmt.Sprintf("%d\n", timerSlack.Nanoseconds())
	if got := stdoutOf(j); got != want+want {
		t.Errorf("the ranks' timer slack is %q, not %q", got, want)
	}
}

func TestOutput_WriteFails_EndsJob(t *testing.T) {
	j := shell(t, 2, `while :; do echo x; sleep 0.01; done`)
	j.Stdout = failingWriter{}
	if res := run(t, j); res.Status == 0 {
		t.Error("status 0")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestRun_InvalidProgram_StartsNoRank(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "binary")
	if err := os.WriteFile(binary, []byte("\x7fELF of another world"), 0o700); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]error{
		"":                      ErrNotFound,
		"no-such-program":       ErrNotFound,
		dir + "/nothing":        ErrNotFound,
		plain + "/below-a-file": ErrNotExecutable,
		plain:                   ErrNotExecutable,
		dir:                     ErrNotExecutable,
		binary:                  ErrNotExecutable,
	} {
		j := shell(t, 2, "")
		j.Program = program
		if _, err := j.Run(t.Context()); !errors.Is(err, want) {
			t.Errorf("%q: error %v, want %v", program, err, want)
		}
	}
}

func TestRun_WorkingDirectoryAndEnvironment_ReachRanks(t *testing.T) {
	dir := t.TempDir()
	j := shell(t, 1, `pwd; echo $GREETING`)
	j.WorkingDir = dir
	j.Env = []string{"GREETING=hi"}
	run(t, j)
	if want := dir + "\nhi\n"; stdoutOf(j) != want {
		t.Errorf("output %q, want %q", stdoutOf(j), want)
	}
}

func TestRun_Files_AreOpenInRanks(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j := shell(t, 2, `echo here >&3`)
	j.ExtraFiles = []*os.File{w}
	run(t, j)
	w.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != "here\nhere\n" {
		t.Errorf("%q %v", got, err)
	}
}

func TestClaim_DirectoriesOfKilledLaunchers_AreRemoved(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", base)
	make := func(name string, age time.Duration) string {
		dir := filepath.Join(base, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		sock := filepath.Join(dir, "bootstrap")
		if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: sock}); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(sock, then, then); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	stale := make("ferry-stale", time.Hour)
	young := make("ferry-young", 0)
	alive := make("ferry-alive", time.Hour)
	held, err := lock(alive)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	run(t, Job{Part: Part{Program: "/bin/true", RankCount: 1}})
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the stale directory is still there: %v", err)
	}
	for _, dir := range []string{young, alive} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}
