//go:build !ferry_faults

package settings

import (
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// compiled returns the components that this program has.
func compiled() *framework.Registry { return base() }

// Session returns the session options of ranks of this program. It is empty if the program has the
// standard components. Sessions of one process share a registry.
func Session() []mpi.SessionOption {
	if own == nil {
		return nil
	}
	return []mpi.SessionOption{mpi.WithRegistry(own)}
}
