package server

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// directory returns a new directory of a mode.
func directory(t *testing.T, mode fs.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	return dir
}

// tooLong returns a directory whose path leaves no room for the name of a socket.
func tooLong(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(directory(t, 0o700), strings.Repeat("d", 100))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// baseOf returns the parent of the job's directory.
func baseOf(t *testing.T, base string) (string, error) {
	t.Helper()
	s, err := New(Options{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Listen(base); err != nil {
		return "", err
	}
	for path, want := range map[string]fs.FileMode{s.Dir(): fs.ModeDir | 0o700, filepath.Join(s.Dir(), "bootstrap"): fs.ModeSocket | 0o600} {
		if st, err := os.Lstat(path); err != nil || st.Mode() != want || ownerOf(st) != os.Geteuid() {
			t.Errorf("%s: %v, %v; want mode %v", path, st, err, want)
		}
	}
	return filepath.Dir(s.Dir()), nil
}

func TestListen_UnusableDirectories_FallBack(t *testing.T) {
	good, temporary := directory(t, 0o700), directory(t, 0o700)
	file := filepath.Join(good, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ runtime, temporary, want string }{
		"good":                       {good, temporary, good},
		"no runtime directory":       {"", temporary, temporary},
		"runtime missing":            {"/nonexistent", temporary, temporary},
		"runtime is a file":          {file, temporary, temporary},
		"runtime is relative":        {"run", temporary, temporary},
		"runtime is everybody's":     {directory(t, 0o777), temporary, temporary},
		"runtime is its group's":     {directory(t, 0o770), temporary, temporary},
		"runtime is sticky":          {directory(t, 0o777|fs.ModeSticky), temporary, temporary},
		"runtime too long":           {tooLong(t), temporary, temporary},
		"nothing set":                {"", "", "/tmp"},
		"both missing":               {"/nonexistent", "/nonexistent", "/tmp"},
		"TMPDIR too long":            {"", tooLong(t), "/tmp"},
		"TMPDIR is a file":           {"", file, "/tmp"},
		"TMPDIR is everybody's":      {"", directory(t, 0o777), "/tmp"},
		"runtime has no write right": {unwritable(t), temporary, temporary},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", c.runtime)
			t.Setenv("TMPDIR", c.temporary)
			if got, err := baseOf(t, ""); got != c.want || err != nil {
				t.Errorf("the job's directory is in %q, want %q: %v", got, c.want, err)
			}
			for _, dir := range []string{c.runtime, c.temporary} {
				left, _ := filepath.Glob(dir + "/ferry-*")
				if dir != "" && len(left) > 0 {
					t.Errorf("left behind: %q", left)
				}
			}
		})
	}
	t.Run("TMPDIR is relative", func(t *testing.T) {
		t.Chdir(temporary)
		t.Setenv("XDG_RUNTIME_DIR", "")
		t.Setenv("TMPDIR", ".")
		if got, err := baseOf(t, ""); got != temporary || err != nil {
			t.Errorf("the job's directory is in %q, want %q: %v", got, temporary, err)
		}
	})
}

// unwritable returns a directory without write permission, which for root is in a file system of
// the kernel.
func unwritable(t *testing.T) string {
	if os.Geteuid() == 0 {
		return "/proc/self"
	}
	return directory(t, 0o500)
}

func TestListen_RuntimeDirectoryOfAnotherUser_FallsBack(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory of another user")
	}
	foreign, temporary := directory(t, 0o700), directory(t, 0o700)
	if err := os.Chown(foreign, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", foreign)
	t.Setenv("TMPDIR", temporary)
	if got, err := baseOf(t, ""); got != temporary || err != nil {
		t.Errorf("the job's directory is in %q, want %q: %v", got, temporary, err)
	}
}

func TestListen_Umask_LeavesTheOwnersRights(t *testing.T) {
	if os.Getenv("SERVER_UMASK") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "SERVER_UMASK=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	base := directory(t, 0o700)
	syscall.Umask(0o777) // Of this process only.
	defer syscall.Umask(0o022)
	if _, err := baseOf(t, base); err != nil {
		t.Error(err)
	}
}

func TestListen_NoUsableDirectory_GivesTheReasonOfEach(t *testing.T) {
	if _, err := baseOf(t, "/nonexistent"); err == nil || !strings.Contains(err.Error(), "/nonexistent: no such file or directory") {
		t.Errorf("%v", err)
	}
	long := tooLong(t)
	if _, err := baseOf(t, long); err == nil || !strings.Contains(err.Error(), "the limit is 107") {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(long); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	_, _, err := listenIn([]candidate{{"/nonexistent", "XDG_RUNTIME_DIR", checkPrivate}, {directory(t, 0o777), "TMPDIR", checkSticky}, {path: long}})
	for _, part := range []string{"XDG_RUNTIME_DIR=/nonexistent: no such file", "TMPDIR=/", "not sticky (mode 0777)", "the limit is 107", "set TMPDIR to"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not have %q", err, part)
		}
	}
}

func TestUsualBases_EndWithDirectoriesOfTheSystem(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1")
	t.Setenv("TMPDIR", "/scratch")
	var got []string
	for _, c := range baseCandidates() {
		got = append(got, c.String())
	}
	if want := []string{"XDG_RUNTIME_DIR=/run/user/1", "TMPDIR=/scratch", "/tmp", "/dev/shm"}; !slices.Equal(got, want) {
		t.Errorf("candidates are %q, want %q", got, want)
	}
	if !errors.Is(stripPath(&fs.PathError{Op: "stat", Path: "/x", Err: syscall.EACCES}), syscall.EACCES) {
		t.Error("the cause is lost")
	}
}
