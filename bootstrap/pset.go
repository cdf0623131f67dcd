package bootstrap

import (
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/framework"
)

// The process sets that every process knows (MPI-4.1 section 11.3.2; SHARED is
// an extension that Open MPI has too). Names compare without regard to case.
const (
	PsetWorld  = "mpi://WORLD"
	PsetSelf   = "mpi://SELF"
	PsetShared = "mpix://SHARED" // the processes of this node
)

// BuiltinPsets returns the names of the sets that follow from an Identity.
func BuiltinPsets() []string { return []string{PsetWorld, PsetSelf, PsetShared} }

// Psets returns the names of the sets that BuiltinPset makes of id: where it is not known
// who is on the node, SHARED is none.
func (id Identity) Psets() []string {
	if len(id.Locals) == 0 {
		return []string{PsetWorld, PsetSelf}
	}
	return BuiltinPsets()
}

// BuiltinPset answers name from id alone, with no message to the server. ok is false for
// any other name. Where id doesn't know who is on the node, SHARED is ErrPset, which says
// so and what serves instead.
func BuiltinPset(id Identity, name string) (info PsetInfo, ok bool, err error) {
	switch {
	case strings.EqualFold(name, PsetWorld):
		ranks := make([]uint32, id.Size)
		for r := range ranks {
			ranks[r] = uint32(r)
		}
		return PsetInfo{Name: PsetWorld, Members: id.Procs(ranks)}, true, nil
	case strings.EqualFold(name, PsetSelf):
		return PsetInfo{Name: PsetSelf, Members: []framework.Proc{id.Proc}}, true, nil
	case !strings.EqualFold(name, PsetShared):
		return PsetInfo{}, false, nil
	case len(id.Locals) == 0:
		return PsetInfo{}, true, fmt.Errorf("%w: %s: the launcher does not say who is on this node; "+
			"make a communicator of %s and call its SplitShared, which goes by what the processes tell each other", framework.ErrPset, PsetShared, PsetWorld)
	}
	return PsetInfo{Name: PsetShared, Members: id.Procs(id.Locals)}, true, nil
}

// Procs returns the processes of this job that have these ranks.
func (id Identity) Procs(ranks []uint32) []framework.Proc {
	var procs []framework.Proc
	for _, r := range ranks {
		procs = append(procs, framework.Proc{Namespace: id.Proc.Namespace, Rank: r})
	}
	return procs
}
