package bootstrap

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ferrympi/ferry/framework"
)

// The process sets that follow from an Identity (MPI-4.1 section 11.3.2; SHARED is
// an extension that Open MPI has too, ROOTS one of ferry's). Names compare without regard to case.
const (
	PsetWorld  = "mpi://WORLD"
	PsetSelf   = "mpi://SELF"
	PsetShared = "mpix://SHARED" // Processes of this node.
	PsetRoots  = "mpix://ROOTS"  // Process of the lowest rank of each node.
)

// BuiltinPsets returns the names of the sets that follow from an Identity.
func BuiltinPsets() []string { return []string{PsetWorld, PsetSelf, PsetShared, PsetRoots} }

// Psets returns the names of the sets that BuiltinPset returns for id. SHARED and ROOTS are none
// if the launcher does not name the processes of the node, or of all nodes.
func (id Identity) Psets() []string {
	names := []string{PsetWorld, PsetSelf}
	if len(id.Locals) > 0 {
		names = append(names, PsetShared)
	}
	if len(id.Nodes) > 0 {
		names = append(names, PsetRoots)
	}
	return names
}

// BuiltinPset returns a set that follows from id alone, without a message to the server. ok is false for
// any other name. SHARED is ErrPset with a remedy if Locals is empty, and so is ROOTS if Nodes is.
func BuiltinPset(id Identity, name string) (info PsetInfo, ok bool, err error) {
	switch {
	case strings.EqualFold(name, PsetWorld):
		world := framework.ConsecutiveProcs(id.Proc.Namespace, uint32(id.First), id.Size)
		return PsetInfo{Name: PsetWorld, Members: world, Dynamic: id.First > 0}, true, nil
	case strings.EqualFold(name, PsetSelf):
		return PsetInfo{Name: PsetSelf, Members: framework.ProcsOf(id.Proc)}, true, nil
	case strings.EqualFold(name, PsetRoots):
		if len(id.Nodes) == 0 {
			return PsetInfo{}, true, fmt.Errorf("%w: %s: the launcher has no valid map of the nodes; "+
				"make a communicator of %s, split it by SplitShared, and take the members of rank 0", framework.ErrPset, PsetRoots, PsetWorld)
		}
		return PsetInfo{Name: PsetRoots, Members: framework.ProcsOfRanks(id.Proc.Namespace, id.Nodes.Roots()), Dynamic: id.First > 0}, true, nil
	case !strings.EqualFold(name, PsetShared):
		return PsetInfo{}, false, nil
	case len(id.Locals) == 0:
		return PsetInfo{}, true, fmt.Errorf("%w: %s: the launcher does not say who is on this node; "+
			"make a communicator of %s and call its SplitShared, which goes by what the processes tell each other", framework.ErrPset, PsetShared, PsetWorld)
	}
	return PsetInfo{Name: PsetShared, Members: framework.ProcsOfRanks(id.Proc.Namespace, id.Locals)}, true, nil
}

// Procs returns the processes of this job that have these ranks.
func (id Identity) Procs(ranks []uint32) []framework.Proc {
	var procs []framework.Proc
	for _, r := range ranks {
		procs = append(procs, framework.Proc{Namespace: id.Proc.Namespace, Rank: r})
	}
	return procs
}

// PsetKey returns the same text for names of one process set: those that differ in the case
// of letters only. Bytes that are not UTF-8 stay as they are.
func PsetKey(name string) string {
	var b strings.Builder
	b.Grow(len(name))
	for i := 0; i < len(name); {
		r, n := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && n == 1 {
			b.WriteByte(name[i])
		} else {
			b.WriteRune(leastFold(r))
		}
		i += n
	}
	return b.String()
}

// leastFold returns the lowest of the characters that differ from r in case only, but the
// small letter for ASCII.
func leastFold(r rune) rune {
	least := r
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		least = min(least, f)
	}
	if 'A' <= least && least <= 'Z' {
		least += 'a' - 'A'
	}
	return least
}

// IsReserved reports whether a name is one of MPI's, its extensions', or of those that ferry makes. No program gives such a
// name to a set.
func IsReserved(name string) bool {
	key := PsetKey(name)
	return strings.HasPrefix(key, "mpi://") || strings.HasPrefix(key, "mpix://") || strings.HasPrefix(key, "ferry://")
}
