package host

import (
	"errors"
	"fmt"
	"time"
)

// life decides when a plugin that has ended is started again. It is pure: module.keep does
// what it says, and tells it what became of that.
type life struct {
	restarts int // how often it may be started again
	used     int // how often it was
	state    state
	why      error // how it ended the last time, or why it didn't start
	pause    time.Duration
}

type state uint8

const (
	running state = iota
	waiting       // for the pause to be over
	starting
	over // it is not started any more
)

// Pauses grow, so that a plugin that dies at once does not take the processor from the rank.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 10 * time.Second
)

// errRefused is wrapped by the error of a start that did not come to executing anything,
// because of what the file is. It is not tried again: somebody has changed the file.
var errRefused = errors.New("the file is refused")

// ended says that the plugin has ended, or has not started, and why. It returns how long to
// wait before it is started again, or false if it isn't.
func (l *life) ended(why error) (pause time.Duration, again bool) {
	l.why = why
	if l.state == over || errors.Is(why, errRefused) || l.used == l.restarts {
		l.state = over
		return 0, false
	}
	l.pause = min(firstPause<<min(l.used, 16), longestPause)
	l.state = waiting
	l.used++
	return l.pause, true
}

// begins says that the pause is over.
func (l *life) begins() {
	if l.state == waiting {
		l.state = starting
	}
}

// started says that its transport is open again.
func (l *life) started() {
	if l.state == starting {
		l.state = running
	}
}

// close says that the module closes.
func (l *life) close() { l.state = over }

// down says why the plugin moves nothing, and what becomes of it; nil: it runs.
func (l *life) down() error {
	var next string
	switch l.state {
	case running:
		return nil
	case waiting:
		next = fmt.Sprintf("it is started again after %v, %d of %d times", l.pause, l.used, l.restarts)
	case starting:
		next = fmt.Sprintf("it is being started again, %d of %d times", l.used, l.restarts)
	case over:
		next = "it is not started again"
		if l.restarts > 0 && l.used == l.restarts {
			next += fmt.Sprintf(", as %d times is the most (restarts)", l.restarts)
		}
	}
	if l.why == nil {
		return errors.New("the plugin is closed")
	}
	return fmt.Errorf("%w; %s", l.why, next)
}
