package testprov

import (
	"cmp"
	"errors"
	"os"
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/needs"
)

// System is the libfabric that tests use where none of ours will do: the machine's, or the
// file that FERRY_TEST_LIBFABRIC names, such as a newer one.
func System() string { return cmp.Or(os.Getenv("FERRY_TEST_LIBFABRIC"), "libfabric.so.1") }

// Other reports whether that is not the machine's.
func Other() bool { return System() != "libfabric.so.1" }

// Need skips the test where System can't be loaded, or has none of the providers.
func Need(t testing.TB, providers ...string) {
	t.Helper()
	lib, err := libfabric.Load(System())
	if err != nil {
		if errors.Is(err, libfabric.ErrNotBuilt) {
			t.Skip(err)
		}
		needs.Missing(t, "%v: install libfabric1", err)
	}
	for _, name := range providers {
		infos, err := lib.Infos(name)
		if err != nil || len(infos.List) == 0 {
			t.Skipf("libfabric %v has no provider %s here", lib.Version(), name)
		}
		infos.Free()
	}
}
