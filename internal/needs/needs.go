// Package needs skips tests that need a missing part of the machine, or more time than the quick
// suite has. make test lists the reasons at its end. Only tests and their helpers import it.
package needs

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// Missing skips the test because a part of the machine is missing. The reason names the part and
// the remedy. With REQUIRE_ALL=1 the test fails.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	os.Getenv("TEST_RUN") // scripts/test changes it, so that go test does not use a cached result.
	if os.Getenv("REQUIRE_ALL") == "1" {
		t.Fatalf("REQUIRE_ALL=1: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Time skips a test of the full suite in the quick one (go test -short).
func Time(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("a long test: make check runs it, and make race under the race detector")
	}
}

// Program returns the path of a program of a Debian package.
func Program(t testing.TB, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, "no %s: install %s (scripts/setup)", name, debian)
	}
	return path
}

// Root skips the test unless it runs as root. The purpose completes "only root can".
func Root(t testing.TB, purpose string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "only root can %s", purpose)
	}
}

// HostName skips the test unless the host's own name resolves.
func HostName(t testing.TB) {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	resolves(t, host)
}

func resolves(t testing.TB, host string) {
	t.Helper()
	if _, err := net.DefaultResolver.LookupHost(t.Context(), host); err != nil {
		Missing(t, "the host's name %s does not resolve: add it to /etc/hosts", host)
	}
}

// SharedMemory skips the test unless /dev/shm has that many bytes free.
func SharedMemory(t testing.TB, bytes int64) {
	t.Helper()
	room(t, "/dev/shm", bytes)
}

func room(t testing.TB, dir string, bytes int64) {
	t.Helper()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		Missing(t, "no shared memory: %s: %v", dir, err)
	}
	if free := int64(s.Bavail) * s.Bsize; free < bytes {
		Missing(t, "%s has %d MiB free, and the test takes %d: enlarge it (docker: --shm-size)", dir, free>>20, bytes>>20)
	}
}

// SmallTmpfs mounts a memory file system of that many bytes until the end of the test, and returns
// its directory.
func SmallTmpfs(t testing.TB, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		Missing(t, "no tmpfs can be mounted: %v: run as root with CAP_SYS_ADMIN", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount of %s: %v", dir, err)
		}
	})
	return dir
}
