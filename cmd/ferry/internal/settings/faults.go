//go:build ferry_faults

package settings

import (
	"strings"

	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/shm"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
	"github.com/ferrympi/ferry/mtl/mtlfault"
	"github.com/ferrympi/ferry/mtl/ofi"
)

// The test build of `ferry matrix` has components with one defect each, over shared memory and over
// libfabric. They are used only when they are requested by name.

// faults come early enough for the first messages of a conformance case, and not so
// early that no process would get there.
var faults = []struct {
	name, does string
	btl        btlfault.Plan
	mtl        mtlfault.Plan
}{
	{"drop", "loses", btlfault.Plan{Seed: 1, Drop: 20}, mtlfault.Plan{Seed: 1, Drop: 20}},
	{"duplicate", "doubles", btlfault.Plan{Seed: 1, Duplicate: 20}, mtlfault.Plan{Seed: 1, Duplicate: 20}},
	{"reorder", "swaps", btlfault.Plan{Seed: 1, Reorder: 20}, mtlfault.Plan{Seed: 1, Reorder: 5}}, // two messages at once are rare
	{"corrupt", "damages", btlfault.Plan{Seed: 1, Corrupt: 20}, mtlfault.Plan{Seed: 1, Corrupt: 20}},
	{"hang", "hangs after some", btlfault.Plan{HangAfter: 20}, mtlfault.Plan{HangAfter: 20}},
	{"hang_open", "hangs before any", btlfault.Plan{HangOpen: true}, mtlfault.Plan{HangOpen: true}},
	{"crash", "crashes after some", btlfault.Plan{CrashAfter: 20}, mtlfault.Plan{CrashAfter: 20}},
}

// compiled returns the components that this program has.
func compiled() *framework.Registry {
	r := base()
	var names []string
	for _, f := range faults {
		r.Register(btlfault.Wrap(shm.Component(), f.btl).As(f.name, "test build: shm, which "+f.does+" frames"))
		r.Register(mtlfault.Wrap(ofi.Component(), f.name, "test build: ofi, which "+f.does+" messages", f.mtl))
		names = append(names, f.name)
	}
	r.SetDefault("btl", "^"+strings.Join(names, ","))
	r.SetDefault("mtl", "^"+strings.Join(names, ","))
	return r
}

// Session returns the session options of ranks of this program, with its registry.
func Session() []mpi.SessionOption { return []mpi.SessionOption{mpi.WithRegistry(compiled())} }
