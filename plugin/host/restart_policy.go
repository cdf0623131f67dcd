package host

import (
	"errors"
	"fmt"
	"time"
)

// restartPolicy is a state machine that decides on restarts of a plugin. The module reports events to it and performs the restarts.
type restartPolicy struct {
	// Limit of usedRestarts.
	maxRestarts int
	// Number of restarts.
	usedRestarts int
	state        restartState
	// Reason of the last end or failed start.
	lastReason   error
	restartPause time.Duration
}

type restartState uint8

const (
	running restartState = iota
	waiting              // For the end of the pause.
	starting
	final
)

// Pauses grow, so that a plugin that ends at once does not use much processor time.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 10 * time.Second
)

// errRefused is wrapped by the error of a start if the file must not be executed because of its owner, mode or contents. Such a start is final,
// because the file has changed.
var errRefused = errors.New("the file is refused")

// recordEnd records the end of the plugin or a failed start. It returns the pause before the next start, and false if there is none.
func (l *restartPolicy) recordEnd(why error) (pause time.Duration, again bool) {
	l.lastReason = why
	if l.state == final || errors.Is(why, errRefused) || l.usedRestarts == l.maxRestarts {
		l.state = final
		return 0, false
	}
	l.restartPause = min(firstPause<<min(l.usedRestarts, 16), longestPause)
	l.state = waiting
	l.usedRestarts++
	return l.restartPause, true
}

// beginStart records the end of the pause.
func (l *restartPolicy) beginStart() {
	if l.state == waiting {
		l.state = starting
	}
}

// recordStart records that the transport is open again.
func (l *restartPolicy) recordStart() {
	if l.state == starting {
		l.state = running
	}
}

// close records the close of the module.
func (l *restartPolicy) close() { l.state = final }

// downError returns the reason why the plugin carries no messages, with the next step, or nil if it runs.
func (l *restartPolicy) downError() error {
	var next string
	switch l.state {
	case running:
		return nil
	case waiting:
		next = fmt.Sprintf("restart %[2]d of %[3]d follows after %[1]v", l.restartPause, l.usedRestarts, l.maxRestarts)
	case starting:
		next = fmt.Sprintf("restart %d of %d is in progress", l.usedRestarts, l.maxRestarts)
	case final:
		next = "no restart follows"
		if l.maxRestarts > 0 && l.usedRestarts == l.maxRestarts {
			next += fmt.Sprintf("; the limit of %d restarts is reached (restarts)", l.maxRestarts)
		}
	}
	if l.lastReason == nil {
		return errors.New("the plugin is closed")
	}
	return fmt.Errorf("%w; %s", l.lastReason, next)
}
