package testprov_test

import (
	"testing"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/internal/libfabric/testprov"
)

// load loads the library with these providers.
func load(t *testing.T, profiles string, faults ...string) *libfabric.Library {
	t.Helper()
	if err := libfabric.Built(); err != nil {
		t.Skip(err)
	}
	testprov.Set(t, profiles, faults...)
	l, err := libfabric.Load(testprov.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestEachProfileIsOffered(t *testing.T) {
	for _, name := range testprov.Profiles {
		l := load(t, name)
		infos, err := l.Infos("")
		if err != nil || len(infos.List) != 1 || infos.List[0].Provider != name {
			t.Fatalf("%s: %+v, %v", name, infos, err)
		}
		t.Logf("%+v", infos.List[0])
		infos.Free()
	}
}
