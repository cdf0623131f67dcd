package base

import (
	"errors"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// Proc is what every PML knows of another process, or of its own, in one life.
type Proc struct {
	Life  framework.Life
	Stats pml.PeerStats
	Exit
	// Err says why nothing can be sent to the process any more, and, if it is Gone,
	// that nothing comes of it either. nil: it is present.
	Err error
}

// NewProc returns what is known of a process at first.
func NewProc(life framework.Life) Proc {
	return Proc{Life: life, Stats: pml.PeerStats{Peer: life}}
}

// Process is a PML's own type for a process: it embeds a Proc.
type Process interface {
	comparable
	Known() *Proc
}

// Known implements Process.
func (p *Proc) Known() *Proc { return p }

// End says that nothing comes of the process any more, and why: a *Failed if the
// bootstrap has said so, an error that wraps framework.ErrPeerClosed if it has left in
// good order, or else what has become of the path to it. It reports whether that is
// news: then all that is pending with the process ends.
func (p *Proc) End(err error) bool {
	why := Broken
	if _, died := err.(*Failed); died {
		why = Died
	} else if errors.Is(err, framework.ErrPeerClosed) {
		why = Departed
	}
	if !p.Go(why) {
		return false
	}
	p.Err = err
	return true
}

// Failed is the Err of a process that the bootstrap has reported dead.
type Failed struct{ Reason string }

func (e *Failed) Error() string { return "process failed: " + e.Reason }

// Is reports whether target is framework.ErrProcFailed.
func (e *Failed) Is(target error) bool { return target == framework.ErrProcFailed }

// Explain turns what has become of a process into the error of an operation with the
// member that it is of a communicator.
func Explain(err error, rank int) error {
	if f, ok := err.(*Failed); ok {
		return &framework.ProcFailedError{Ranks: []int{rank}, Cause: f.Reason}
	}
	return err
}
