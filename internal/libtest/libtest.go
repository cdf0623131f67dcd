// Package libtest compiles the C libraries that tests load in place of a network's.
//
// Only tests and their helpers import it. It stands on the standard library and golang.org/x/sys.
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

// A Library is compiled once in a process, when a test first asks for it.
type Library struct {
	// Sources is the folder of its C files. A path that -trimpath has cut is an error.
	Sources string

	once sync.Once
	file string
	err  error
}

// Beside is the library whose C files are in a folder beside the caller's file.
func Beside(folder string) *Library {
	_, caller, _, _ := runtime.Caller(1)
	return &Library{Sources: filepath.Join(filepath.Dir(caller), folder)}
}

// flags are those with which gcc makes a library.
var flags = []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-fvisibility=hidden", "-fPIC", "-shared", "-pthread"}

// File returns the library's file, which is there as long as the process. It skips the test where
// there is no gcc, or fails it with REQUIRE_ALL=1.
func (l *Library) File(t testing.TB) string {
	t.Helper()
	needs.Program(t, "gcc", "gcc and libc6-dev")
	l.once.Do(func() { l.file, l.err = l.build() })
	if l.err != nil {
		t.Fatal(l.err)
	}
	return l.file
}

// build has the library in memory: nothing is left behind, however the process ends.
func (l *Library) build() (string, error) {
	sources, err := filepath.Glob(filepath.Join(l.Sources, "*.c"))
	if err == nil && len(sources) == 0 {
		err = errors.New("no C files there: -trimpath hides them")
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
	if err := unix.Fchmod(fd, 0o700); err != nil { // A library that others can write is not loaded.
		return "", fmt.Errorf("%s: %w", l.Sources, err)
	}
	file := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	return file, os.WriteFile(file, library, 0)
}
