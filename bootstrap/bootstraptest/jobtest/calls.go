package jobtest

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// Operations of requests to a process.
const (
	opPut        = "put"
	opGet        = "get"
	opFence      = "fence"
	opConstruct  = "construct"
	opClose      = "close"
	opPublish    = "publish"
	opUnpublish  = "unpublish"
	opLookup     = "lookup"
	opPsets      = "psets"
	opPset       = "pset"
	opBegin      = "begin"
	opEnd        = "end"
	opDisconnect = "give up"
	opBroke      = "broke"
	opNote       = "note"
	opRevoke     = "revoke"
	opOnEvent    = "on event"
	opChange     = "change"
	opCancel     = "cancel" // Cancels the call with that ID.
	opExit       = "exit"
)

// request is a request of the test to a process.
type request struct {
	ID uint64
	Op string
	// The context of the call has ended before the call.
	IsContextEnded bool
	Name           string
	Value          []byte
	Group          []framework.Proc
	Proc           framework.Proc
	Nonce          uint64
	Comm           cid.Extended
	MustWait       bool
	IsEnabled      bool
	// Timeout is that of bootstrap.WithTimeout, or 0.
	Timeout time.Duration
	Change  changeRequest
}

func (q request) withTimeout(ctx context.Context) context.Context {
	if q.Timeout == 0 {
		return ctx
	}
	return bootstrap.WithTimeout(ctx, q.Timeout)
}

// reply is the result of a request, or an event.
type reply struct {
	ID          uint64
	Err         *failure
	Value       []byte
	IsFound     bool
	ContextID   uint64
	Payloads    [][]byte
	Names       []string
	PsetReply   psetReply
	ChangeReply changeReply
	Event       *bootstrap.Event
}

// psetReply is a bootstrap.PsetInfo.
type psetReply struct {
	Name      string
	Members   []framework.Proc
	IsDynamic bool
}

// sentinels are the errors that cases of the kit compare.
var sentinels = []error{
	framework.ErrClosed, framework.ErrTimeout, framework.ErrProcFailed, framework.ErrGroup, framework.ErrRank, framework.ErrUnsupported,
	framework.ErrPset, framework.ErrCanceled, framework.ErrTransport, bootstrap.ErrPublished, bootstrap.ErrNotPublished,
	framework.ErrPending,
}

const closedIndex = 0 // Index in sentinels.

// failure is an error of a process.
type failure struct {
	Text string
	// Indexes in sentinels.
	SentinelIndexes []int
	// The error wraps the cause of its context.
	WrapsCause bool
	MissingErr *framework.MissingError
}

// errContextEnded is the cause of contexts that end in the process.
var errContextEnded = errors.New("the kit has ended it")

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error(), WrapsCause: errors.Is(err, errContextEnded)}
	for i, s := range sentinels {
		if errors.Is(err, s) {
			f.SentinelIndexes = append(f.SentinelIndexes, i)
		}
	}
	if m, ok := errors.AsType[*framework.MissingError](err); ok {
		f.MissingErr = m
	}
	return f
}

// remoteError is a failure in the test. cause is the cause of its context there.
type remoteError struct {
	failure
	ctxCause error
}

func (e *remoteError) Error() string { return e.Text }

func (e *remoteError) Is(target error) bool {
	for _, i := range e.failure.SentinelIndexes {
		if sentinels[i] == target {
			return true
		}
	}
	return e.WrapsCause && e.ctxCause != nil && errors.Is(e.ctxCause, target)
}

func (e *remoteError) As(target any) bool {
	m, ok := target.(**framework.MissingError)
	if ok && e.MissingErr != nil {
		*m = e.MissingErr
	}
	return ok && e.MissingErr != nil
}

// rankServer executes the requests in the process.
type rankServer struct {
	client       bootstrap.Client
	runningCalls sync.WaitGroup

	writeMu sync.Mutex
	enc     *gob.Encoder

	mu          sync.Mutex
	cancelsByID map[uint64]context.CancelCauseFunc
}

// run executes requests until opExit. An error means that the test has ended.
func (s *rankServer) run(ctx context.Context, dec *gob.Decoder) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(errContextEnded)
	for {
		var q request
		if err := dec.Decode(&q); err != nil {
			return fmt.Errorf("the test is gone: %w", err)
		}
		switch q.Op {
		case opExit:
			return nil
		case opCancel:
			s.mu.Lock()
			if cancel := s.cancelsByID[q.ID]; cancel != nil {
				cancel(errContextEnded)
			}
			s.mu.Unlock()
			continue
		}
		ctx, cancel := context.WithCancelCause(ctx)
		if q.IsContextEnded {
			cancel(errContextEnded)
		}
		s.mu.Lock()
		s.cancelsByID[q.ID] = cancel
		s.mu.Unlock()
		s.runningCalls.Go(func() {
			got, err := s.execute(ctx, q)
			cancel(nil)
			s.mu.Lock()
			delete(s.cancelsByID, q.ID)
			s.mu.Unlock()
			got.ID, got.Err = q.ID, failureOf(err)
			s.sendReply(got)
		})
	}
}

// sendReply sends a reply. The test may have ended.
func (s *rankServer) sendReply(r reply) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.enc.Encode(r)
}

func (s *rankServer) execute(ctx context.Context, q request) (r reply, err error) {
	switch c := s.client; q.Op {
	case opPut:
		err = c.Put(ctx, q.Name, q.Value)
	case opGet:
		r.Value, err = c.Get(ctx, q.Proc, q.Name)
	case opFence:
		ctx = q.withTimeout(ctx)
		err = c.Fence(ctx, q.Group, q.Name)
	case opConstruct:
		ctx = q.withTimeout(ctx)
		made, failed := c.Construct(ctx, q.Group, q.Name, q.Value)
		r.ContextID, r.Payloads, err = made.ContextID, made.Payloads, failed
	case opClose:
		err = c.Close()
	default:
		return s.executeOptional(ctx, q)
	}
	return r, err
}

// executeOptional is execute for the optional interfaces. The test calls it for those that the
// client has.
func (s *rankServer) executeOptional(ctx context.Context, q request) (r reply, err error) {
	names, _ := framework.As[bootstrap.Directory](s.client)
	psets, _ := framework.As[bootstrap.PsetSource](s.client)
	events, _ := framework.As[bootstrap.EventSource](s.client)
	switch q.Op {
	case opPublish:
		err = names.Publish(ctx, q.Name, q.Value)
	case opUnpublish:
		err = names.Unpublish(ctx, q.Name)
	case opLookup:
		r.Value, r.IsFound, err = names.Lookup(ctx, q.Name, q.MustWait)
	case opPsets:
		r.Names, err = psets.Psets(ctx)
	case opPset:
		var info bootstrap.PsetInfo
		info, err = psets.Pset(ctx, q.Name)
		r.PsetReply = psetReply{Name: info.Name, Members: info.Members.List(), IsDynamic: info.Dynamic}
	case opChange:
		return s.executeChange(ctx, q.Change)
	case opBegin:
		events.BeginIncarnation(q.Nonce)
	case opEnd:
		events.EndIncarnation()
	case opDisconnect:
		events.Disconnect(q.Proc, q.Nonce, q.Name)
	case opBroke:
		events.ReportBroken(q.Comm, q.Group, q.Name)
	case opNote:
		noter, _ := framework.As[bootstrap.Noter](s.client)
		err = noter.Note(q.Proc, q.Nonce, q.Value)
	case opRevoke:
		revoker, _ := framework.As[bootstrap.Revoker](s.client)
		err = revoker.Revoke(q.Comm, q.Group)
	case opOnEvent:
		if !q.IsEnabled {
			events.OnEvent(nil)
			break
		}
		events.OnEvent(func(e bootstrap.Event) { s.sendReply(reply{Event: &e}) })
	default:
		err = fmt.Errorf("unknown request %q", q.Op)
	}
	return r, err
}
