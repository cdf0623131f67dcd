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

// What the test has a process do.
const (
	opPut       = "put"
	opGet       = "get"
	opFence     = "fence"
	opConstruct = "construct"
	opClose     = "close"
	opPublish   = "publish"
	opUnpublish = "unpublish"
	opLookup    = "lookup"
	opPsets     = "psets"
	opPset      = "pset"
	opBegin     = "begin"
	opEnd       = "end"
	opGiveUp    = "give up"
	opBroke     = "broke"
	opNote      = "note"
	opRevoke    = "revoke"
	opOnEvent   = "on event"
	opCancel    = "cancel" // the call with that ID
	opExit      = "exit"
)

// request is one of them, with what it needs.
type request struct {
	ID    uint64
	Op    string
	Ended bool // its context has ended before
	Name  string
	Value []byte
	Group []framework.Proc
	Proc  framework.Proc
	Nonce uint64
	Comm  cid.Extended
	Wait  bool
	On    bool
	// Timeout is that of bootstrap.WithTimeout, or 0.
	Timeout time.Duration
}

func (q request) withTimeout(ctx context.Context) context.Context {
	if q.Timeout == 0 {
		return ctx
	}
	return bootstrap.WithTimeout(ctx, q.Timeout)
}

// reply is what comes of it, or an event.
type reply struct {
	ID      uint64
	Err     *failure
	Value   []byte
	OK      bool
	Context uint64
	Many    [][]byte
	Names   []string
	Pset    psetReply
	Event   *bootstrap.Event
}

// psetReply is a bootstrap.PsetInfo.
type psetReply struct {
	Name    string
	Members []framework.Proc
	Dynamic bool
}

// sentinels are those that the kit looks for.
var sentinels = []error{
	framework.ErrClosed, framework.ErrTimeout, framework.ErrProcFailed, framework.ErrGroup, framework.ErrRank, framework.ErrUnsupported,
	framework.ErrPset, framework.ErrCanceled, framework.ErrTransport, bootstrap.ErrPublished, bootstrap.ErrNotPublished,
}

const closedAt = 0 // of sentinels

// failure is an error that has come from a process.
type failure struct {
	Text    string
	Is      []int // of sentinels
	Cause   bool  // it wraps why the call's context has ended
	Missing *framework.MissingError
}

// errEnded is why the context of a call ends in the process.
var errEnded = errors.New("the kit has ended it")

func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	f := &failure{Text: err.Error(), Cause: errors.Is(err, errEnded)}
	for i, s := range sentinels {
		if errors.Is(err, s) {
			f.Is = append(f.Is, i)
		}
	}
	if m, ok := errors.AsType[*framework.MissingError](err); ok {
		f.Missing = m
	}
	return f
}

// remoteError is a failure as the kit sees it; cause is why its context has ended.
type remoteError struct {
	failure
	cause error
}

func (e *remoteError) Error() string { return e.Text }

func (e *remoteError) Is(target error) bool {
	for _, i := range e.failure.Is {
		if sentinels[i] == target {
			return true
		}
	}
	return e.Cause && e.cause != nil && errors.Is(e.cause, target)
}

func (e *remoteError) As(target any) bool {
	m, ok := target.(**framework.MissingError)
	if ok && e.Missing != nil {
		*m = e.Missing
	}
	return ok && e.Missing != nil
}

// served is the process's end.
type served struct {
	c     bootstrap.Client
	calls sync.WaitGroup

	out sync.Mutex
	enc *gob.Encoder

	mu      sync.Mutex
	cancels map[uint64]context.CancelCauseFunc
}

// run does what the test says. A test that is gone wants no more.
func (s *served) run(ctx context.Context, dec *gob.Decoder) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(errEnded)
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
			if cancel := s.cancels[q.ID]; cancel != nil {
				cancel(errEnded)
			}
			s.mu.Unlock()
			continue
		}
		ctx, cancel := context.WithCancelCause(ctx)
		if q.Ended {
			cancel(errEnded)
		}
		s.mu.Lock()
		s.cancels[q.ID] = cancel
		s.mu.Unlock()
		s.calls.Go(func() {
			got, err := s.do(ctx, q)
			cancel(nil)
			s.mu.Lock()
			delete(s.cancels, q.ID)
			s.mu.Unlock()
			got.ID, got.Err = q.ID, failureOf(err)
			s.say(got)
		})
	}
}

// say sends to the test, which may be gone.
func (s *served) say(r reply) {
	s.out.Lock()
	defer s.out.Unlock()
	s.enc.Encode(r)
}

func (s *served) do(ctx context.Context, q request) (r reply, err error) {
	switch c := s.c; q.Op {
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
		r.Context, r.Many, err = made.ContextID, made.Payloads, failed
	case opClose:
		err = c.Close()
	default:
		return s.doMore(ctx, q)
	}
	return r, err
}

// doMore is do for the optional abilities, which the test asks for only if they are there.
func (s *served) doMore(ctx context.Context, q request) (r reply, err error) {
	names, _ := framework.As[bootstrap.Directory](s.c)
	psets, _ := framework.As[bootstrap.PsetSource](s.c)
	events, _ := framework.As[bootstrap.EventSource](s.c)
	switch q.Op {
	case opPublish:
		err = names.Publish(ctx, q.Name, q.Value)
	case opUnpublish:
		err = names.Unpublish(ctx, q.Name)
	case opLookup:
		r.Value, r.OK, err = names.Lookup(ctx, q.Name, q.Wait)
	case opPsets:
		r.Names, err = psets.Psets(ctx)
	case opPset:
		var info bootstrap.PsetInfo
		info, err = psets.Pset(ctx, q.Name)
		r.Pset = psetReply{Name: info.Name, Members: info.Members.List(), Dynamic: info.Dynamic}
	case opBegin:
		events.Begin(q.Nonce)
	case opEnd:
		events.End()
	case opGiveUp:
		events.GiveUp(q.Proc, q.Nonce, q.Name)
	case opBroke:
		events.Broke(q.Comm, q.Group, q.Name)
	case opNote:
		noter, _ := framework.As[bootstrap.Noter](s.c)
		err = noter.Note(q.Proc, q.Nonce, q.Value)
	case opRevoke:
		revoker, _ := framework.As[bootstrap.Revoker](s.c)
		err = revoker.Revoke(q.Comm, q.Group)
	case opOnEvent:
		if !q.On {
			events.OnEvent(nil)
			break
		}
		events.OnEvent(func(e bootstrap.Event) { s.say(reply{Event: &e}) })
	default:
		err = fmt.Errorf("unknown request %q", q.Op)
	}
	return r, err
}
