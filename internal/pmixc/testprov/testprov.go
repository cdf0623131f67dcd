// Package testprov is a libpmix for tests. Folder provider has its source, which Library compiles. It serves one process
// without a server, and its calls fail on request (provider/pmix.c).
//
// Only tests import it. It stands on internal/libtest.
package testprov

import (
	"testing"

	"github.com/ferrympi/ferry/internal/libtest"
)

// Faults is the variable of the environment that names the calls which fail, as a list with commas of NAME or NAME=NUMBER.
const Faults = "TESTPMIX_FAULTS"

var library = libtest.LibraryBeside("provider")

// Library compiles the library, once in a process, and returns its file, which exists as long as the process. Without gcc it
// skips the test, or fails it with REQUIRE_ALL=1.
func Library(t testing.TB) string {
	t.Helper()
	return library.File(t)
}
