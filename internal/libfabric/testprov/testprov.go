// Package testprov is a libfabric for tests: the one in folder provider, compiled when a
// test asks for it. It has the attributes of providers whose hardware is not here, as far
// as they are known, and their faults, and carries messages between processes of a
// machine over Unix sockets. Its C files say which faults there are (provider/profile.c).
//
// It shows what ferry makes of such a provider, not that the real one works.
//
// Only tests import it. It stands on internal/libtest.
package testprov

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/libtest"
)

// Profiles are the providers that the library can be.
var Profiles = []string{"cxi", "verbs;ofi_rxm", "psm3", "efa", "opx", "tcp;ofi_rxm"}

// Variables of the environment.
const (
	Profile = "TESTPROV_PROFILE" // providers that are there, with a comma between them
	Faults  = "TESTPROV_FAULTS"  // each NAME or NAME=NUMBER, likewise
	Faulty  = "TESTPROV_FAULTY"  // Providers with failing calls. Empty means all.
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

var library = libtest.Beside("provider")

// Library compiles the library, once in a process, and returns its file, which is there
// as long as the process. It skips the test where there is no gcc, or fails it with
// REQUIRE_ALL=1.
func Library(t testing.TB) string {
	t.Helper()
	return library.File(t)
}
