package mpi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/components/core"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// ThreadLevel is how a program promises to use a session (MPI-4.1 section
// 11.6). ferry serves every level like ThreadMultiple.
type ThreadLevel int

// The thread levels, from the strictest promise to none.
const (
	ThreadSingle     ThreadLevel = iota + 1 // One goroutine calls the library.
	ThreadFunneled                          // Only the goroutine that has opened the session calls the library.
	ThreadSerialized                        // Any goroutine calls, one at a time.
	ThreadMultiple                          // Any goroutine calls, at any time.
)

// Session is the use of ferry by a part of a program. It is a local handle with a configuration, and the origin of groups and communicators (MPI-4.1
// chapter 11). Its methods may be called concurrently.
type Session struct {
	process     *process
	paramValues *framework.Values
	level       ThreadLevel
	params      core.Session

	buffered buffered
	asyncs   asyncs
	// Of the sessions of this operating-system process.
	number int64
	// Stream of an internal session; nil if a program has opened it.
	ownerStream *Stream

	mu      sync.Mutex
	streams []*Stream
	// streamErrs are errors of streams that have ended.
	streamErrs []error
	// Open or being created.
	commCount   int
	memoryCount int // Of open ones.
	// Closed communicators with collectives in progress.
	endingComms int
	// Closed when endingComms becomes 0.
	commsEnded chan struct{}
	isClosed   bool
}

// A SessionOption is an option of OpenSession.
type SessionOption func(*sessionOptions)

type sessionOptions struct {
	level    ThreadLevel
	client   bootstrap.Client
	assembly assembly.Options
}

// WithThreadLevel promises a thread level; without it there is no promise
// (ThreadMultiple).
func WithThreadLevel(level ThreadLevel) SessionOption {
	return func(o *sessionOptions) { o.level = level }
}

// WithParam sets a parameter (see `ferry info --all`). It takes precedence over files, environment and flags. A parameter of process scope with another
// value than in the first open session is ErrConfig.
func WithParam(name, value string) SessionOption {
	return func(o *sessionOptions) {
		o.assembly.Settings = append(o.assembly.Settings, framework.Setting{Name: name, Value: value, Source: "WithParam"})
	}
}

// WithLogger sets the logger of the session. Its handler selects the records. Records of components have the attribute component, for example
// "btl.shm". Without a logger, warnings go to standard error, unless the parameters log and log.file are set. Records about the whole process go to
// the logger of the first open session.
func WithLogger(l *slog.Logger) SessionOption {
	return func(o *sessionOptions) { o.assembly.Logger = l }
}

// WithRegistry replaces the built-in components. OpenSession does not change r. Sessions that are open at the same time share one registry. A later
// session may omit the option, but not pass another registry.
func WithRegistry(r *framework.Registry) SessionOption {
	return func(o *sessionOptions) { o.assembly.Registry = r }
}

// WithBootstrap uses an open client instead of the selected bootstrap. The caller closes it after the last session is closed. Sessions over different
// clients are separate processes of the job, so that goroutines of one program can be such processes with a client each. A session without the option
// joins the open ones if all of them have one client.
func WithBootstrap(c bootstrap.Client) SessionOption {
	return func(o *sessionOptions) { o.client = c }
}

// WithHooks sets hooks for events of the process, which are sends, receives, matches, control frames, and the opening and closing of transports. pml.Hooks
// has the rules for h. If h implements CollectiveHooks, it also gets collective operations. Without hooks each event costs one branch. Like the
// registry, the hooks are shared by sessions that are open at the same time.
func WithHooks(h pml.Hooks) SessionOption {
	return func(o *sessionOptions) { o.assembly.Hooks = h }
}

// OpenSession opens a session (MPI_Session_init). It is local. It sends no message, and does not require other processes to open one. The first session
// reads the configuration and selects the transports. Errors are ErrConfig for the configuration, and ErrTransport if the launcher cannot be reached.
// ctx limits only the call.
func OpenSession(ctx context.Context, opts ...SessionOption) (*Session, error) {
	o := sessionOptions{level: ThreadMultiple}
	for _, opt := range opts {
		opt(&o)
	}
	if o.level < ThreadSingle || o.level > ThreadMultiple {
		return nil, fmt.Errorf("%w: thread level %d is none of ThreadSingle to ThreadMultiple", ErrConfig, int(o.level))
	}
	if hasEnded(ctx) {
		return nil, ended(ctx, "open session", context.Cause(ctx))
	}
	ctx = background(ctx)
	e, values, err := acquire(ctx, o.client, o.assembly)
	if err != nil {
		return nil, ended(ctx, "open session", err)
	}
	s := &Session{process: e, paramValues: values, level: o.level, number: sessionNumbers.Add(1)}
	if err := values.Decode("session", &s.params); err != nil {
		release(e, 0)
		return nil, err
	}
	return s, nil
}

// Close closes the session (MPI_Session_finalize). It is local. The last session to close waits until every accepted send has left this process, including
// those of Bsend, and until the collectives of closed communicators are complete, for at most session.linger. Then it frees all resources. It returns
// ErrTimeout if sends have not left. It returns ErrPending if such collectives are still in progress, or if communicators or Memory are open. The
// session then stays open. A second Close returns ErrClosed, and so does a deferred Close during a panic from within a call of this package. In a
// process that was reported as failed, Close also closes the communicators of the session, except those of goroutine ranks.
func (s *Session) Close() error {
	if err := s.process.engine.Check(); err != nil {
		return err
	}
	if s.process.isReportedDead() {
		s.closeComms()
	}
	s.awaitEnding()
	open := ""
	for _, st := range s.openStreams() {
		st.commSession.awaitEnding()
		open += st.pendingComms()
	}
	streams, err := s.beginClose(open)
	if err != nil {
		return err
	}
	for _, st := range streams {
		<-st.endDone
	}
	s.mu.Lock()
	err = errors.Join(s.streamErrs...)
	s.mu.Unlock()
	s.asyncs.end()
	s.buffered.close()
	return errors.Join(err, release(s.process, s.params.Linger))
}

// awaitEnding waits for at most session.linger for the collectives of closed communicators.
func (s *Session) awaitEnding() {
	s.mu.Lock()
	ended, any := s.commsEnded, s.endingComms > 0
	s.mu.Unlock()
	if !any {
		return
	}
	select {
	case <-ended:
	case <-time.After(s.params.Linger):
	}
}

// beginClose closes the session for further use, and starts the ends of its streams, which it returns. open has the names of the
// streams' open communicators.
func (s *Session) beginClose(open string) ([]*Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return nil, closedSession()
	}
	for _, st := range s.streams {
		st.commSession.mu.Lock()
		defer st.commSession.mu.Unlock()
		if own := st.commSession.pending(); own != "" && open == "" {
			open = fmt.Sprintf("; %v has %s", st, own)
		}
	}
	if own := s.pending(); own != "" || open != "" {
		return nil, fmt.Errorf("%w: the session has open resources; close them first: %s", ErrPending, strings.TrimPrefix(own+open, "; "))
	}
	s.isClosed = true
	for _, st := range s.streams {
		st.startEnd()
		close(st.sessionClosing)
	}
	return slices.Clone(s.streams), nil
}

// closeComms closes the open communicators of processes.
func (s *Session) closeComms() {
	for _, c := range s.process.open() {
		if c.session == s && c.threadRank == nil {
			_ = c.Close() // ErrClosed: another goroutine has closed it.
		}
	}
	for _, st := range s.openStreams() {
		st.commSession.closeComms()
	}
}

// ends counts closed communicators with collectives in progress.
func (s *Session) ends(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endingComms == 0 {
		s.commsEnded = make(chan struct{})
	}
	if s.endingComms += n; s.endingComms == 0 {
		close(s.commsEnded)
		if s.ownerStream != nil {
			s.ownerStream.endUnused()
		}
	}
}

func closedSession() error { return fmt.Errorf("%w: the session is closed", ErrClosed) }

// hold keeps the session open. count is the number of open communicators or memories, or of those being created. drop is the reverse.
func (s *Session) hold(count *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return closedSession()
	}
	*count++
	return nil
}

func (s *Session) drop(count *int) {
	s.mu.Lock()
	*count--
	if s.ownerStream != nil {
		s.ownerStream.endUnused()
	}
	s.mu.Unlock()
}

// enter is the check of calls that need an open session.
func (s *Session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed {
		return closedSession()
	}
	return nil
}

// ThreadLevel returns the level that the session was opened with.
func (s *Session) ThreadLevel() ThreadLevel { return s.level }

// PsetInfo describes a process set (MPI-4.1 section 11.3.2).
type PsetInfo struct {
	Name string
	Size int
	// The caller is a member.
	Included bool
	// The set was created after the start of the job.
	Dynamic bool
}

// Psets returns the names of the process sets. The first are mpi://WORLD, mpi://SELF, mpix://SHARED (the processes of this
// node) and mpix://ROOTS (the process of the lowest rank of each node). SHARED and ROOTS are missing if the launcher
// does not name the processes of the nodes. Names are compared without regard to case.
func (s *Session) Psets(ctx context.Context) ([]string, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	if hasEnded(ctx) {
		return nil, ended(ctx, "process sets", context.Cause(ctx))
	}
	ctx, cancel := s.process.Bound(background(ctx))
	defer cancel()
	id, err := s.withNodes(ctx)
	if err != nil {
		return nil, err
	}
	builtin := id.Psets()
	source, ok := framework.As[bootstrap.PsetSource](s.process.Client())
	if !ok {
		return builtin, nil
	}
	names, err := source.Psets(ctx)
	if err != nil {
		return nil, ended(ctx, "process sets", err)
	}
	return append(builtin, names...), nil
}

// withNodes returns the identity with the map of the nodes, if the launcher has one.
func (s *Session) withNodes(ctx context.Context) (bootstrap.Identity, error) {
	id := s.process.identity
	var err error
	id.Nodes, err = bootstrap.NodeMapOf(ctx, s.process.Client())
	return id, ended(ctx, "map of the nodes", err)
}

// PsetInfo returns the description of a process set. The error is ErrPset with the existing names for an unknown name.
func (s *Session) PsetInfo(ctx context.Context, name string) (PsetInfo, error) {
	found, err := s.pset(ctx, name)
	if err != nil {
		return PsetInfo{}, err
	}
	return PsetInfo{
		Name: found.Name, Size: found.Members.Len(), Dynamic: found.Dynamic,
		Included: found.Members.Index(s.process.identity.Proc) >= 0,
	}, nil
}

// Group returns the group of a process set (MPI_Group_from_session_pset). The
// caller need not be a member. The error of an unknown set is ErrPset and lists the sets. ErrPset is also that of
// mpix://SHARED and mpix://ROOTS if the launcher does not name the processes of this node, or of all nodes.
func (s *Session) Group(ctx context.Context, pset string) (*Group, error) {
	found, err := s.pset(ctx, pset)
	if err != nil {
		return nil, err
	}
	return newGroup(s, found.Members), nil
}

func (s *Session) pset(ctx context.Context, name string) (bootstrap.PsetInfo, error) {
	if err := s.enter(); err != nil {
		return bootstrap.PsetInfo{}, err
	}
	if hasEnded(ctx) {
		return bootstrap.PsetInfo{}, ended(ctx, "process set", context.Cause(ctx))
	}
	ctx, cancel := s.process.Bound(background(ctx))
	defer cancel()
	id := s.process.identity
	if strings.EqualFold(name, bootstrap.PsetRoots) {
		var err error
		if id, err = s.withNodes(ctx); err != nil {
			return bootstrap.PsetInfo{}, err
		}
	}
	if found, ok, err := bootstrap.BuiltinPset(id, name); ok {
		return found, err
	}
	source, ok := framework.As[bootstrap.PsetSource](s.process.Client())
	if !ok {
		names := id.Psets()
		return bootstrap.PsetInfo{}, fmt.Errorf("%w: %q; the nearest is %s; the sets are %s", ErrPset, name,
			framework.Nearest(name, names), strings.Join(names, ", "))
	}
	found, err := source.Pset(ctx, name)
	return found, ended(ctx, "process set", err)
}

// Explanation reports the transport of each pair of processes with the reasons. `ferry explain --json` prints it as JSON.
type Explanation = assembly.Explanation

// Pair is how messages from one process to another travel.
type Pair = assembly.Pair

// Rejection is a transport that does not serve a pair, and why.
type Rejection = framework.Rejection

// ComponentVerdict is the verdict on a component.
type ComponentVerdict = assembly.ComponentVerdict

// CollectiveChoice is the algorithm of an operation on communicators of a number of members, from a size on.
type CollectiveChoice = assembly.Collective

// Explain returns the verdict on each component, and the route of messages to each known process. It sends nothing.
func (s *Session) Explain(ctx context.Context) (*Explanation, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	if hasEnded(ctx) {
		return nil, ended(ctx, "explain", context.Cause(ctx))
	}
	return s.process.Explain(), nil
}
