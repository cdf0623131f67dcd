package matrix_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/cmd/ferry/internal/matrix/report"
)

// `ferry matrix | head` ends neither early nor with another status.
func TestMatrix_ReaderLeaves_ReportIsWritten(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "matrix", "--components", "ob1+shm", "--cases", "^conform/2/group", "--json", "$JSON")
	c.until("1 stack")
	c.stdout.Close()
	r := c.wait(0)
	row(t, r, "ob1+shm", report.OpenCase)
	passes(t, r, "ob1+shm", 3)
}

// fifo makes a named pipe.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReport_PipeWithoutReader_FailsBeforeRun(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "matrix", "--components", "ob1+self", "--json", fifo(t))
	c.wait(2)
	if !strings.Contains(c.stderr.String(), "--json") || !strings.Contains(c.stderr.String(), "no process reads from it") {
		t.Error(&c.stderr)
	}
}

// The program writes to a pipe with a sleeping reader.
func TestMatrix_SecondSignal_EndsAtOnce(t *testing.T) {
	t.Parallel()
	path := fifo(t)
	sleeper, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sleeper.Close()
	if _, err := unix.FcntlInt(sleeper.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	c := start(t, nil, "matrix", "--components", "ob1+self", "--cases", "^open$", "--html", path)
	c.until("pass         ob1+self  open")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 200 { // how many have come in time to be two doesn't matter
			if c.Process.Signal(syscall.SIGINT) != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		_ = c.Process.Kill()
	}()
	c.wait(-1)
	<-ended
	if s := c.ProcessState.Sys().(syscall.WaitStatus).Signal(); s != syscall.SIGINT {
		t.Errorf("it ended by %v", s)
	}
}

func TestReport_SymbolicLink_IsFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "there"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"link": "there", "dangling": "sub/new", "twice": "dangling"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "there", "dangling": "sub/new", "twice": "sub/new"} {
		os.Remove(filepath.Join(dir, "sub/new"))
		start(t, nil, "matrix", "--components", "ob1+self", "--cases", "^open$", "--json", filepath.Join(dir, name)).wait(0)
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || st.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s: %v %v", name, st, err)
		}
		f, err := os.Open(filepath.Join(dir, target))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := report.ReadJSON(f); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f.Close()
	}
}

// The file may be named in different ways.
func TestReport_TwoToOneFile_IsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "here")); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"a", "link", "here/a", "here/here/link"} {
		c := start(t, nil, "matrix", "--components", "ob1+self", "--json", filepath.Join(dir, "a"), "--html", dir+"/"+other)
		c.wait(2)
		if !strings.Contains(c.stderr.String(), "--json writes to") {
			t.Errorf("%s: %s", other, &c.stderr)
		}
	}
	start(t, nil, "matrix", "--components", "ob1+self", "--json", "-", "--junit", "-").wait(2)
	start(t, nil, "matrix", "--components", "ob1+self", "--cases", "^open$", "--json", "/dev/null", "--html", dir+"/b").wait(0)
}

// The text is then on standard error.
func TestReport_EachFormat_CanBeStandardOutput(t *testing.T) {
	t.Parallel()
	for flag, begins := range map[string]string{"--json": "{", "--junit": "<?xml", "--html": "<!DOCTYPE"} {
		c := start(t, nil, "matrix", "--components", "ob1+self", "--cases", "^open$", flag, "-")
		c.wait(0)
		if !strings.HasPrefix(strings.TrimSpace(c.out.String()), begins) || !strings.Contains(c.stderr.String(), "Passed: 1 case") {
			t.Errorf("%s: %.200s%s", flag, &c.out, &c.stderr)
		}
	}
}

func TestMatrix_RepeatedRanks_RunOnce(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "matrix", "--components", "ob1+shm", "--cases", "^conform/./group", "--ranks", "3,2,3", "--list")
	c.wait(0)
	seen := map[string]bool{}
	for line := range strings.Lines(c.out.String()) {
		if seen[line] {
			t.Errorf("twice: %s", line)
		}
		seen[line] = true
	}
	if len(seen) < 6 {
		t.Error(&c.out)
	}
}
