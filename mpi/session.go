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
	ThreadSingle     ThreadLevel = iota + 1 // one goroutine
	ThreadFunneled                          // only the one that opened the session calls
	ThreadSerialized                        // any, one at a time
	ThreadMultiple                          // any, at any time
)

// Session is one use of ferry by a part of a program: a local handle with a
// configuration, from which groups and communicators come (MPI-4.1 chapter 11).
// Its methods may be called concurrently.
type Session struct {
	engine *process
	values *framework.Values
	level  ThreadLevel
	params core.Session

	buffered buffered
	asyncs   asyncs
	number   int64   // Of the sessions of this operating-system process.
	stream   *Stream // Stream of an internal session; nil if a program has opened it.

	mu      sync.Mutex
	streams []*Stream
	// streamErrs are errors of streams that have ended.
	streamErrs []error
	comms      int           // open, or being made
	memories   int           // open
	ending     int           // communicators that are closed, and have collectives under way
	ended      chan struct{} // closed when there is none
	closed     bool
}

// A SessionOption changes what OpenSession does.
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

// WithParam sets a parameter (see `ferry info --all`), and wins over files,
// environment and flags. A parameter of process scope that differs from what the
// first open session had is ErrConfig.
func WithParam(name, value string) SessionOption {
	return func(o *sessionOptions) {
		o.assembly.Settings = append(o.assembly.Settings, framework.Setting{Name: name, Value: value, Source: "WithParam"})
	}
}

// WithLogger has the library log to l, whose handler decides what is shown. What a component
// says has an attribute component ("btl.shm"). Without a logger, warnings go to standard error,
// or what the parameters log and log.file say. The logger of the first open session gets what
// concerns the process.
func WithLogger(l *slog.Logger) SessionOption {
	return func(o *sessionOptions) { o.assembly.Logger = l }
}

// WithRegistry replaces the components that are compiled in. r isn't changed.
// Sessions that are open at the same time share one registry: a later session
// may leave the option out, but not name another one.
func WithRegistry(r *framework.Registry) SessionOption {
	return func(o *sessionOptions) { o.assembly.Registry = r }
}

// WithBootstrap uses an open client in place of the one that would be selected.
// It stays the caller's, who closes it after the last session is closed. Sessions
// over different clients have nothing in common: so goroutines of one program can be
// processes of a job, each with a client of its own. A session without the option
// joins those that are open, if they all have one client.
func WithBootstrap(c bootstrap.Client) SessionOption {
	return func(o *sessionOptions) { o.client = c }
}

// WithHooks has h see what happens in the process: sends, receives, matches,
// control frames, transports coming and going. pml.Hooks says what h may do. It sees
// collective operations too if it has the method of CollectiveHooks.
// Without hooks each event costs one branch. As with WithRegistry, sessions that
// are open at the same time share them.
func WithHooks(h pml.Hooks) SessionOption {
	return func(o *sessionOptions) { o.assembly.Hooks = h }
}

// OpenSession opens a session (MPI_Session_init). It is local: nothing is sent
// to any process, and no other process need do the same. The first session
// reads the configuration and selects the transports; ErrConfig says what is
// wrong there, ErrTransport that the launcher can't be reached. ctx bounds the
// call only.
func OpenSession(ctx context.Context, opts ...SessionOption) (*Session, error) {
	o := sessionOptions{level: ThreadMultiple}
	for _, opt := range opts {
		opt(&o)
	}
	if o.level < ThreadSingle || o.level > ThreadMultiple {
		return nil, fmt.Errorf("%w: thread level %d is none of ThreadSingle to ThreadMultiple", ErrConfig, int(o.level))
	}
	if over(ctx) {
		return nil, ended(ctx, "open session", context.Cause(ctx))
	}
	ctx = background(ctx)
	e, values, err := acquire(ctx, o.client, o.assembly)
	if err != nil {
		return nil, ended(ctx, "open session", err)
	}
	s := &Session{engine: e, values: values, level: o.level, number: sessionNumbers.Add(1)}
	if err := values.Decode("session", &s.params); err != nil {
		release(e, 0)
		return nil, err
	}
	return s, nil
}

// Close ends the session (MPI_Session_finalize). It is local. The last session
// to close waits, for at most session.linger, until every accepted send has left
// this process, those of Bsend included, then frees everything; ErrTimeout says
// that some did not. It waits as long for collectives of communicators that are closed.
// ErrPending means that those are under way yet, or that communicators or Memory are open;
// the session then stays as it is. A second Close is ErrClosed, and so is Close as a deferred call
// while a panic from within a call of ferry ends the program. In a process that was reported dead, Close also
// closes the communicators of the session, except those of goroutine ranks.
func (s *Session) Close() error {
	if err := s.engine.progress.Check(); err != nil {
		return err
	}
	if s.engine.isReportedDead() {
		s.closeComms()
	}
	s.awaitEnding()
	open := ""
	for _, st := range s.openStreams() {
		st.own.awaitEnding()
		open += st.pendingComms()
	}
	streams, err := s.beginClose(open)
	if err != nil {
		return err
	}
	for _, st := range streams {
		<-st.ended
	}
	s.mu.Lock()
	err = errors.Join(s.streamErrs...)
	s.mu.Unlock()
	s.asyncs.end()
	s.buffered.close()
	return errors.Join(err, release(s.engine, s.params.Linger))
}

// awaitEnding waits for at most session.linger for the collectives of closed communicators.
func (s *Session) awaitEnding() {
	s.mu.Lock()
	ended, any := s.ended, s.ending > 0
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
	if s.closed {
		return nil, closedSession()
	}
	for _, st := range s.streams {
		st.own.mu.Lock()
		defer st.own.mu.Unlock()
		if own := st.own.pending(); own != "" && open == "" {
			open = fmt.Sprintf("; %v has %s", st, own)
		}
	}
	if own := s.pending(); own != "" || open != "" {
		return nil, fmt.Errorf("%w: first close what the session has open: %s", ErrPending, strings.TrimPrefix(own+open, "; "))
	}
	s.closed = true
	for _, st := range s.streams {
		st.startEnd()
		close(st.hurry)
	}
	return slices.Clone(s.streams), nil
}

// closeComms closes the open communicators of processes.
func (s *Session) closeComms() {
	for _, c := range s.engine.open() {
		if c.session == s && c.seat == nil {
			_ = c.Close() // ErrClosed: another goroutine has closed it.
		}
	}
	for _, st := range s.openStreams() {
		st.own.closeComms()
	}
}

// ends counts communicators that are closed, and have collectives under way.
func (s *Session) ends(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending == 0 {
		s.ended = make(chan struct{})
	}
	if s.ending += n; s.ending == 0 {
		close(s.ended)
		if s.stream != nil {
			s.stream.endUnused()
		}
	}
}

func closedSession() error { return fmt.Errorf("%w: the session is closed", ErrClosed) }

// hold keeps the session open: comms or memories count what is open, or is about to
// be made. drop takes it back.
func (s *Session) hold(count *int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return closedSession()
	}
	*count++
	return nil
}

func (s *Session) drop(count *int) {
	s.mu.Lock()
	*count--
	if s.stream != nil {
		s.stream.endUnused()
	}
	s.mu.Unlock()
}

// enter is the check of calls that need an open session.
func (s *Session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return closedSession()
	}
	return nil
}

// ThreadLevel returns the level that the session was opened with.
func (s *Session) ThreadLevel() ThreadLevel { return s.level }

// PsetInfo describes a process set (MPI-4.1 section 11.3.2).
type PsetInfo struct {
	Name     string
	Size     int
	Included bool // the caller is a member
	Dynamic  bool // the set came to be after the job started
}

// Psets returns the names of the process sets. The first are mpi://WORLD, mpi://SELF, mpix://SHARED (the processes of this
// node) and mpix://ROOTS (the process of the lowest rank of each node). SHARED and ROOTS are missing if the launcher
// does not name the processes of the nodes. Names are compared without regard to case.
func (s *Session) Psets(ctx context.Context) ([]string, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	if over(ctx) {
		return nil, ended(ctx, "process sets", context.Cause(ctx))
	}
	ctx, cancel := s.engine.Bound(background(ctx))
	defer cancel()
	id, err := s.withNodes(ctx)
	if err != nil {
		return nil, err
	}
	builtin := id.Psets()
	source, ok := framework.As[bootstrap.PsetSource](s.engine.Client())
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
	id := s.engine.identity
	var err error
	id.Nodes, err = bootstrap.NodeMapOf(ctx, s.engine.Client())
	return id, ended(ctx, "map of the nodes", err)
}

// PsetInfo describes the process set of that name. ErrPset says which exist.
func (s *Session) PsetInfo(ctx context.Context, name string) (PsetInfo, error) {
	found, err := s.pset(ctx, name)
	if err != nil {
		return PsetInfo{}, err
	}
	return PsetInfo{
		Name: found.Name, Size: found.Members.Len(), Dynamic: found.Dynamic,
		Included: found.Members.Index(s.engine.identity.Proc) >= 0,
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
	if over(ctx) {
		return bootstrap.PsetInfo{}, ended(ctx, "process set", context.Cause(ctx))
	}
	ctx, cancel := s.engine.Bound(background(ctx))
	defer cancel()
	id := s.engine.identity
	if strings.EqualFold(name, bootstrap.PsetRoots) {
		var err error
		if id, err = s.withNodes(ctx); err != nil {
			return bootstrap.PsetInfo{}, err
		}
	}
	if found, ok, err := bootstrap.BuiltinPset(id, name); ok {
		return found, err
	}
	source, ok := framework.As[bootstrap.PsetSource](s.engine.Client())
	if !ok {
		names := id.Psets()
		return bootstrap.PsetInfo{}, fmt.Errorf("%w: %q; the nearest is %s; the sets are %s", ErrPset, name,
			framework.Nearest(name, names), strings.Join(names, ", "))
	}
	found, err := source.Pset(ctx, name)
	return found, ended(ctx, "process set", err)
}

// Explanation says what carries messages from this process, and why. Its JSON
// is what `ferry explain --json` prints.
type Explanation = assembly.Explanation

// Pair is how messages from one process to another travel.
type Pair = assembly.Pair

// Rejection is a transport that does not serve a pair, and why.
type Rejection = framework.Rejection

// ComponentVerdict is what became of a component.
type ComponentVerdict = assembly.ComponentVerdict

// CollectiveChoice is what an operation does on communicators of so many members, from a
// size on.
type CollectiveChoice = assembly.Collective

// Explain says which components were selected and why not the others, and how
// messages to each known process travel, or would. It sends nothing.
func (s *Session) Explain(ctx context.Context) (*Explanation, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	if over(ctx) {
		return nil, ended(ctx, "explain", context.Cause(ctx))
	}
	return s.engine.Explain(), nil
}
