package assembly

import (
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// Death is a failed incarnation of a process, as the bootstrap has reported it.
type Death struct {
	Life   framework.Life
	Reason string
}

// deaths is a list in the order of the reports.
type deaths []Death

// add appends an incarnation. It returns false if it is in the list already.
func (d *deaths) add(life framework.Life, reason string) bool {
	if d.has(life) {
		return false
	}
	*d = append(*d, Death{life, reason})
	return true
}

func (d *deaths) has(life framework.Life) bool {
	return slices.ContainsFunc(*d, func(x Death) bool { return x.Life == life })
}

func (d *deaths) remove(life framework.Life) {
	*d = slices.DeleteFunc(*d, func(x Death) bool { return x.Life == life })
}

// Dead returns the failed incarnations in the order of the bootstrap's reports. The Watcher is
// notified later of each incarnation that the result lacks. An incarnation leaves the list when no communicator has it.
func (a *Assembly) Dead() []Death {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.dead) // nil, or small
}
