package libtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// NewUnresponsive creates a library on a file system that does not respond, a FIFO without a writer.
func NewUnresponsive(t testing.TB) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "silent.so")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Unblock unblocks the readers of a library of NewUnresponsive. It has no effect on other files.
func Unblock(t testing.TB, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil && info.Mode().Type() != os.ModeNamedPipe {
		return
	}
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
}

// CopyTruncated copies the first half of a library to a file of its own.
func CopyTruncated(t testing.TB, library string) (path string) {
	t.Helper()
	data, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "truncated.so")
	if err := os.WriteFile(path, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// CheckLoadErrors runs a test in child processes that print the error of loading a library, and checks
// the error. The environment variable LIBRARY has the path of the library, and the time limit is a
// second.
func CheckLoadErrors(t *testing.T, test, component, whole string) {
	t.Helper()
	for path, reason := range map[string]string{NewUnresponsive(t): " was not loaded within 1s: ", CopyTruncated(t, whole): " is damaged: "} {
		out, err := InChild(t, test, "LIBRARY="+path)
		line, rest, _ := strings.Cut(out, "\n")
		if err != nil || !strings.HasPrefix(line, component+": "+path+reason) || !strings.HasPrefix(rest, "PASS") {
			t.Errorf("%v, no reason %q:\n%s", err, reason, out)
		}
	}
}
