package framework

import (
	"fmt"
	"time"
)

// Status is the outcome for one component. The differences matter to the user:
// each asks for another remedy.
type Status uint8

const (
	StatusUsable      Status = iota // Probe found nothing against it
	StatusSelected                  // selection took it
	StatusNotSelected               // chosen against: by list (then it was not probed), or usable and by priority
	StatusUnavailable               // compiled in, but the machine lacks something
	StatusNotBuilt                  // known by name, but not compiled into this program
	StatusFailed                    // it was taken, and then its Open or self-test failed
)

var statusNames = [...]string{"usable", "selected", "not selected", "unavailable", "not built", "failed"}

// String returns the words that `ferry info` and `ferry explain` print.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// A Verdict says what became of one component, and why. Selection records one
// for each component it knows; `ferry explain` prints these and nothing else.
type Verdict struct {
	Kind     Kind
	Name     string
	Priority int
	Status   Status
	Reason   string // why; empty only for StatusUsable and StatusSelected
	Hint     string // what the user can do about it; may be empty
	// Network names the hardware of a network that a usable MTL finds on this machine, such
	// as "mlx5_0"; empty: none, or only plain interfaces. See Registry.Spread.
	Network string
	// Suits says that this MTL serves that hardware better than others do: it comes before them,
	// whatever the priorities, unless a list says in which order.
	Suits bool

	Took time.Duration // by its probe; 0 if it was not probed
}

// Usable is the verdict of a Probe that found nothing against the component.
func Usable() Verdict { return Verdict{Status: StatusUsable} }

// Unavailable is the verdict of a Probe that found something missing.
func Unavailable(reason, hint string) Verdict {
	return Verdict{Status: StatusUnavailable, Reason: reason, Hint: hint}
}

func (v Verdict) String() string {
	return fmt.Sprintf("%s %s: %s", v.Kind, v.Name, v.Status) + v.because()
}

// Rejection is the verdict of a component that is not open.
func (v Verdict) Rejection() Rejection { return Rejection{v.Name, v.Status.String() + v.because()} }

// describe is String in an error about components of one kind.
func (v Verdict) describe() string {
	if v.Status == StatusFailed {
		return v.Name + " failed" + v.because()
	}
	return fmt.Sprintf("%s is %s", v.Name, v.Status) + v.because()
}

func (v Verdict) because() string {
	if why := v.Why(); why != "" {
		return ": " + why
	}
	return ""
}

// Why is the reason, with the hint behind it.
func (v Verdict) Why() string {
	if v.Hint == "" {
		return v.Reason
	}
	return v.Reason + " (" + v.Hint + ")"
}
