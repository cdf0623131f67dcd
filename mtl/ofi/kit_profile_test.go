package ofi_test

import (
	"testing"
	"time"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
	"github.com/ferrympi/ferry/mtl/mtltest"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// profile is a subject over a provider of the tests' own library, with faults.
func profile(t testing.TB, provider, layout, wait string, faults ...string) mtltest.Subject {
	t.Helper()
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	testprov.Set(t, provider, faults...)
	lib := testprov.Library(t)
	s := subject(provider, layout, wait)
	set := s.Params
	s.Params = func(rank int, p any) {
		set(rank, p)
		ofi.SetLibrary(p, lib, 10*time.Second)
	}
	s.OtherParams = func(p any) {
		ofi.Set(p, []string{provider}, "8/14/15", wait) // fits into all
		ofi.SetLibrary(p, lib, 10*time.Second)
	}
	return s
}

func TestKitOverProfiles(t *testing.T) {
	for _, name := range testprov.Profiles {
		t.Run(name, func(t *testing.T) {
			mtltest.Cases(profile(t, name, "auto", "auto")).Run(t)
		})
	}
}
