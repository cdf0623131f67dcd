// Package testprov contains a libfabric for tests. Its source is in folder provider, and it is compiled on demand. It simulates the known attributes
// and faults of providers for absent hardware, and transfers messages between processes of a machine over Unix sockets. provider/profile.c lists
// the faults.
//
// It tests ferry's behavior with such a provider, not the real provider.
//
// Only tests import it. It uses internal/libtest.
package testprov

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/libtest"
)

// Profiles are the names of the simulated providers.
var Profiles = []string{"cxi", "verbs;ofi_rxm", "psm3", "efa", "opx", "tcp;ofi_rxm"}

// Variables of the environment.
const (
	Profile = "TESTPROV_PROFILE" // Available providers, separated by commas.
	Faults  = "TESTPROV_FAULTS"  // Faults of the form NAME or NAME=NUMBER, separated by commas.
	Faulty  = "TESTPROV_FAULTY"  // Providers with failing calls. Empty means all.
	Version = "TESTPROV_VERSION" // Version of the library, "2.2" by default.
	Dir     = "TESTPROV_DIR"     // Folder of its sockets. Empty: it has none.
)

// Environment returns the variables for providers with faults.
func Environment(profiles string, faults ...string) []string {
	return []string{Profile + "=" + profiles, Faults + "=" + strings.Join(faults, ",")}
}

// Set sets the variables of Environment in this process until the end of the test. The library reads them in each fi_getinfo.
func Set(t testing.TB, profiles string, faults ...string) {
	t.Helper()
	t.Setenv(Profile, profiles)
	t.Setenv(Faults, strings.Join(faults, ","))
}

var library = libtest.LibraryBeside("provider")

// Library compiles the library once per process, and returns its file, which exists until the process ends. Without gcc it skips the test, or fails
// it with REQUIRE_ALL=1.
func Library(t testing.TB) string {
	t.Helper()
	return library.File(t)
}
