package server

import (
	"fmt"
	"strings"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// A Pset is a named process set of the job.
type Pset struct {
	// Names compare without regard to case.
	Name string
	// In the order of the group.
	Ranks []uint32
}

// ParsePset parses NAME=RANKS, the argument of `--pset`, such as "solvers=0-3,7". It keeps the
// order of the ranks. Errors are ErrConfig.
func ParsePset(s string) (Pset, error) {
	i := strings.LastIndexByte(s, '=') // Names may contain '='.
	if i < 0 {
		return Pset{}, fmt.Errorf("%w: process set %q: want NAME=RANKS, such as solvers=0-3,7", framework.ErrConfig, s)
	}
	p := Pset{Name: strings.TrimSpace(s[:i])}
	if err := p.checkName(); err != nil {
		return Pset{}, err
	}
	ranks, err := wire.ParseRanks(s[i+1:])
	if err != nil {
		return Pset{}, fmt.Errorf("%w: process set %q: %w", framework.ErrConfig, p.Name, err)
	}
	p.Ranks = ranks
	return p, nil
}

func (p Pset) checkName() error {
	switch {
	case p.Name == "":
		return fmt.Errorf("%w: a process set needs a name", framework.ErrConfig)
	case len(p.Name) > bootstrap.MaxName:
		return fmt.Errorf("%w: the name of a process set has %d bytes, the limit is %d", framework.ErrConfig, len(p.Name), bootstrap.MaxName)
	case bootstrap.IsReserved(p.Name):
		return fmt.Errorf("%w: process set %q: names with mpi://, mpix:// and ferry:// are reserved", framework.ErrConfig, p.Name)
	}
	return nil
}

func (p Pset) check(size int) error {
	if err := p.checkName(); err != nil {
		return err
	}
	seen := map[uint32]bool{}
	for _, r := range p.Ranks {
		if r >= uint32(size) {
			return fmt.Errorf("%w: process set %q: rank %d is beyond the job's %d processes", framework.ErrConfig, p.Name, r, size)
		}
		if seen[r] {
			return fmt.Errorf("%w: process set %q: rank %d is listed twice", framework.ErrConfig, p.Name, r)
		}
		seen[r] = true
	}
	return nil
}
