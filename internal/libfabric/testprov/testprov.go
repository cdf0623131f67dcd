// Package testprov is a libfabric for tests: the one in folder provider, compiled when a
// test asks for it. It has the attributes of providers whose hardware is not here, as far
// as they are known, and their faults, and carries messages between processes of a
// machine over Unix sockets. Its C files say which faults there are (provider/profile.c).
//
// It shows what ferry makes of such a provider, not that the real one works.
//
// Only tests import it. It stands on internal/libfabric.
package testprov

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Profiles are the providers that the library can be.
var Profiles = []string{"cxi", "verbs;ofi_rxm", "psm3", "efa", "opx", "tcp;ofi_rxm"}

// Variables of the environment.
const (
	Profile = "TESTPROV_PROFILE" // providers that are there, with a comma between them
	Faults  = "TESTPROV_FAULTS"  // each NAME or NAME=NUMBER, likewise
	Version = "TESTPROV_VERSION" // of the library: "2.2" by default
	Dir     = "TESTPROV_DIR"     // where its sockets are; empty: nowhere
)

// Environment returns the variables that give a process these providers, with faults.
func Environment(profiles string, faults ...string) []string {
	return []string{Profile + "=" + profiles, Faults + "=" + strings.Join(faults, ",")}
}

// Set gives this process, for the time of a test, these providers with faults. The
// library looks at the environment whenever it is asked what it offers.
func Set(t testing.TB, profiles string, faults ...string) {
	t.Helper()
	t.Setenv(Profile, profiles)
	t.Setenv(Faults, strings.Join(faults, ","))
}

// built is the library of this process.
var built = sync.OnceValues(build)

// Library compiles the library, once in a process, and returns its file, which is there
// as long as the process. It skips the test where there is no gcc, or fails it with
// REQUIRE_ALL=1.
func Library(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		if os.Getenv("REQUIRE_ALL") == "1" {
			t.Fatalf("REQUIRE_ALL=1: install gcc and libc6-dev: %v", err)
		}
		t.Skipf("install gcc and libc6-dev: %v", err)
	}
	file, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Flags are those with which gcc makes a library of the files in provider.
var Flags = []string{"-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-strict-aliasing", "-fvisibility=hidden", "-fPIC", "-shared", "-pthread"}

// build has the library in memory: nothing is left behind, however the process ends.
func build() (string, error) {
	_, self, _, ok := runtime.Caller(0)
	sources, err := filepath.Glob(filepath.Join(filepath.Dir(self), "provider", "*.c"))
	if err != nil || !ok || len(sources) == 0 {
		return "", fmt.Errorf("testprov: no sources beside %s: -trimpath hides them: %v", self, err)
	}
	dir, err := os.MkdirTemp("", "testprov")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	linked := filepath.Join(dir, "libtestprov.so")
	text, err := exec.Command("gcc", append(append(Flags, "-o", linked), sources...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("testprov: %w: %s", err, text)
	}
	library, err := os.ReadFile(linked)
	if err != nil {
		return "", err
	}
	fd, err := unix.MemfdCreate("libtestprov.so", unix.MFD_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("testprov: %w", err)
	}
	file := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	if err := os.WriteFile(file, library, 0); err != nil {
		return "", err
	}
	return file, nil
}
