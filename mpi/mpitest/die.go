package mpitest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mpi"
)

// errDied is the error of a rank that has called Die, and the cause of the end of its context.
var errDied = errors.New("the rank has called mpitest.Die")

// Die ends the rank of ctx, as SIGKILL ends a process, for tests of programs that survive failures.
// It does not return. The other members of the rank's communicators get
// mpi.ErrProcFailed, and the operations of the rank end, too. The job continues, with and without
// Job.Continue, and the test does not fail because of the death.
//
// Die ends the context of the rank, and the calling goroutine as runtime.Goexit does. Deferred
// functions still run. After them, the sessions of Run and Open are closed with their communicators. The
// program closes AllocMem's Memory and thread communicators by deferred functions. Other goroutines of the rank
// must return when the context ends. With Job.Goroutines, all goroutine ranks of the process die.
func Die(ctx context.Context) {
	rankOf(ctx).die()
	runtime.Goexit()
}

// die reports the death of the rank. Later calls have no effect.
func (r *rank) die() {
	if r.hasDied.Swap(true) {
		return
	}
	r.run.logDeath(r.rank)
	r.run.server.ProcExited(r.rank, errDied.Error())
	_ = r.client.Close()
	r.client.reportDead()
	r.endContext(errDied)
}

// logDeath adds the death of a rank to the log of the test.
func (r *run) logDeath(rank int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logLines = append(r.logLines, fmt.Sprintf("rank %d: %v", rank, errDied))
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
			r.run.record(r.rank, fmt.Errorf("after mpitest.Die: %w: close it by deferred functions", err))
		}
	}
}

// client is the bootstrap client of a rank, which can report the rank itself dead.
type client struct {
	bootstrap.Client
	bootstrap.EventSource

	mu sync.Mutex
	// Of the open session; nil if there is none.
	onEvent func(bootstrap.Event)
}

func newClient(dialed bootstrap.Client) *client {
	events, _ := framework.As[bootstrap.EventSource](dialed)
	return &client{Client: dialed, EventSource: events}
}

// Unwrap returns the client of the launcher, for its other capabilities.
func (c *client) Unwrap() any { return c.Client }

// OnEvent implements bootstrap.EventSource.
func (c *client) OnEvent(f func(bootstrap.Event)) {
	c.mu.Lock()
	c.onEvent = f
	c.mu.Unlock()
	c.EventSource.OnEvent(f)
}

// reportDead isolates the rank, so that the close of its sessions sends no message.
func (c *client) reportDead() {
	c.mu.Lock()
	f := c.onEvent
	c.mu.Unlock()
	if f != nil {
		f(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: c.Identity().Proc, Reason: errDied.Error()})
	}
}
