// Package libtest compiles C libraries that tests load in place of those of a network. Only tests
// and their helpers import it.
package libtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/needs"
)

// A Library is compiled once per process, at its first use.
type Library struct {
	// Sources is the folder of its C files. A path that -trimpath has cut is an error.
	Sources string

	buildOnce sync.Once
	file      string
	err       error
}

// LibraryBeside returns the library whose C files are in a folder beside the caller's file.
func LibraryBeside(folder string) *Library {
	_, caller, _, _ := runtime.Caller(1)
	return &Library{Sources: filepath.Join(filepath.Dir(caller), folder)}
}

// flags are the arguments of gcc for a library.
var flags = []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-fvisibility=hidden", "-fPIC", "-shared", "-pthread"}

// File returns the path of the library, which exists as long as the process. It skips the test
// without gcc, or fails it with REQUIRE_ALL=1.
func (l *Library) File(t testing.TB) string {
	t.Helper()
	needs.Program(t, "gcc", "gcc and libc6-dev")
	l.buildOnce.Do(func() { l.file, l.err = l.build() })
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.file
}

// build compiles the library into memory, so that no file remains after a crash.
func (l *Library) build() (string, error) {
	sources, err := filepath.Glob(filepath.Join(l.Sources, "*.c"))
	if err == nil && len(sources) == 0 {
		err = errors.New("no C files (build without -trimpath)")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", l.Sources, err)
	}
	dir, err := os.MkdirTemp("", "libtest")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	linked := filepath.Join(dir, "lib.so")
	text, err := exec.Command("gcc", append(append([]string{"-o", linked}, flags...), sources...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", l.Sources, err, text)
	}
	library, err := os.ReadFile(linked)
	if err != nil {
		return "", err
	}
	fd, err := unix.MemfdCreate("lib.so", unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("%s: %w", l.Sources, err)
	}
	if err := unix.Fchmod(fd, 0o700); err != nil { // Libraries that others can write are not loaded.
		return "", fmt.Errorf("%s: %w", l.Sources, err)
	}
	file := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	return file, os.WriteFile(file, library, 0)
}
