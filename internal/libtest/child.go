package libtest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// childVariable is set in the children of InChild.
const childVariable = "LIBTEST_CHILD"

// IsChild reports whether this process is a child of InChild.
func IsChild() bool { return os.Getenv(childVariable) != "" }

// InChild runs a test of this binary in a child process with additional environment variables, and
// returns its output and its exit error. The test first calls IsChild.
func InChild(t testing.TB, test string, env ...string) (output string, err error) {
	t.Helper()
	out, err := Child(t, test, env...).CombinedOutput()
	return string(out), err
}

// childLimit is the timeout of a child process.
const childLimit = time.Minute

// Child returns the command of InChild. The end of the test and childLimit kill the process.
func Child(t testing.TB, test string, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), childLimit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, "-test.run=^"+test+"$", "-test.count=1")
	// The race detector would sleep for a second at each exit.
	cmd.Env = append(append(os.Environ(), childVariable+"=1", "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0"), env...)
	return cmd
}
