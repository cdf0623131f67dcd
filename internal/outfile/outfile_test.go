package outfile_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/attacktest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/outfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantText(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s has %q (%v), want %q", path, b, err, want)
	}
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

// Three ways to write a text to a path.
var ways = map[string]func(path, s string) error{
	"report": func(path, s string) error {
		r, err := outfile.NewReport(path)
		if err != nil {
			return err
		}
		return errors.Join(r.Write(text(s)), r.Close())
	},
	"stream": func(path, s string) error {
		f, err := outfile.Create(path)
		if err != nil {
			return err
		}
		return errors.Join(text(s)(f), f.Close())
	},
	"append": func(path, s string) error {
		f, err := outfile.Append(path, 0o600)
		if err != nil {
			return err
		}
		return errors.Join(text(s)(f), f.Close())
	},
}

func eachWay(t *testing.T, f func(t *testing.T, write func(path, s string) error)) {
	for name, write := range ways {
		t.Run(name, func(t *testing.T) { f(t, write) })
	}
}

func TestOutput_OwnLinks_LeadToTheFile(t *testing.T) {
	eachWay(t, func(t *testing.T, write func(path, s string) error) {
		dir := t.TempDir()
		must(t, os.Mkdir(dir+"/sub", 0o700))
		for link, to := range map[string]string{"link": "sub/file", "twice": "sub/../link", "absolute": dir + "/sub/file"} {
			must(t, os.Symlink(to, filepath.Join(dir, link)))
		}
		for _, link := range []string{"link", "twice", "absolute"} {
			os.Remove(dir + "/sub/file")
			must(t, write(filepath.Join(dir, link), link))
			wantText(t, dir+"/sub/file", link)
			if st, err := os.Lstat(filepath.Join(dir, link)); err != nil || st.Mode()&os.ModeSymlink == 0 {
				t.Errorf("%s is no link any more: %v", link, err)
			}
		}
		must(t, os.Symlink("loop", dir+"/loop"))
		if err := write(dir+"/loop", "x"); !errors.Is(err, unix.ELOOP) {
			t.Error(err)
		}
	})
}

func TestOutput_DirectoriesAndMissingFolders_AreErrors(t *testing.T) {
	eachWay(t, func(t *testing.T, write func(path, s string) error) {
		dir := t.TempDir()
		for path, want := range map[string]string{dir: "is a directory", dir + "/": "is a directory", dir + "/none/file": "no such file", "": "no such file"} {
			if err := write(path, "x"); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", path, err, want)
			}
		}
	})
}

func TestOutput_Pipe_NeedsAReader(t *testing.T) {
	eachWay(t, func(t *testing.T, write func(path, s string) error) {
		path := t.TempDir() + "/fifo"
		must(t, unix.Mkfifo(path, 0o600))
		if err := write(path, "lost"); err == nil || !strings.Contains(err.Error(), "no process reads from it") {
			t.Error(err)
		}
		reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
		must(t, err)
		defer reader.Close()
		must(t, write(path, "text"))
		if b, err := io.ReadAll(reader); err != nil || string(b) != "text" {
			t.Errorf("read %q, %v", b, err)
		}
	})
}

func TestOutput_DescriptorInProc_IsAppendedTo(t *testing.T) {
	eachWay(t, func(t *testing.T, write func(path, s string) error) {
		f, err := os.Create(t.TempDir() + "/file")
		must(t, err)
		defer f.Close()
		must(t, text("before ")(f))
		must(t, write(fmt.Sprintf("/dev/fd/%d", f.Fd()), "text"))
		wantText(t, f.Name(), "before text")
		must(t, write("/dev/null", "text"))
	})
}

func TestReport_ModeAndOwner_Stay(t *testing.T) {
	path := t.TempDir() + "/file"
	must(t, os.WriteFile(path, []byte("old"), 0o600))
	must(t, os.Chmod(path, 0o640))
	attacktest.Own(t, path)
	for write := range ways {
		must(t, ways[write](path, "new"))
		st, err := os.Stat(path)
		must(t, err)
		if owner := st.Sys().(*syscall.Stat_t); st.Mode() != 0o640 || owner.Uid != attacktest.User || owner.Gid != attacktest.User {
			t.Errorf("%s: mode %v, owner %d:%d", write, st.Mode(), owner.Uid, owner.Gid)
		}
	}
}

func TestReport_WriteFails_KeepsTheFileBefore(t *testing.T) {
	path := t.TempDir() + "/file"
	r, err := outfile.NewReport(path)
	must(t, err)
	defer r.Close()
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) > 0 || !r.IsReplaced() {
		t.Errorf("NewReport leaves %v", files)
	}
	must(t, r.Write(text("first")))
	full := errors.New("full")
	if err := r.Write(func(w io.Writer) error { return errors.Join(text("half")(w), full) }); !errors.Is(err, full) {
		t.Error(err)
	}
	wantText(t, path, "first")
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("Write leaves %v", files)
	}
}

// withoutRoot calls f as the attacker's user id, which needs root.
func withoutRoot(t *testing.T, f func()) {
	t.Helper()
	needs.Root(t, "become another user")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // Without UnlockOSThread, the thread ends with the goroutine.
		if _, err := unix.SetfsuidRetUid(attacktest.User); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestReport_NoReplacementPossible_IsWrittenInPlace(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	for folder, mode := range map[string]os.FileMode{"readonly": 0o755, "sticky": 0o777 | os.ModeSticky, "open": 0o777} {
		path := filepath.Join(dir, folder, "file")
		must(t, os.Mkdir(filepath.Dir(path), 0o700))
		must(t, os.Chmod(filepath.Dir(path), mode))
		must(t, os.WriteFile(path, []byte("longer than the report"), 0o600))
		must(t, os.Chmod(path, 0o666))
		before, err := os.Stat(path)
		must(t, err)
		withoutRoot(t, func() {
			if err := ways["report"](path, "report"); err != nil {
				t.Errorf("%s: %v", folder, err)
			}
		})
		wantText(t, path, "report")
		if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("%s: the file has another owner now (%v)", folder, err)
		}
	}
}
