package limits

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// envLimit holds the resource and the limit for the child process, which sets the limit, calls Check and prints its error.
const envLimit = "LIMITS_TEST"

var small = Need{Files: 4, Threads: 5, Space: 64 << 20}

func TestMain(m *testing.M) {
	spec := os.Getenv(envLimit)
	if spec == "" {
		os.Exit(m.Run())
	}
	var resource int
	var limit uint64
	if _, err := fmt.Sscan(spec, &resource, &limit); err != nil {
		panic(err)
	}
	if resource == unix.RLIMIT_AS {
		limit += addressSpace()
	}
	if resource == unix.RLIMIT_NPROC && os.Getuid() == 0 { // The limit does not bind root.
		const unusedUID = 65531
		if err := syscall.Setuid(unusedUID); err != nil {
			panic(err)
		}
		limit += uint64(countTasks())
	}
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		panic(err)
	}
	if err := small.Check(); err != nil {
		fmt.Print(err)
	}
	os.Exit(0)
}

// checkUnder returns the error text of Check in a process with the limit. Limits of address
// space and of threads are added to the current use.
func checkUnder(t *testing.T, resource int, limit uint64) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprint(envLimit, "=", resource, " ", limit))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

func TestCheck_LimitTooLow_ReturnsOneLine(t *testing.T) {
	if err := small.Check(); err != nil {
		t.Skip("the limits of this test are short: ", err)
	}
	const ample = 1 << 30
	for _, c := range []struct {
		resource int
		tooLow   uint64
		enough   uint64
		want     string
	}{
		{unix.RLIMIT_NOFILE, 5, 64, "ulimit -n"},
		{unix.RLIMIT_AS, 60 << 20, ample, "ulimit -v"},
		{unix.RLIMIT_NPROC, 4, 64, "ulimit -u"},
	} {
		if c.resource == unix.RLIMIT_NPROC && os.Getuid() != 0 || c.resource == unix.RLIMIT_AS && !cgo {
			continue // Other tasks of this user come and go; threads of Go need no space.
		}
		if got := checkUnder(t, c.resource, c.tooLow); !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s too low: %q", c.want, got)
		}
		if got := checkUnder(t, c.resource, c.enough); got != "" {
			t.Errorf("%s high enough: %q", c.want, got)
		}
	}
}

func TestCurrentUse_ThisProcess_IsCounted(t *testing.T) {
	if n := addressSpace(); n < 1<<20 {
		t.Errorf("%d bytes of address space", n)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if n := countTasks(); n < len(threads) {
		t.Errorf("%s tasks, and this process alone has %d", strconv.Itoa(n), len(threads))
	}
}
