// Package floors defines the architecture of ferry: the floor of each package and the permitted
// imports. edges.txt lists the existing imports. The tests parse every Go file of the module and
// report each forbidden or unlisted import, so that the layer diagram in ARCHITECTURE.md stays
// correct. Only these tests use the package.
package floors

import (
	"fmt"
	"path"
	"strings"
)

// Floor is a level of the layer diagram. A package imports only its own floor and lower ones.
type Floor int

// The floors, from the ground.
const (
	Ground     Floor = iota // Shared memory, futexes and C libraries, with all unsafe code.
	Vocabulary              // Package framework.
	Contracts               // Interfaces of components, and their common logic.
	Movers                  // Transports and bootstraps.
	Protocols               // Message protocols, which import contracts but no transports.
	Assembly                // Selection of components, and their parameters.
	User                    // Package mpi.
	Tools                   // Commands, examples, and tests of the whole.
)

// ground lists the folders below internal on the ground floor, where unsafe, cgo and assembly are
// permitted.
var ground = []string{
	"attacktest", "cma", "cpu", "doorbell", "elfcheck", "fork", "hop", "hostid", "learner", "libfabric", "libtest", "limits", "mem", "needs", "netaddr", "outfile", "pmixc",
	"procstat", "progressline", "rawsys", "ring", "shmlayout", "simd", "stderr", "trustedfile", "ucp",
}

// rows maps folders to floors. The longest matching prefix applies.
var rows = []struct {
	dir   string
	floor Floor
}{
	{"framework", Vocabulary}, {"internal/strictcbor", Vocabulary}, {"internal/text", Vocabulary},

	{"pml", Contracts}, {"mtl", Contracts}, {"btl", Contracts}, {"bootstrap", Contracts}, {"coll", Contracts},
	{"btl/ring", Contracts}, {"btl/segment", Contracts}, // Parts for transports of other modules.
	{"coll/area", Contracts},          // Parts of collective components in shared memory.
	{"coll/heap", Contracts},          // Shared memory of goroutine ranks.
	{"coll/leaders", Contracts},       // Messages among one rank of each node or process.
	{"mtl/base", Contracts},           // Parts of MTLs over a library.
	{"mtl/trial", Contracts},          // Self-tests of the libraries of MTLs.
	{"bootstrap/internal", Contracts}, // Common parts of bootstraps.
	{"bootstrap/mesh", Contracts},     // Bootstrap among the members over a launcher's address book.
	{"agreement", Contracts}, {"cid", Contracts}, {"match", Contracts}, {"progress", Contracts}, {"pml/base", Contracts},

	{"assembly", Assembly}, {"components", Assembly}, {"config", Assembly},
	{"plugin", Assembly}, // Transports in processes of their own, both sides.

	{"mpi", User},

	{"cmd", Tools}, {"examples", Tools}, {"bench", Tools},
	{"otel", Tools}, // A separate module.
	{"internal/lint", Tools},
	// Tests of the whole.
	{"docs", Tools}, {"packaging", Tools}, {"test", Tools}, {"test/nettest", Ground}, {"internal/testreport", Tools},
}

// componentFloor is the floor of the components below the folder of a contract.
var componentFloor = map[string]Floor{
	"btl": Movers, "mtl": Movers, "bootstrap": Movers,
	"pml": Protocols, "coll": Protocols,
}

// Of returns the floor of the package in folder dir, relative to the root of the module. It returns
// an error if the table has no row for the folder.
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

// IsKit reports whether dir contains a kit, which is a conformance suite of a contract or helpers of
// tests. A kit is on the floor of its contract. Only tests, other kits and tools may import it.
func IsKit(dir string) bool {
	base := path.Base(dir)
	return strings.HasSuffix(base, "test") || base == "needs" || base == "testprov"
}

// Use is the kind of a file with imports.
type Use int

// The kinds of files.
const (
	Code         Use = iota // File of the package.
	InternalTest            // Test file of the package.
	ExternalTest            // Test file of package x_test, which uses only the exported identifiers of x.
)

// Check returns an error if package from must not import package to. Both are folders relative to
// the root of the module.
//
//   - Code imports lower floors. Protocols don't import Movers.
//   - The packages of Ground, of Contracts and of Assembly may import others of the same floor. On
//     the other floors, a package imports only packages of its component. Tools may also import
//     the common packages of the commands, and package otel if they are below it.
//   - Tests of a package may also import kits. External tests may import all floors below Tools,
//     because the external test of a protocol needs a transport.
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
		return edge(from, ff, to, tf, "examples and separate modules cannot import internal packages")
	case IsKit(to) && !IsKit(from) && ff != Tools:
		return edge(from, ff, to, tf, "a kit is for tests")
	case IsKit(from):
		// A kit runs its subjects on any floor except Tools.
		if tf == Tools && ff != Tools {
			return edge(from, ff, to, tf, "imports go down")
		}
	case tf > ff:
		return edge(from, ff, to, tf, "imports go down")
	case ff == Protocols && tf == Movers:
		return edge(from, ff, to, tf, "protocols import contracts, not transports")
	case tf == ff && !sameFloor(from, to, ff):
		return edge(from, ff, to, tf, "packages of this floor do not import one another")
	}
	return nil
}

// sameFloor reports whether from may import to, which is on the same floor.
func sameFloor(from, to string, f Floor) bool {
	switch f {
	case Ground, Contracts, Assembly:
		return true
	case Tools:
		return under(to, "cmd/ferry/internal") || under(to, "cmd/ferry/ferrytest") || under(from, "otel") && to == "otel"
	}
	return subtree(from) == subtree(to)
}

// subtree returns the folder of the component of dir, which is its first two elements below a
// contract, and otherwise the first.
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
