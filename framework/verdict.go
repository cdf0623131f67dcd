package framework

import (
	"fmt"
	"time"
)

// Status is the result for one component. Each has another remedy for users.
type Status uint8

const (
	StatusUsable Status = iota // Probe has found no obstacle.
	StatusSelected
	StatusNotSelected // Excluded by a list and not probed, or usable with a lower priority.
	StatusUnavailable // Compiled in, but the machine lacks something.
	StatusNotBuilt    // Known by name, but not compiled into this program.
	StatusFailed      // Selected, but Open or the self-test failed.
)

var statusNames = [...]string{"usable", "selected", "not selected", "unavailable", "not built", "failed"}

// String returns the text that `ferry info` and `ferry explain` print.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// A Verdict is the status of a component and its reason. Selection records one for each known component, and `ferry explain` prints them.
type Verdict struct {
	Kind     Kind
	Name     string
	Priority int
	Status   Status
	// Empty only for StatusUsable and StatusSelected.
	Reason string
	// Remedy for the user. May be empty.
	Hint string
	// Network names the network hardware on this machine that a usable MTL has found, for example "mlx5_0". It is empty for plain interfaces.
	// See Registry.PreferNetwork.
	Network string
	// Suits reports that this MTL serves that hardware better than others do. It precedes them regardless of priorities, unless a list has
	// another order.
	Suits bool

	// ProbeTime is the time of the probe, 0 if it was not probed.
	ProbeTime time.Duration
}

// Usable returns the verdict of a Probe without obstacles.
func Usable() Verdict { return Verdict{Status: StatusUsable} }

// Unavailable returns the verdict of a Probe that has found something missing.
func Unavailable(reason, hint string) Verdict {
	return Verdict{Status: StatusUnavailable, Reason: reason, Hint: hint}
}

func (v Verdict) String() string {
	return fmt.Sprintf("%s %s: %s", v.Kind, v.Name, v.Status) + v.reasonClause()
}

// Rejection is the verdict of a component that is not open.
func (v Verdict) Rejection() Rejection {
	return Rejection{v.Name, v.Status.String() + v.reasonClause()}
}

// describe returns the verdict as text in an error about components of one kind.
func (v Verdict) describe() string {
	if v.Status == StatusFailed {
		return v.Name + " failed" + v.reasonClause()
	}
	return fmt.Sprintf("%s is %s", v.Name, v.Status) + v.reasonClause()
}

func (v Verdict) reasonClause() string {
	if why := v.Why(); why != "" {
		return ": " + why
	}
	return ""
}

// Why returns the reason followed by the hint.
func (v Verdict) Why() string {
	if v.Hint == "" {
		return v.Reason
	}
	return v.Reason + " (" + v.Hint + ")"
}
