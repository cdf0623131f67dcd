package bootstrap

import (
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

// BuiltinPset answers name from id alone, with no message to the server. ok is
// false for any other name.
func BuiltinPset(id Identity, name string) (info PsetInfo, ok bool) {
	switch {
	case strings.EqualFold(name, PsetWorld):
		info.Name = PsetWorld
		info.Members = make([]framework.Proc, id.Size)
		for r := range info.Members {
			info.Members[r] = framework.Proc{Namespace: id.Proc.Namespace, Rank: uint32(r)}
		}
	case strings.EqualFold(name, PsetSelf):
		info.Name = PsetSelf
		info.Members = []framework.Proc{id.Proc}
	case strings.EqualFold(name, PsetShared):
		info.Name = PsetShared
		info.Members = make([]framework.Proc, len(id.Locals))
		for i, r := range id.Locals {
			info.Members[i] = framework.Proc{Namespace: id.Proc.Namespace, Rank: r}
		}
	default:
		return PsetInfo{}, false
	}
	return info, true
}
