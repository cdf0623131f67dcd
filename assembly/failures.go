package assembly

import (
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// ends are the reported ends of incarnations. Guarded by Assembly.mu.
type ends struct {
	failedIncarnations failureList
	leftIncarnations   map[framework.Incarnation]struct{} // See Left.
	// nil if this process is not isolated.
	isolationErr error
}

// Failure is a failed incarnation of a process, as the bootstrap has reported it.
type Failure struct {
	Incarnation framework.Incarnation
	Reason      string
}

// failureList is a list in the order of the reports.
type failureList []Failure

// add appends an incarnation. It returns false if it is in the list already.
func (d *failureList) add(incarnation framework.Incarnation, reason string) bool {
	if d.has(incarnation) {
		return false
	}
	*d = append(*d, Failure{incarnation, reason})
	return true
}

func (d *failureList) has(incarnation framework.Incarnation) bool {
	return slices.ContainsFunc(*d, func(x Failure) bool { return x.Incarnation == incarnation })
}

func (d *failureList) remove(incarnation framework.Incarnation) {
	*d = slices.DeleteFunc(*d, func(x Failure) bool { return x.Incarnation == incarnation })
}

// Failed returns the failed incarnations in the order of the bootstrap's reports. The Watcher is
// notified later of each incarnation that the result lacks. An incarnation leaves the list when no communicator has it.
func (a *Assembly) Failed() []Failure {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.failedIncarnations) // nil or short.
}
