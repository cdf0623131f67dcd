package testprov

import (
	"cmp"
	"errors"
	"os"
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/needs"
)

// System returns the real libfabric for tests: the machine's, or the file in FERRY_TEST_LIBFABRIC.
func System() string { return cmp.Or(os.Getenv("FERRY_TEST_LIBFABRIC"), "libfabric.so.1") }

// Other reports whether System is not the machine's library.
func Other() bool { return System() != "libfabric.so.1" }

// Need skips the test if System cannot be loaded, or has none of the providers.
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
