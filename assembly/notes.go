package assembly

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// maxPendingNotes is the number of notes that wait for the Watcher. Further ones are lost.
const maxPendingNotes = 4096

// CheckNotes returns the reason if this process can send no notes. It is ErrUnsupported if the bootstrap has
// none, ErrTransport if the launcher is lost, and the error of isolation in an isolated process.
func (a *Assembly) CheckNotes() error {
	_, err := a.noter()
	return err
}

// SendNote sends body to an incarnation, as bootstrap.Noter does. It returns at once. The note may be lost. An
// error is one of CheckNotes, or ErrUnsupported for a body that is too long.
func (a *Assembly) SendNote(to framework.Incarnation, body []byte) error {
	noter, err := a.noter()
	if err != nil {
		return err
	}
	proc, nonce, ok := a.processOf(to)
	if !ok {
		return nil // The stream has ended. Notes may be lost.
	}
	return noter.Note(proc, nonce, body)
}

func (a *Assembly) noter() (bootstrap.Noter, error) {
	if a.ownerProcess != nil {
		return a.ownerProcess.noter()
	}
	a.mu.Lock()
	err := a.isolationErr
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	a.upcalls.Lock()
	err = a.upcalls.launcherLossErr
	a.upcalls.Unlock()
	if err != nil {
		return nil, err
	}
	noter, ok := framework.As[bootstrap.Noter](a.client)
	if !ok {
		return nil, fmt.Errorf("bootstrap: %w: the launcher's client (%T) sends no notes", framework.ErrUnsupported, a.client)
	}
	return noter, nil
}

// passNote passes a note to the watcher. upcalls is locked.
func (a *Assembly) passNote(ev bootstrap.Event) {
	u := &a.upcalls
	if a.options.Watcher == nil || u.queuedNotes == maxPendingNotes {
		return
	}
	u.queuedNotes++
	a.enqueue(upcall{receivedNote: &ev})
}

// leave records the incarnations that have closed their sessions, and passes them on. upcalls is locked.
func (a *Assembly) leave(ev bootstrap.Event) {
	for _, incarnation := range append(a.incarnationsOf(ev), a.streamsOf(ev)...) {
		a.leaveOnce(incarnation)
	}
}

// leaveOnce records an incarnation that has closed its session, and passes it on, unless it was recorded before. upcalls is locked.
func (a *Assembly) leaveOnce(incarnation framework.Incarnation) {
	a.mu.Lock()
	_, isKnown := a.leftIncarnations[incarnation]
	if a.leftIncarnations == nil {
		a.leftIncarnations = map[framework.Incarnation]struct{}{}
	}
	a.leftIncarnations[incarnation] = struct{}{}
	a.mu.Unlock()
	if !isKnown {
		a.peerEnded(framework.LeftEvent(incarnation))
	}
}

// Left returns the incarnations that have closed their sessions. The Watcher is notified later of each
// incarnation that the result lacks. An incarnation leaves the list when no communicator has it.
func (a *Assembly) Left() []framework.Incarnation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.leftIncarnations))
}

// ReportFailure enters the failure of an incarnation as if the bootstrap had reported it.
func (a *Assembly) ReportFailure(incarnation framework.Incarnation, reason string) {
	u := &a.upcalls
	u.Lock()
	defer u.Unlock()
	if !u.isClosing {
		a.peerFailed(incarnation, reason)
	}
}

// HasRefused reports whether a wire-up of this process has failed that may have created a
// communicator in other members, or one that is derived from it.
func (a *Assembly) HasRefused(id cid.Extended) bool {
	if a.ownerProcess != nil {
		return a.ownerProcess.HasRefused(id)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.ContainsFunc(a.refusedComms, func(s cid.Span) bool { return s.Has(id) })
}

// IsDisconnected reports whether this process is disconnected from one of these processes until the next wire-up
// with it.
func (a *Assembly) IsDisconnected(group []framework.Proc) bool {
	return len(a.disconnectedMembers(group)) > 0
}
