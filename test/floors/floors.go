// Package floors holds the architecture of ferry as data: which floor each
// package stands on, which imports that allows, and, in edges.txt, which there
// are. Its tests read every Go file of the module and fail with the offending
// edge, so that the layer diagram in ARCHITECTURE.md cannot drift from the code.
//
// It stands on the standard library only, and nothing but its tests uses it.
package floors

import (
	"fmt"
	"path"
	"strings"
)

// Floor is a level of the layer diagram. Imports go down, never up.
type Floor int

// The floors, from the ground.
const (
	Ground     Floor = iota // machine: shared memory, futexes, C libraries; the only unsafe code
	Vocabulary              // framework
	Contracts               // what components implement, and pure logic that they share
	Movers                  // transports and bootstraps: they move bytes
	Protocols               // what gives the bytes a meaning; they know contracts, not transports
	Assembly                // which components there are, and their parameters
	User                    // package mpi
	Tools                   // commands and examples
)

// ground lists the folders below internal that make up the ground floor: only
// there is unsafe, cgo or assembly allowed.
var ground = []string{
	"attacktest", "cma", "cpu", "doorbell", "elfcheck", "fork", "hop", "hostid", "libfabric", "libtest", "limits", "mem", "needs", "netaddr", "outfile", "pmixc",
	"procstat", "progressline", "rawsys", "ring", "shmlayout", "simd", "stderr", "trustedfile", "ucp",
}

// rows maps folders to floors. The longest prefix that matches wins.
var rows = []struct {
	dir   string
	floor Floor
}{
	{"framework", Vocabulary}, {"internal/strictcbor", Vocabulary}, {"internal/text", Vocabulary},

	{"pml", Contracts}, {"mtl", Contracts}, {"btl", Contracts}, {"bootstrap", Contracts}, {"coll", Contracts},
	{"btl/ring", Contracts}, {"btl/segment", Contracts}, // what transports of other modules are made of
	{"coll/area", Contracts},          // what collective components in shared memory are made of
	{"coll/heap", Contracts},          // memory that goroutines as ranks share
	{"coll/leaders", Contracts},       // messages among one rank of each node or process
	{"mtl/trial", Contracts},          // how MTLs try what a library offers
	{"bootstrap/internal", Contracts}, // what bootstraps have in common
	{"bootstrap/mesh", Contracts},     // what bootstraps over a launcher's address book have in common
	{"agreement", Contracts}, {"cid", Contracts}, {"match", Contracts}, {"progress", Contracts}, {"pml/base", Contracts},

	{"assembly", Assembly}, {"components", Assembly}, {"config", Assembly},
	{"plugin", Assembly}, // transports as processes, on both sides

	{"mpi", User},

	{"cmd", Tools}, {"examples", Tools}, {"bench", Tools},
	{"otel", Tools}, // a module of its own
	{"internal/lint", Tools},
	// Tests of the whole.
	{"docs", Tools}, {"packaging", Tools}, {"test", Tools}, {"test/nettest", Ground}, {"internal/testreport", Tools},
}

// componentFloor is the floor of what lies below the folder of a contract.
var componentFloor = map[string]Floor{
	"btl": Movers, "mtl": Movers, "bootstrap": Movers,
	"pml": Protocols, "coll": Protocols,
}

// Of returns the floor of the package in folder dir, relative to the module's
// root. An error means that the table has no row for it: a new folder needs a
// place in the architecture before it gets code.
func Of(dir string) (Floor, error) {
	if parts := strings.Split(dir, "/"); parts[0] == "internal" && len(parts) > 1 {
		for _, g := range ground {
			if parts[1] == g {
				return Ground, nil
			}
		}
	}
	best, floor := "", Floor(-1)
	for _, r := range rows {
		if under(dir, r.dir) && len(r.dir) > len(best) {
			best, floor = r.dir, r.floor
		}
	}
	if floor < 0 {
		return 0, fmt.Errorf("folder %s has no floor: give it a row in test/floors/floors.go", dir)
	}
	if above, ok := componentFloor[best]; ok && dir != best && !IsKit(dir) {
		return above, nil
	}
	return floor, nil
}

// IsKit reports whether dir holds a kit: the tests that every implementation of
// a contract must pass, or helpers of tests. A kit stands on its contract's
// floor; only tests, other kits and tools may import it.
func IsKit(dir string) bool {
	base := path.Base(dir)
	return strings.HasSuffix(base, "test") || base == "needs" || base == "testprov"
}

// Use says what kind of file an import stands in.
type Use int

// The kinds of files.
const (
	Code         Use = iota // part of the package
	InternalTest            // *_test.go of the package itself
	ExternalTest            // *_test.go of package x_test, which sees x as a stranger does
)

// Check says what is wrong with an import of package to by package from (folders
// relative to the module's root); nil if it is allowed.
//
//   - Code imports lower floors. Protocols don't import Movers.
//   - On the same floor: contracts and pure packages import one another, as do
//     ground packages; elsewhere only packages of the same component or
//     command subtree do, tools' common helpers below internal aside.
//   - Tests of a package may also import kits. External tests may import
//     anything below the tools: a protocol's external test needs a transport.
func Check(from, to string, use Use) error {
	ff, err := Of(from)
	if err != nil {
		return err
	}
	tf, err := Of(to)
	if err != nil {
		return err
	}
	if use != Code && IsKit(to) {
		return nil
	}
	if use == ExternalTest && tf < Tools {
		return nil
	}
	switch {
	case (under(from, "examples") || under(from, "otel")) && strings.Contains("/"+to+"/", "/internal/"):
		return edge(from, ff, to, tf, "examples and modules of their own are like other people's code, which can't import internal packages")
	case IsKit(to) && !IsKit(from) && ff != Tools:
		return edge(from, ff, to, tf, "a kit is for tests")
	case IsKit(from):
		// A kit runs what it tests; it may not reach into the tools' floor from
		// below, and otherwise takes what it needs.
		if tf == Tools && ff != Tools {
			return edge(from, ff, to, tf, "imports go down")
		}
	case tf > ff:
		return edge(from, ff, to, tf, "imports go down")
	case ff == Protocols && tf == Movers:
		return edge(from, ff, to, tf, "protocols know contracts, not transports")
	case tf == ff && !sameFloor(from, to, ff):
		return edge(from, ff, to, tf, "packages of this floor don't know one another")
	}
	return nil
}

// sameFloor says whether from may import to, which stands on the same floor.
func sameFloor(from, to string, f Floor) bool {
	switch f {
	case Ground, Contracts, Assembly:
		return true
	case Tools:
		return under(to, "cmd/ferry/internal") || under(to, "cmd/ferry/ferrytest") || under(from, "otel") && to == "otel"
	}
	return subtree(from) == subtree(to)
}

// subtree is the folder of the component that dir belongs to: its first two
// elements, or the first for the user's package.
func subtree(dir string) string {
	parts := strings.SplitN(dir, "/", 3)
	if _, contract := componentFloor[parts[0]]; contract && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

func under(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

func edge(from string, ff Floor, to string, tf Floor, why string) error {
	return fmt.Errorf("%s (floor %d) imports %s (floor %d): %s", from, ff, to, tf, why)
}
