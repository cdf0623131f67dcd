package mpi

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ferrympi/ferry/assembly"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/coll/run"
	"github.com/ferrympi/ferry/pml"
)

// Stream is a separate communication context (MPIX_Stream). It is a second engine of the process, with its own transports, queues
// and lock. Two goroutines that communicate on two streams share no lock. Several goroutines on one stream are safe. Communicators get a
// stream by Comm.WithStream, and pass it on to those that are made from them.
//
// A stream ends with its last communicator, and without any with its session. If that fails, Session.Close returns the error.
type Stream struct {
	// That of NewStream.
	session *Session
	// That of the stream's communicators, over the stream's engine.
	commSession *Session

	// Whether a communicator was made. Guarded by commSession.mu.
	isUsed bool
	// Whether end is called. Guarded by commSession.mu.
	isEnded bool
	// Closed when the session closes, so that end waits for no pending receives.
	sessionClosing chan struct{}
	// Closed at the return of end.
	endDone chan struct{}
}

// NewStream opens a stream (MPIX_Stream_create). It is local and sends no message. A stream sleeps in its own thread. Its
// transports take the memory and the descriptors of those of a process; docs/threads.md has the numbers.
//
// Errors: ErrClosed after Close of the session; ErrUnsupported if the process has no room for another stream, or if a transport of the process does
// not open again, with the limit. After an error no resource is left open.
func (s *Session) NewStream() (*Stream, error) {
	if err := s.process.engine.Check(); err != nil {
		return nil, err
	}
	if err := s.hold(&s.commCount); err != nil { // During the opening.
		return nil, err
	}
	defer s.drop(&s.commCount)
	e := &process{registry: s.process.registry, passedClient: s.process.passedClient, identity: s.process.identity, collectiveHooks: s.process.collectiveHooks}
	a, err := s.process.OpenStream(context.Background(), e)
	if err != nil {
		return nil, fmt.Errorf("new stream: %w", err)
	}
	e.use(a)
	st := &Stream{session: s, sessionClosing: make(chan struct{}), endDone: make(chan struct{})}
	st.commSession = &Session{process: e, paramValues: s.paramValues, level: s.level, params: s.params, number: s.number, ownerStream: st}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = append(s.streams, st)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.openStreams = append(e.openStreams, st)
	return st, nil
}

// String returns a name of the stream for people: "stream 1". No other open stream of the process has it.
func (st *Stream) String() string { return fmt.Sprintf("stream %d", st.commSession.process.Stream()) }

// WithStream creates a communicator with the same members and another context, over a stream (MPIX_Stream_comm_create). It is
// collective over c. Members may pass different streams, or nil for the engine of the process. Attributes and the topology are not copied. The
// communicators that are made from the new one use the same stream. So do its thread communicators.
//
// The members exchange the cards of their streams over c, which works on afterwards.
//
// Errors in this member only, before anything is sent: ErrConfig for a stream of another session than c's; ErrClosed for a stream that has ended;
// ErrUnsupported for the communicator of a goroutine rank. In all members: ErrUnsupported if their stacks have no PML in common. Others are those of
// Dup. A member that is disconnected from a stream stays disconnected; use a new stream.
func (c *Comm) WithStream(ctx context.Context, stream *Stream) (*Comm, error) {
	if c.threadRank != nil {
		return nil, fmt.Errorf("%w: stream of a goroutine rank's communicator: pass a communicator of processes", ErrUnsupported)
	}
	s, err := c.session.withStream(stream)
	if err != nil {
		return nil, fmt.Errorf("with stream: %w", err)
	}
	if err := s.hold(&s.commCount); err != nil { // During the creation.
		return nil, fmt.Errorf("with stream: %w", s.errEnded(err))
	}
	defer s.drop(&s.commCount)
	defer s.process.HoldPeers()()
	var m assembly.PML
	var spec pml.CommSpec
	var refused error // After the exchange. c works on.
	err = c.collective.Do(ctx, "with stream", 0, func() (err error) {
		m, spec, refused, err = c.wireUpStreams(background(ctx), s)
		return err
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return nil, fmt.Errorf("with stream: %w", err)
	}
	d, err := newComm(s, nil, c.group, m, spec, c.paramValues)
	if err == nil && stream != nil {
		stream.use()
	}
	return d, err
}

// withStream returns the session of a stream's communicators.
func (s *Session) withStream(stream *Stream) (*Session, error) {
	s = s.user()
	if stream == nil {
		return s, nil
	}
	if err := stream.session.enter(); err != nil {
		return nil, fmt.Errorf("%v: %w", stream, err)
	}
	if stream.session != s {
		return nil, fmt.Errorf("%w: %v is of session %d, and the communicator of session %d; use a stream of the communicator's session", ErrConfig, stream, stream.session.number, s.number)
	}
	return stream.commSession, nil
}

// wireUpStreams exchanges the cards of the members' stacks, and decides on the PML and the ids. This member's stack is that of s.
// Called inside State.Do.
func (c *Comm) wireUpStreams(ctx context.Context, s *Session) (m assembly.PML, spec pml.CommSpec, refused, err error) {
	policy, err := policyOf(c.paramValues)
	if err != nil {
		return m, spec, nil, err
	}
	e := s.process
	numbers, err := c.gatherBounded(ctx, "stream number", e.Stream(), assembly.MostStreams)
	if err != nil {
		return m, spec, nil, err
	}
	nonces, err := c.gatherNumbers(ctx, int64(e.Nonce()))
	if err != nil {
		return m, spec, nil, err
	}
	ids, err := c.derive(ctx, c.takeLastDup(), 1)
	if err != nil {
		return m, spec, nil, err
	}
	g := assembly.StreamGroup{Rank: c.rank, ID: ids[0], Policy: policy}
	for rank, p := range c.group.members.all() {
		g.Members = append(g.Members, assembly.StreamMember{Process: p.Proc, ProcessNonce: uint64(nonces[rank]), StreamNumber: int(numbers[rank])})
	}
	exchanged := false
	g.Exchange = func(ctx context.Context, own []byte) (all [][]byte, err error) {
		all, err = c.gatherBytes(ctx, own)
		exchanged = err == nil
		return all, err
	}
	if m, spec, err = e.WireUpStreams(ctx, &g); exchanged {
		refused, err = err, nil
	}
	return m, spec, refused, err
}

// gatherBounded returns every member's number. A number that is not 0 to most is ErrTransport. Called inside State.Do.
func (c *Comm) gatherBounded(ctx context.Context, what string, mine, most int) ([]int64, error) {
	all, err := c.gatherNumbers(ctx, int64(mine))
	for rank, n := range all {
		if err == nil && (n < 0 || n > int64(most)) {
			err = fmt.Errorf("%w: rank %d has sent %s %d; want 0 to %d", ErrTransport, rank, what, n, most)
		}
	}
	return all, err
}

// gatherBytes returns every member's bytes. Called inside State.Do.
func (c *Comm) gatherBytes(ctx context.Context, mine []byte) ([][]byte, error) {
	lengths, err := c.gatherBounded(ctx, "payload length", len(mine), bootstrap.MaxPayload)
	if err != nil {
		return nil, err
	}
	most := int(slices.Max(lengths))
	x := run.Call{Op: coll.Allgather, In: append(slices.Clone(mine), make([]byte, most-len(mine))...), Out: make([]byte, most*c.size)}
	x.SetBlockSize(len(x.In))
	if err := c.collective.Inline(ctx, &x); err != nil {
		return nil, err
	}
	all := make([][]byte, c.size)
	for rank := range all {
		all[rank] = x.Out[rank*most:][:lengths[rank]]
	}
	return all, nil
}

// user returns the session that OpenSession has returned.
func (s *Session) user() *Session {
	if s.ownerStream != nil {
		return s.ownerStream.session
	}
	return s
}

// errEnded is the error of a call that needs a stream's session, which is closed.
func (s *Session) errEnded(err error) error {
	if s.ownerStream != nil && s.user().enter() == nil {
		return fmt.Errorf("%w: %v has ended with its last communicator; open another one (NewStream)", ErrClosed, s.ownerStream)
	}
	return err
}

// use records that the stream has had a communicator.
func (st *Stream) use() {
	st.commSession.mu.Lock()
	st.isUsed = true
	st.commSession.mu.Unlock()
}

// endUnused ends the stream after its last communicator. commSession.mu held.
func (st *Stream) endUnused() {
	if own := st.commSession; st.isUsed && own.commCount+own.endingComms == 0 {
		st.startEnd()
	}
}

// startEnd ends the stream in a goroutine, once. commSession.mu held.
func (st *Stream) startEnd() {
	st.commSession.isClosed = true
	if !st.isEnded {
		st.isEnded = true
		go st.end()
	}
}

// end frees the stream when no operation is pending, and accepted sends have left.
func (st *Stream) end() {
	defer close(st.endDone)
	st.awaitPending()
	st.commSession.asyncs.end()
	st.commSession.buffered.close()
	err := st.commSession.process.end(st.commSession.params.Linger)
	if err != nil {
		err = fmt.Errorf("%v: %w", st, err)
	}
	isThis := func(x *Stream) bool { return x == st }
	s, e := st.session, st.commSession.process
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams = slices.DeleteFunc(s.streams, isThis)
	if err != nil && len(s.streamErrs) < mostStreamErrs {
		s.streamErrs = append(s.streamErrs, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.openStreams = slices.DeleteFunc(e.openStreams, isThis)
}

// mostStreamErrs is the largest number of errors of ended streams that a session keeps for its Close.
const mostStreamErrs = 8

// pendingPeriod is the longest time between two checks for pending operations of an ended stream.
const pendingPeriod = 50 * time.Millisecond

// awaitPending returns when no operation of a closed communicator is pending, or when the session closes.
func (st *Stream) awaitPending() {
	for period := time.Millisecond; st.commSession.process.hasPending(); period = min(2*period, pendingPeriod) {
		select {
		case <-st.sessionClosing:
			return
		case <-time.After(period):
		}
	}
}

// hasPending reports whether a PML has pending operations of closed communicators, or messages claimed by a probe. The PML keeps a closed communicator
// for these.
func (e *process) hasPending() bool {
	for _, m := range e.Upper() {
		if x, err := m.Inspect(context.Background()); err != nil || len(x.Comms) > 0 {
			return true
		}
	}
	return false
}

// sessionNumbers is the number of the last session of this operating-system process.
var sessionNumbers atomic.Int64

// streams returns the open streams of all sessions of the process.
func (e *process) streams() []*Stream {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.openStreams)
}

// openStreams returns the streams that have not ended.
func (s *Session) openStreams() []*Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.streams)
}

// pending returns a description of the open communicators and memory of a session, or "".
func (s *Session) pending() string {
	if s.commCount+s.memoryCount+s.endingComms == 0 {
		return ""
	}
	return fmt.Sprintf("%d communicators, %d pieces of Memory; and complete the operations of %d closed communicators", s.commCount, s.memoryCount, s.endingComms)
}

// pendingComms describes the open communicators of a stream, or is "". commSession.mu is not held.
func (st *Stream) pendingComms() (text string) {
	for _, c := range st.commSession.process.open() {
		text += fmt.Sprintf("; %s of %v", c.describe(), st)
	}
	return text
}
