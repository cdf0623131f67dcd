// Package jobs is `ferry ps` and `ferry resize`, which list and change the running jobs of this
// user. They stand on package launch for the directories of jobs, and on package control for the
// connection with one, and start no process.
package jobs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap/local/control"
	"github.com/ferrympi/ferry/cmd/ferry/internal/launch"
)

// answerTimeout is the time that a job has to report its status.
const answerTimeout = time.Second

// The states of a Job.
const (
	running     = "running"
	ending      = "ending"
	unavailable = "unavailable" // Job.Reason has the reason.
)

// A Job is one running job, as --json prints it.
type Job struct {
	// Of `ferry run`; 0: not known.
	PID    int    `json:"pid"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	control.Status
}

// list returns the running jobs of this user, by process id.
func list(ctx context.Context) []Job {
	dirs := launch.Running()
	found := make([]*Job, len(dirs))
	var all sync.WaitGroup
	for i, dir := range dirs {
		all.Go(func() { found[i] = inspect(ctx, dir) })
	}
	all.Wait()
	jobs := []Job{}
	for _, j := range found {
		if j != nil {
			jobs = append(jobs, *j)
		}
	}
	slices.SortFunc(jobs, func(a, b Job) int { return a.PID - b.PID })
	// One directory may have two names.
	return slices.CompactFunc(jobs, func(a, b Job) bool { return a.PID == b.PID && a.PID != 0 })
}

// inspect returns the job of a directory, or nil if it has ended.
func inspect(ctx context.Context, dir string) *Job {
	c, err := control.Dial(dir)
	if errors.Is(err, control.ErrGone) {
		return nil
	}
	if err != nil {
		return &Job{State: unavailable, Reason: err.Error()}
	}
	defer c.Close()
	j := &Job{PID: c.PID(), State: running}
	j.Status, err = statusOf(ctx, c)
	switch {
	case errors.Is(err, control.ErrGone):
		return nil
	case err != nil:
		j.State, j.Reason = unavailable, err.Error()
	case j.IsEnding:
		j.State = ending
	}
	return j
}

// statusOf returns the status of a job that answers in time.
func statusOf(ctx context.Context, c *control.Conn) (control.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return c.Status(ctx)
}
