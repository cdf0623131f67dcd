// Package testprov is a UCX for tests: the one in folder provider, compiled when a test asks for
// it. It has classes of transports whose hardware is not here, and faults, and carries messages
// between the workers of one process. Its C files say which faults there are
// (provider/profile.c).
//
// It shows what ferry makes of such a UCX, not that the real one works.
//
// Only tests import it. It stands on internal/libtest.
package testprov

import (
	"strings"
	"testing"

	"github.com/ferrympi/ferry/internal/libtest"
)

// Variables of the environment, where the library looks whenever something is asked of it.
const (
	Classes = "TESTUCP_CLASSES" // that are there, with a comma between them: rc, dc, ud, tcp, shm, cuda
	Faults  = "TESTUCP_FAULTS"  // each NAME or NAME=NUMBER, likewise
	Faulty  = "TESTUCP_FAULTY"  // classes that have the faults; empty: all
	Version = "TESTUCP_VERSION" // of the library: "1.18.1" by default
)

// Set gives this process, for the time of a test, these classes with faults.
func Set(t testing.TB, classes string, faults ...string) {
	t.Helper()
	t.Setenv(Classes, classes)
	t.Setenv(Faults, strings.Join(faults, ","))
}

var library = libtest.Beside("provider")

// Library compiles the library, once in a process, and returns its file, which is there as long as
// the process. It skips the test where there is no gcc, or fails it with REQUIRE_ALL=1.
func Library(t testing.TB) string {
	t.Helper()
	return library.File(t)
}
