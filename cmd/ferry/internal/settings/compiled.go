//go:build !ferry_faults

package settings

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// compiled returns the components that this program has.
func compiled() *framework.Registry { return base() }

// Session is what ranks of this program open sessions with: nothing, if its components are
// those of any program. Sessions of one process share a registry.
func Session() []mpi.SessionOption {
	if own == nil {
		return nil
	}
	return []mpi.SessionOption{mpi.WithRegistry(own)}
}
