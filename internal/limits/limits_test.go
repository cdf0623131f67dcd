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

// The environment of a process that sets a limit, and then checks: it prints the error.
const envLimit = "LIMITS_TEST"

var small = Need{Files: 4, Threads: 5, Space: 64 << 20}

func TestMain(m *testing.M) {
	spec := os.Getenv(envLimit)
	if spec == "" {
		os.Exit(m.Run())
	}
	var resource int
	var most uint64
	if _, err := fmt.Sscan(spec, &resource, &most); err != nil {
		panic(err)
	}
	if resource == unix.RLIMIT_AS {
		most += addressSpace()
	}
	if resource == unix.RLIMIT_NPROC && os.Getuid() == 0 { // whom it does not bind
		const nobodyElse = 65531
		if err := syscall.Setuid(nobodyElse); err != nil {
			panic(err)
		}
		most += uint64(tasksOfUser())
	}
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
		panic(err)
	}
	if err := small.Check(); err != nil {
		fmt.Print(err)
	}
	os.Exit(0)
}

// under returns what Check says in a process with a limit, which counts from what it uses
// already where it is not one of files.
func under(t *testing.T, resource int, most uint64) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprint(envLimit, "=", resource, " ", most))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

// TestShortLimitIsSaidInOneLine: and one that is just large enough is no error.
func TestShortLimitIsSaidInOneLine(t *testing.T) {
	if err := small.Check(); err != nil {
		t.Skip("the limits of this test are short: ", err)
	}
	const much = 1 << 30
	for _, c := range []struct {
		resource int
		short    uint64
		enough   uint64
		want     string
	}{
		{unix.RLIMIT_NOFILE, 5, 64, "ulimit -n"},
		{unix.RLIMIT_AS, 60 << 20, much, "ulimit -v"},
		{unix.RLIMIT_NPROC, 4, 64, "ulimit -u"},
	} {
		if c.resource == unix.RLIMIT_NPROC && os.Getuid() != 0 || c.resource == unix.RLIMIT_AS && !cgo {
			continue // what this user has changes meanwhile; Go's threads need no space
		}
		if said := under(t, c.resource, c.short); !strings.Contains(said, c.want) || strings.Contains(said, "\n") {
			t.Errorf("%s short: %q", c.want, said)
		}
		if said := under(t, c.resource, c.enough); said != "" {
			t.Errorf("%s long enough: %q", c.want, said)
		}
	}
}

func TestAddressSpaceAndTasksAreKnown(t *testing.T) {
	if n := addressSpace(); n < 1<<20 {
		t.Errorf("%d bytes of address space", n)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if n := tasksOfUser(); n < len(threads) {
		t.Errorf("%s tasks, and this process alone has %d", strconv.Itoa(n), len(threads))
	}
}
