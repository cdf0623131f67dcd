//go:build ferry_faults

package settings

import (
	"strings"

	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mtl/mtlfault"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// The test build: a program that tests `ferry matrix` has components that are
// broken, each in its own way, over shared memory and over libfabric. They are
// used when they are named, and never otherwise.

// btlFaults come early enough for the first messages of a conformance case, and
// not so early that no process would get there.
var btlFaults = []struct {
	name, does string
	plan       btlfault.Plan
}{
	{"drop", "loses", btlfault.Plan{Seed: 1, Drop: 20}},
	{"duplicate", "doubles", btlfault.Plan{Seed: 1, Duplicate: 20}},
	{"reorder", "swaps", btlfault.Plan{Seed: 1, Reorder: 20}},
	{"corrupt", "damages", btlfault.Plan{Seed: 1, Corrupt: 20}},
	{"hang", "hangs after some", btlfault.Plan{HangAfter: 20}},
	{"hang_open", "hangs before any", btlfault.Plan{HangOpen: true}},
	{"crash", "crashes after some", btlfault.Plan{CrashAfter: 20}},
}

var mtlFaults = []struct {
	name, does string
	plan       mtlfault.Plan
}{
	{"drop", "loses", mtlfault.Plan{Seed: 1, Drop: 20}},
	{"duplicate", "doubles", mtlfault.Plan{Seed: 1, Duplicate: 20}},
	{"reorder", "swaps", mtlfault.Plan{Seed: 1, Reorder: 5}}, // two messages at once are rare
	{"corrupt", "damages", mtlfault.Plan{Seed: 1, Corrupt: 20}},
	{"hang", "hangs after some", mtlfault.Plan{HangAfter: 20}},
	{"hang_open", "hangs before any", mtlfault.Plan{HangOpen: true}},
	{"crash", "crashes after some", mtlfault.Plan{CrashAfter: 20}},
}

// compiled returns the components that this program has.
func compiled() *framework.Registry {
	r := components.Standard()
	var btls, mtls []string
	for _, f := range btlFaults {
		r.Register(btlfault.Wrap(shm.Component(), f.plan).As(f.name, "test build: shm, which "+f.does+" frames"))
		btls = append(btls, f.name)
	}
	for _, f := range mtlFaults {
		r.Register(mtlfault.Wrap(ofi.Component(), f.name, "test build: ofi, which "+f.does+" messages", f.plan))
		mtls = append(mtls, f.name)
	}
	r.SetDefault("btl", "^"+strings.Join(btls, ","))
	r.SetDefault("mtl", "^"+strings.Join(mtls, ","))
	return r
}

// Session is what ranks of this program open sessions with: its components are
// not those of any program.
func Session() []mpi.SessionOption { return []mpi.SessionOption{mpi.WithRegistry(compiled())} }
