package bootstrap

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ferrympi/ferry/framework"
)

// Process sets that follow from an Identity (MPI-4.1 section 11.3.2). SHARED is an extension that
// Open MPI has too, and ROOTS one of ferry's. Names compare without regard to case.
const (
	PsetWorld  = "mpi://WORLD"
	PsetSelf   = "mpi://SELF"
	PsetShared = "mpix://SHARED" // Processes of this node.
	PsetRoots  = "mpix://ROOTS"  // Process of the lowest rank of each node.
)

// BuiltinPsets returns the names of the sets that follow from an Identity.
func BuiltinPsets() []string { return []string{PsetWorld, PsetSelf, PsetShared, PsetRoots} }

// Psets returns the names of the sets that BuiltinPset finds for id. It omits SHARED if the
// processes of the node are unknown, and ROOTS if those of all nodes are.
func (id Identity) Psets() []string {
	names := []string{PsetWorld, PsetSelf}
	if len(id.LocalRanks) > 0 {
		names = append(names, PsetShared)
	}
	if len(id.Nodes) > 0 {
		names = append(names, PsetRoots)
	}
	return names
}

// BuiltinPset returns a set that follows from id, without a message to the server. ok is false for
// any other name. SHARED is ErrPset with a remedy if LocalRanks is empty, and so is ROOTS if Nodes is.
func BuiltinPset(id Identity, name string) (info PsetInfo, ok bool, err error) {
	switch {
	case strings.EqualFold(name, PsetWorld):
		world := framework.ConsecutiveProcs(id.Proc.Namespace, uint32(id.FirstRank), id.Size)
		return PsetInfo{Name: PsetWorld, Members: world, Dynamic: id.FirstRank > 0}, true, nil
	case strings.EqualFold(name, PsetSelf):
		return PsetInfo{Name: PsetSelf, Members: framework.ProcsOf(id.Proc)}, true, nil
	case strings.EqualFold(name, PsetRoots):
		if len(id.Nodes) == 0 {
			return PsetInfo{}, true, fmt.Errorf("%w: %s: the launcher has no valid map of the nodes; "+
				"make a communicator of %s, split it by SplitShared, and take the members of rank 0", framework.ErrPset, PsetRoots, PsetWorld)
		}
		return PsetInfo{Name: PsetRoots, Members: framework.ProcsOfRanks(id.Proc.Namespace, id.Nodes.Roots()), Dynamic: id.FirstRank > 0}, true, nil
	case !strings.EqualFold(name, PsetShared):
		return PsetInfo{}, false, nil
	case len(id.LocalRanks) == 0:
		return PsetInfo{}, true, fmt.Errorf("%w: %s: the processes of this node are unknown to the launcher; "+
			"make a communicator of %s and call its SplitShared, which exchanges the nodes of the processes", framework.ErrPset, PsetShared, PsetWorld)
	}
	return PsetInfo{Name: PsetShared, Members: framework.ProcsOfRanks(id.Proc.Namespace, id.LocalRanks)}, true, nil
}

// Procs returns the processes of this job with these ranks.
func (id Identity) Procs(ranks []uint32) []framework.Proc {
	var procs []framework.Proc
	for _, r := range ranks {
		procs = append(procs, framework.Proc{Namespace: id.Proc.Namespace, Rank: r})
	}
	return procs
}

// PsetKey returns a key that is equal for names that differ in case only. Bytes that are not UTF-8
// are unchanged.
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

// leastFold returns the lowest character that differs from r in case only. For ASCII it returns the
// small letter.
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

// IsReserved reports whether programs cannot use a name for a set, because it is one of MPI's, of
// its extensions', or of ferry's.
func IsReserved(name string) bool {
	key := PsetKey(name)
	return strings.HasPrefix(key, "mpi://") || strings.HasPrefix(key, "mpix://") || strings.HasPrefix(key, "ferry://")
}
