package pmixc

import (
	"fmt"
	"math"
	"strings"
)

// childSepVersion is the oldest version with PMIX_SPAWN_CHILD_SEP.
var childSepVersion = Version{5, 0, 0}

// An App describes processes to start.
type App struct {
	// File of the program, and its arguments without the program's name.
	Program string
	Args    []string
	// Additional environment, as name=value. The rest is the launcher's choice.
	Env []string
	// Working directory. The launcher chooses one if it is empty.
	Dir string
	// Number of processes, at least 1.
	N int
	// The processes may outlive the job of their parent (PMIX_SPAWN_CHILD_SEP).
	IsIndependent bool
}

// Limits of an App in bytes. MaxString is Linux's, for each string. MaxApp is the limit for all
// strings, and leaves room for those of the launcher.
const (
	MaxString = 128<<10 - 1
	MaxApp    = 1 << 20
)

// Check returns an error for an App that no process could be started with.
func (a App) Check() error {
	const call = "PMIx_Spawn"
	if a.Program == "" || a.N < 1 || a.N > math.MaxInt32 {
		return fmt.Errorf("%s: %d processes of program %q: want at least 1 of a program", call, a.N, a.Program)
	}
	total := 0
	for _, list := range [][]string{{a.Program, a.Dir}, a.Args, a.Env} {
		for _, s := range list {
			if len(s) > MaxString || strings.IndexByte(s, 0) >= 0 {
				return fmt.Errorf("%s: a string of %d bytes, %.40q: want at most %d, none of them 0", call, len(s), s, MaxString)
			}
			total += len(s) + 1
		}
	}
	if total > MaxApp {
		return fmt.Errorf("%s: program, arguments and environment of %d bytes: want at most %d", call, total, MaxApp)
	}
	return nil
}
