// Package testprov contains a UCX for tests. Its source is in folder provider, and it is compiled on demand. It simulates classes of transports for absent
// hardware, with faults, and transfers messages between the workers of one process. provider/profile.c lists the faults.
//
// It tests ferry's behavior with such a UCX, not the real one.
//
// Only tests import it. It uses internal/libtest.
package testprov

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/libtest"
)

// Variables of the environment. The library reads them in each call.
const (
	Classes = "TESTUCP_CLASSES" // that are there, with a comma between them: rc, dc, ud, tcp, shm, cuda
	Faults  = "TESTUCP_FAULTS"  // Faults of the form NAME or NAME=NUMBER, separated by commas.
	Faulty  = "TESTUCP_FAULTY"  // classes that have the faults; empty: all
	Version = "TESTUCP_VERSION" // of the library: "1.18.1" by default
)

// Set selects classes and faults in this process until the end of the test.
func Set(t testing.TB, classes string, faults ...string) {
	t.Helper()
	t.Setenv(Classes, classes)
	t.Setenv(Faults, strings.Join(faults, ","))
}

var library = libtest.LibraryBeside("provider")

// Library compiles the library once per process, and returns its file, which exists until the process ends. Without gcc it skips the test, or fails
// it with REQUIRE_ALL=1.
func Library(t testing.TB) string {
	t.Helper()
	return library.File(t)
}
