package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pids are the process ids in a job's output.
func pids(t *testing.T, j Job) (all []int) {
	t.Helper()
	for _, word := range strings.Fields(stdoutOf(j)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatalf("output %q", stdoutOf(j))
		}
		all = append(all, pid)
	}
	return all
}

// Descendants may be in another session, two forks away, or a tree in which each kill orphans the next process.
func TestSweep_KillsAllDescendants(t *testing.T) {
	other := exec.Command("sleep", "1000") // of the launcher, but not of the job
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	for _, end := range []string{"exit 0", "kill -9 $$"} {
		j := shell(t, 2, `setsid sh -c 'echo $$; exec sleep 1000' &
			setsid sh -c '(trap "" TERM; sh -c "echo \$\$; setsid sleep 1000 & echo \$!; wait" & echo $!; wait)' &
			while [ $(wc -w <out$FERRY_BOOTSTRAP_LOCAL_RANK) -lt 4 ]; do sleep 0.01; done; `+end)
		j.Args[1] = `exec >out$FERRY_BOOTSTRAP_LOCAL_RANK; ` + j.Args[1]
		j.WorkingDir, j.SweepsDescendants = t.TempDir(), true
		run(t, j)
		for rank := range j.RankCount {
			out, err := os.ReadFile(filepath.Join(j.WorkingDir, fmt.Sprint("out", rank)))
			if err != nil {
				t.Fatal(err)
			}
			words := strings.Fields(string(out))
			if len(words) != 4 {
				t.Fatalf("rank %d says %q", rank, out)
			}
			for _, word := range words {
				pid, err := strconv.Atoi(word)
				if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
					t.Errorf("%s: process %d of rank %d is left (%v)", end, pid, rank, err)
				}
			}
		}
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil || !slices.Contains(children(), other.Process.Pid) {
		t.Errorf("a child that is not of the job: %v", err)
	}
}

// A long job may have thousands of them.
func TestSweep_EndedOrphans_AreReapedDuringJob(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	const n = 20
	j := shell(t, 1, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (setsid sh -c 'echo $$' &); i=$((i+1)); done; read x <%s`, n, fifo))
	j.SweepsDescendants = true
	others := scanChildren() // left by ranks of other tests, if this process is their parent
	mine := func() []int {
		return slices.DeleteFunc(scanChildren(), func(pid int) bool { return slices.Contains(others, pid) })
	}
	go func() {
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if strings.Count(stdoutOf(j), "\n") == n && len(mine()) == 1 {
				break
			}
		}
		if left := mine(); len(left) != 1 {
			t.Errorf("children %v: want the rank alone", left)
		}
		if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
			t.Error(err)
		}
	}()
	if res := run(t, j); res.Status != 0 || len(pids(t, j)) != n {
		t.Errorf("status %d, output %q", res.Status, stdoutOf(j))
	}
}

func TestChildren_WithoutKernelList_AreFound(t *testing.T) {
	for !childless() { // Other tests may have left children.
		reap(nil)
	}
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if a, b := children(), scanChildren(); !slices.Equal(a, []int{cmd.Process.Pid}) || !slices.Equal(b, a) {
		t.Errorf("children %v and %v, want %d", a, b, cmd.Process.Pid)
	}
	in.Close()
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if b := scanChildren(); len(b) != 1 { // one that has ended counts until it is reaped
		t.Errorf("children %v", b)
	}
	if err := cmd.Wait(); err != nil || !childless() {
		t.Errorf("%v; without children: %t", err, childless())
	}
}
