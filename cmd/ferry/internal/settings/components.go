//go:build !ferry_faults

package settings

import (
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// compiled returns the components that this program has.
func compiled() *framework.Registry { return components.Standard() }

// Session is what ranks of this program open sessions with: nothing, since its
// components are those of any program.
func Session() []mpi.SessionOption { return nil }
