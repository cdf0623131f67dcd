package mpitest

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/ferrympi/ferry/mpi"
)

// errDied is the error of a rank that has called Die, and the cause of the end of its context.
var errDied = errors.New("the rank has called mpitest.Die")

// Die ends the rank of ctx, as SIGKILL ends a process, for tests of programs that survive failures.
// It does not return. The other members of the rank's communicators get
// mpi.ErrProcFailed. The job continues, with and without Job.Continue, and the death is no failure
// of the test.
//
// Die cancels the rank's context, and ends the calling goroutine as runtime.Goexit does. Deferred
// functions close the communicators of the rank. Sessions of Run and Open that are still open are
// closed after them. Other goroutines of the rank must return when its context ends. With
// Job.Goroutines, all goroutine ranks of the process die.
func Die(ctx context.Context) {
	rankOf(ctx).die()
	runtime.Goexit()
}

// die reports the death of the rank to the others. Later calls have no effect.
func (r *rank) die() {
	if r.hasDied.Swap(true) {
		return
	}
	r.run.logDeath(r.rank)
	// The server reports the death to the others before the paths to them close.
	r.run.server.ProcExited(r.rank, errDied.Error())
	_ = r.client.Close()
	r.end(errDied)
}

// logDeath adds the death of a rank to the log of the test.
func (r *run) logDeath(rank int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, fmt.Sprintf("rank %d: %v", rank, errDied))
}

// addSession records an open session of the rank.
func (r *rank) addSession(s *mpi.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions = append(r.sessions, s)
}

// closeSessions closes the sessions that a rank has left open at its death.
func (r *rank) closeSessions() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		if err := s.Close(); errors.Is(err, mpi.ErrPending) {
			r.run.record(r.rank, fmt.Errorf("after mpitest.Die: %w: close them by deferred functions", err))
		}
	}
}
