package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// gate is a writer that blocks until it is opened.
type gate struct {
	buffer
	isOpen chan struct{}
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.isOpen
	return g.buffer.Write(b)
}

func TestOutput_ReaderPausesAfterTheJob_EverythingArrives(t *testing.T) {
	for _, tag := range []bool{false, true} {
		fifo := filepath.Join(t.TempDir(), "fifo")
		for _, rank := range []string{"0", "1"} {
			if err := syscall.Mkfifo(fifo+rank, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		const lines = 2000 // They fit into a pipe, so that the ranks end without a reader.
		j := shell(t, 2, fmt.Sprintf("exec 9>%s$FERRY_BOOTSTRAP_LOCAL_RANK; seq %d", fifo, lines))
		out := &gate{isOpen: make(chan struct{})}
		j.Stdout, j.TagsLines = out, tag
		go func() {
			defer close(out.isOpen)
			for _, rank := range []string{"0", "1"} {
				if _, err := os.ReadFile(fifo + rank); err != nil { // Until the rank has ended.
					t.Error(err)
				}
			}
			time.Sleep(drainGrace * 5 / 4)
		}()
		res := run(t, j)
		if n := strings.Count(out.String(), "\n"); res.Status != 0 || n != 2*lines {
			t.Errorf("tag %t: status %d, %d lines, want %d", tag, res.Status, n, 2*lines)
		}
	}
}

// collect is a stream to a buffer, without lines.
func collect() (*stream, *buffer) {
	b := &buffer{}
	return &stream{sink: &sink{w: b, onError: func(error) {}}}, b
}

func TestOutlet_DeadlineIsOver_CopiesTheBytesInThePipe(t *testing.T) {
	far, near, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close() // A descendant holds it open.
	text := bytes.Repeat([]byte("x"), 60000)
	if _, err := near.Write(text); err != nil {
		t.Fatal(err)
	}
	to, got := collect()
	o := newOutlet(far, to)
	if err := far.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	o.copy()
	if got.String() != string(text) {
		t.Errorf("%d bytes, want %d", len(got.String()), len(text))
	}
}

func TestOutlet_DescendantWritesWithoutEnd_Ends(t *testing.T) {
	far, near, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			if _, err := near.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
	to, _ := collect()
	o := newOutlet(far, to)
	if err := far.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	o.copy()
	writer.Wait() // Its pipe has no reader.
	near.Close()
}

func TestOutput_LastWriteFails_StatusAndOneMessage(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for name, prepare := range map[string]func(j *Job){
		"full device":       func(j *Job) { j.Stdout = full },
		"line":              func(j *Job) { j.Stdout, j.Args[1] = failingWriter{}, "echo x" },
		"no line end":       func(j *Job) { j.Stdout, j.Args[1] = failingWriter{}, "printf x" },
		"standard error":    func(j *Job) { j.Stderr, j.Args[1] = failingWriter{}, "printf x >&2" },
		"ranks exit with 0": func(j *Job) { j.Stdout, j.Args[1] = failingWriter{}, "trap 'exit 0' TERM; echo x; sleep 1 & wait" },
		"output directory": func(j *Job) {
			j.OutputDir = t.TempDir()
			if err := os.Symlink("/dev/full", filepath.Join(j.OutputDir, "rank.1")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		j := shell(t, 2, "printf x")
		prepare(&j)
		var notes []string
		j.Note = func(line string) { notes = append(notes, line) }
		res := run(t, j)
		if res.Status != StatusOutput {
			t.Errorf("%s: status %d, want %d", name, res.Status, StatusOutput)
		}
		want := "disk full"
		if name == "full device" {
			want = "/dev/full: no space left"
		}
		if j.OutputDir != "" {
			want = filepath.Join(j.OutputDir, "rank.1") + ": no space left"
		}
		if all := strings.Join(notes, "\n"); strings.Count(all, want) != 1 {
			t.Errorf("%s: notes %q, want one with %q", name, notes, want)
		}
	}
}

func TestOutput_RankFailsBeforeTheWrite_StatusIsTheRanks(t *testing.T) {
	j := shell(t, 1, "printf x; exit 3")
	out := &gate{isOpen: make(chan struct{})}
	j.Stdout, j.ContinuesOnFailure = io.MultiWriter(out, failingWriter{}), true
	var once sync.Once
	j.Note = func(string) { once.Do(func() { close(out.isOpen) }) } // The first note names the rank.
	if res := run(t, j); res.Status != 3 {
		t.Errorf("status %d, want 3", res.Status)
	}
}

// unread returns the write end of a pipe without a reader. release unblocks its writers.
func unread(t *testing.T) (w *os.File, release func()) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	w = os.NewFile(uintptr(fds[1]), "unread") // In blocking mode, as an inherited one.
	return w, func() {
		unix.Close(fds[0])
		w.Close()
	}
}

func TestOutput_WithoutReader_JobEnds(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		signals []os.Signal
		want    int
	}{
		"time limit":    {timeout: 100 * time.Millisecond, want: StatusTimeout},
		"SIGTERM":       {signals: []os.Signal{syscall.SIGTERM}, want: 128 + int(syscall.SIGTERM)},
		"SIGINT, twice": {signals: []os.Signal{syscall.SIGINT, syscall.SIGINT}, want: 128 + int(syscall.SIGINT)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, release := unread(t)
			// Standard error and notes go to the same pipe, as with 2>&1.
			j := Job{Part: Part{Program: "yes", RankCount: 2}, Output: Output{Stdout: w, Stderr: w}, Timeout: c.timeout}
			j.Note = func(line string) { fmt.Fprintln(w, line) }
			signals := make(chan os.Signal, 2)
			j.Signals = signals
			go func() {
				waitFull(t, w)
				for _, sig := range c.signals {
					signals <- sig
				}
			}()
			res := run(t, j)
			release()
			if res.Status != c.want || !res.IsOutputLost {
				t.Errorf("status %d, output lost %t; want %d, true", res.Status, res.IsOutputLost, c.want)
			}
		})
	}
}

// waitFull waits until a pipe takes no more.
func waitFull(t *testing.T, w *os.File) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		n, err := ioctl(w, func(fd int) (int, error) { return unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0) })
		if n == 0 || err != nil {
			return
		}
	}
	t.Error("the pipe is not full")
}

func TestOutput_NonBlockingDescriptor_EverythingArrives(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	if err := unix.SetNonblock(fds[1], true); err != nil { // By another process that shares it.
		t.Fatal(err)
	}
	j := shell(t, 1, "seq 30000")
	j.Stdout = w
	lines := make(chan int)
	go func() {
		waitFull(t, w)
		b, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		lines <- bytes.Count(b, []byte{'\n'})
	}()
	res := run(t, j)
	w.Close()
	if n := <-lines; res.Status != 0 || n != 30000 {
		t.Errorf("status %d, %d lines", res.Status, n)
	}
	r.Close()
}

func TestOutput_PartOfALine_IsShown(t *testing.T) {
	// The rank waits for input, which it gets once its output is there.
	input := func(t *testing.T, j *Job) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		j.Stdin = r
		return w
	}
	t.Run("stdout", func(t *testing.T) {
		j := shell(t, 1, `printf "progress 10%%"; read x`)
		w := input(t, &j)
		r, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		j.Stdout = out
		go func() {
			if n, err := r.Read(make([]byte, 100)); n == 0 {
				t.Error(err)
			}
			fmt.Fprintln(w)
		}()
		run(t, j)
		out.Close()
	})
	t.Run("dir", func(t *testing.T) {
		j := shell(t, 2, `printf "progress 10%%"; read x`)
		j.OutputDir = t.TempDir()
		w := input(t, &j)
		go func() {
			for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if b, err := os.ReadFile(filepath.Join(j.OutputDir, "rank.0")); err == nil && len(b) > 0 {
					fmt.Fprintln(w)
					return
				}
			}
			t.Error("the rank's file stays empty")
			w.Close()
		}()
		run(t, j)
	})
}

func TestOutput_BothStreamsInOneFile_KeepTheirOrder(t *testing.T) {
	const script = `for i in 1 2 3 4 5 6; do echo $i; echo $i >&2; done`
	want := "1\n1\n2\n2\n3\n3\n4\n4\n5\n5\n6\n6\n"
	j := shell(t, 1, script)
	j.OutputDir = t.TempDir()
	run(t, j)
	if b, err := os.ReadFile(filepath.Join(j.OutputDir, "rank.0")); err != nil || string(b) != want {
		t.Errorf("output directory: %q %v", b, err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "both"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	j = shell(t, 1, script)
	j.Stdout, j.Stderr = file, file
	run(t, j)
	if b, err := os.ReadFile(file.Name()); err != nil || string(b) != want {
		t.Errorf("one file: %q %v", b, err)
	}
}

func TestOutput_SeveralFilesFail_OneIsNamed(t *testing.T) {
	j := shell(t, 3, "echo x")
	j.OutputDir = t.TempDir()
	for _, rank := range []string{"rank.0", "rank.1", "rank.2"} {
		if err := os.Symlink("/dev/full", filepath.Join(j.OutputDir, rank)); err != nil {
			t.Fatal(err)
		}
	}
	var notes []string
	j.Note = func(line string) { notes = append(notes, line) }
	if res := run(t, j); res.Status != StatusOutput || strings.Count(strings.Join(notes, "\n"), "no space left") != 1 {
		t.Errorf("status %d, notes %q", res.Status, notes)
	}
}

func TestOutput_TwoSignalsWhileItIsRead_NothingIsLost(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	ends, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0) // For the ranks to open it without a wait.
	if err != nil {
		t.Fatal(err)
	}
	defer ends.Close()
	j := shell(t, 2, `exec 9>`+fifo+`; trap "seq 2000; exit 0" INT; echo ready; while :; do sleep 0.01; done`)
	signals := make(chan os.Signal, 2)
	j.Signals = signals
	out := &interrupter{
		isReady: func() { signals <- syscall.SIGINT },
		hasMore: func() {
			_, _ = io.Copy(io.Discard, ends) // Until the ranks have ended.
			signals <- syscall.SIGINT
		},
	}
	j.Stdout = out
	res := run(t, j)
	if out.lines != 2+2*2000 || res.IsOutputLost {
		t.Errorf("%d lines, output lost %t", out.lines, res.IsOutputLost)
	}
}

// interrupter counts lines. It calls isReady after the second one, and hasMore before it
// takes the third.
type interrupter struct {
	lines            int
	isReady, hasMore func()
}

func (w *interrupter) Write(b []byte) (int, error) {
	if w.lines == 2 {
		w.hasMore()
	}
	before := w.lines
	w.lines += bytes.Count(b, []byte{'\n'})
	if before < 2 && w.lines >= 2 {
		w.isReady()
	}
	return len(b), nil
}

func TestSameWriter(t *testing.T) {
	a, b := &buffer{}, &buffer{}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	again, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for _, c := range []struct {
		a, b io.Writer
		want bool
	}{
		{a, a, true}, {a, b, false}, {null, again, true}, {null, a, false}, {nil, nil, true}, {a, nil, false},
		{uncomparable{}, uncomparable{}, false},
	} {
		if got := isSameWriter(c.a, c.b); got != c.want {
			t.Errorf("%T, %T: %t", c.a, c.b, got)
		}
	}
}

// uncomparable is a writer that == panics for.
type uncomparable struct{ _ []byte }

func (uncomparable) Write([]byte) (int, error) { return 0, errors.New("never called") }
