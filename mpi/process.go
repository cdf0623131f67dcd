package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/assembly/pairtable"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/stderr"
	"github.com/ferrympi/ferry/internal/text"
)

// process is the state of the sessions over one bootstrap client, which has an assembly and the state of package mpi. Most programs have one. Tests with
// ranks as goroutines have one for each rank (WithBootstrap, package mpitest).
type process struct {
	*assembly.Assembly
	passedClient    bootstrap.Client // WithBootstrap's, or nil
	rankState                        // Of the process.
	identity        bootstrap.Identity
	pieces          run.Pieces
	transportMemory transportMemory
	// collectiveHooks are the program's, if they see collectives, or nil.
	collectiveHooks CollectiveHooks

	// The fields above are set. Events may come before.
	isOpened atomic.Bool

	// Guarded by processes.mu.
	sessionCount int
	// Not nil while the process opens or closes. Closed at the end of that.
	transitionDone chan struct{}

	// The streams of a process share that of the process.
	*registry
}

// registry has the communicators of a process. Messages do not use it.
type registry struct {
	// Notes that no correct process sends, and those lost from earlyNotes.
	notesDropped atomic.Uint64
	bases        bases

	mu sync.Mutex
	// Open communicators.
	openComms map[cid.EndpointID]*Comm
	// Upper bound of the endpoints in openComms.
	endpointLimit          int
	earlyEvents            earlyEvents
	earlyRevocations       revocations
	activationsByFailureID map[cid.Extended]*activation // By failureID.
	openThreadComms        map[*ThreadComm]struct{}     // Open ones.
	hadThreadComms         bool
	// Of closed thread communicators.
	closedRankStats receivedStats
	shapes          map[shapeKey]*run.Shape
	earlyNotes      earlyNotes
	absence         absence
	spareID         cid.Extended // See drawSpare.
	openStreams     []*Stream
}

// processes are those of the open sessions in this operating-system process, and those that
// open or close at present.
var processes processList

type processList struct {
	mu            sync.Mutex
	openProcesses []*process
}

func (l *processList) remove(e *process) {
	l.openProcesses = slices.DeleteFunc(l.openProcesses, func(x *process) bool { return x == e })
}

// acquire returns the process of a new session, which it opens for the first session, and the values of all parameters for this session. If the first
// session fails, no state remains and the next one tries again.
func acquire(ctx context.Context, client bootstrap.Client, o assembly.Options) (*process, *framework.Values, error) {
	processes.mu.Lock()
	defer processes.mu.Unlock()
	for {
		e, err := sharedProcess(client)
		switch {
		case err != nil:
			return nil, nil, err
		case e == nil:
			return openProcess(ctx, client, o)
		case e.transitionDone == nil:
			values, err := e.Join(o)
			if err != nil {
				return nil, nil, err
			}
			e.sessionCount++
			return e, values, nil
		}
		transitionDone := e.transitionDone
		processes.mu.Unlock()
		select {
		case <-transitionDone:
		case <-ctx.Done():
		}
		processes.mu.Lock()
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
	}
}

// openProcess opens the process of a first session. It releases processes.mu, which the caller holds, while it opens. Ranks that are goroutines open
// concurrently, and a bootstrap may make one wait for the other.
func openProcess(ctx context.Context, client bootstrap.Client, o assembly.Options) (*process, *framework.Values, error) {
	e := &process{passedClient: client, registry: newRegistry(), sessionCount: 1, transitionDone: make(chan struct{})}
	processes.openProcesses = append(processes.openProcesses, e)
	o.Client, o.Watcher = client, e
	if err := e.assemble(ctx, o); err != nil {
		return nil, nil, err
	}
	return e, e.Values(), nil
}

func newRegistry() *registry {
	r := &registry{openComms: map[cid.EndpointID]*Comm{}, endpointLimit: 1, activationsByFailureID: map[cid.Extended]*activation{}, openThreadComms: map[*ThreadComm]struct{}{}}
	r.bases.init()
	return r
}

func (e *process) assemble(ctx context.Context, o assembly.Options) error {
	processes.mu.Unlock()
	var a *assembly.Assembly
	defer func() {
		processes.mu.Lock()
		close(e.transitionDone)
		e.transitionDone = nil
		if a == nil { // It failed, or a component panicked.
			processes.remove(e)
			return
		}
		e.identity = a.Env().Identity
		e.collectiveHooks, _ = framework.As[CollectiveHooks](o.Hooks)
		e.use(a)
	}()
	var err error
	a, err = assembly.Open(ctx, o)
	return err
}

// use completes a process with its assembly.
func (e *process) use(a *assembly.Assembly) {
	e.Assembly = a
	e.rankState.init(a.Env().Engine, &e.pieces)
	e.isOpened.Store(true)
}

// sharedProcess returns the open process that a session with the client, or without a client, joins, or nil if there is none.
func sharedProcess(client bootstrap.Client) (*process, error) {
	for _, e := range processes.openProcesses {
		if assembly.Same(e.passedClient, client) {
			return e, nil
		}
	}
	switch {
	case client != nil || len(processes.openProcesses) == 0:
		return nil, nil
	case len(processes.openProcesses) == 1:
		return processes.openProcesses[0], nil
	}
	return nil, fmt.Errorf("%w: sessions over %d bootstrap clients are open: use WithBootstrap to choose the one for this session", ErrConfig, len(processes.openProcesses))
}

// release ends the use of a process by a session. The last one frees the process, after
// it has waited for accepted sends for at most linger. A session that is opened
// meanwhile over the same client waits for that.
func release(e *process, linger time.Duration) error {
	processes.mu.Lock()
	e.sessionCount--
	if e.sessionCount > 0 {
		processes.mu.Unlock()
		return nil
	}
	e.transitionDone = make(chan struct{})
	processes.mu.Unlock() // Other processes may open and close meanwhile.
	err := e.end(linger)
	processes.mu.Lock()
	close(e.transitionDone)
	processes.remove(e)
	processes.mu.Unlock()
	return err
}

// end frees the process, after it has waited for accepted sends for at most linger.
func (e *process) end(linger time.Duration) error {
	err := e.Drain(linger)
	if e.ExplainsItself() {
		printPairs(e.Explain())
	}
	e.RemoveFromEngine()
	return errors.Join(err, e.Close())
}

// printPairs writes routes to standard error, at once so that no output of other goroutines divides it.
func printPairs(x *assembly.Explanation) {
	var b strings.Builder
	pairtable.Write(&b, text.Width(os.Stderr), x)
	_, _ = stderr.Writer{}.Write([]byte("ferry: routes of the messages of rank 0\n" + text.Printable(b.String(), "\n"))) // The program does not fail with its standard error.
}

// PeerChanged implements assembly.Watcher. All collectives with a failed process as a member end, even if this process waits for
// another member, because the collective of that member has ended. Waits in shared memory end for a process that has left or is unreachable.
func (e *process) PeerChanged(ev framework.PeerEvent) {
	failure, hasFailed := ev.Err.(*framework.PeerFailure)
	for _, c := range e.open() {
		if hasFailed {
			c.memberFailed(ev.Peer, failure.Reason)
		} else {
			c.loseMember(ev)
		}
	}
}

// isReportedDead reports whether the bootstrap has reported this process dead.
func (e *process) isReportedDead() bool {
	self := e.Env().Self
	return slices.ContainsFunc(e.Failed(), func(d assembly.Failure) bool { return d.Incarnation == self })
}

// open returns the open communicators of this process, or of a stream.
func (e *process) open() (all []*Comm) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.openComms {
		if c.session.process == e {
			all = append(all, c)
		}
	}
	return all
}

// earlyEvents are the CommBroken events of communicators that not all ranks of this process have yet. Guarded by
// process.mu.
type earlyEvents struct {
	eventsByID map[cid.Extended]bootstrap.Event
	// The oldest one first.
	idsByAge []cid.Extended
}

// maxBrokenEvents is the number of stored events, which is far above the number of concurrent creations.
const maxBrokenEvents = 4096

// add keeps the first event of a communicator, in place of the oldest event if there are too many.
func (l *earlyEvents) add(id cid.Extended, ev bootstrap.Event) {
	if _, known := l.eventsByID[id]; known {
		return
	}
	if l.eventsByID == nil {
		l.eventsByID = map[cid.Extended]bootstrap.Event{}
	}
	if len(l.idsByAge) == maxBrokenEvents {
		delete(l.eventsByID, l.idsByAge[0])
		l.idsByAge = l.idsByAge[1:]
	}
	l.eventsByID[id] = ev
	l.idsByAge = append(l.idsByAge, id)
}

// CollectivesBroken implements assembly.Watcher. The communicator may not exist here yet, because members create it at different times.
func (e *process) CollectivesBroken(id cid.Extended, by framework.Proc, reason string) {
	e.broken(id, by, reason, nil)
}

// broken is CollectivesBroken for all handles of the communicator in this process but one, which is nil if another process
// has sent the event. For a handle of this process it reports whether it was the first one.
func (e *process) broken(id cid.Extended, by framework.Proc, reason string, except *Comm) (first bool) {
	e.mu.Lock()
	if _, known := e.earlyEvents.eventsByID[id]; known && except != nil { // All others here are notified, or will be.
		e.mu.Unlock()
		return false
	}
	here := slices.DeleteFunc(e.handles(id), func(c *Comm) bool { return c == except })
	run := e.activationsByFailureID[id]
	if run == nil && (len(here) == 0 || here[0].threadRank != nil) {
		e.earlyEvents.add(id, bootstrap.Event{Proc: by, Reason: reason})
	}
	e.mu.Unlock()
	if run != nil {
		run.failedElsewhere(by, reason)
	}
	for _, c := range here {
		c.breakCollectives(by, reason)
	}
	return true
}

// handles returns the open handles of a communicator, by endpoint. e.mu held.
func (e *process) handles(id cid.Extended) (here []*Comm) {
	for endpoint := range e.endpointLimit {
		if c := e.openComms[cid.EndpointID{Extended: id, Endpoint: uint16(endpoint)}]; c != nil {
			here = append(here, c)
		}
	}
	return here
}

// add notifies a new communicator of earlier events, and of all later ones.
func (e *process) add(c *Comm) {
	e.mu.Lock()
	e.openComms[c.key()] = c
	before, broken := e.earlyEvents.eventsByID[c.spec.ID]
	revoked, isRevoked := e.earlyRevocations.take(c)
	notes := e.earlyNotes.take(c.key())
	e.mu.Unlock()
	if isRevoked {
		c.revokedBy(revoked.revokingProc, revoked.stateBits)
	}
	if broken {
		c.breakCollectives(before.Proc, before.Reason)
	}
	for _, d := range e.Failed() {
		c.memberFailed(d.Incarnation, d.Reason)
	}
	for _, n := range notes {
		e.sendNotes(c.receiveNote(n.from, n.header, n.message))
	}
}
