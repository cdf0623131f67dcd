package run

import (
	"context"
	"runtime/pprof"
	"sync/atomic"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/coll"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// A Host is the communicator of a State. Its methods may be called concurrently. Only Watch may
// block. TerminalError, FormOf and Spawn are also called with the engine's lock held, so that they
// must not take it.
type Host interface {
	// CallError returns the reason if no further operation is possible, and nil otherwise. It is
	// not nil while Env.CommState is not 0.
	CallError() error
	// TerminalError is CallError without the end of the communicator by its user.
	TerminalError() error
	IsClosed() bool

	// Refuse announces that this rank will not create the communicators of the span. Ranks that
	// have created them are notified.
	Refuse(span cid.Span, why error)
	// ReportBroken notifies the other ranks that this one takes part in no further operation.
	ReportBroken(why error)
	// OperationsEnded is called after the end of the last operation of a closed communicator for
	// which State.Closing returned true, on a separate goroutine.
	OperationsEnded()

	// Watch calls the hooks of the program for an operation that begins, which may block and panic.
	// It returns nil without hooks. Otherwise the caller calls end at the end of the operation, of a
	// nonblocking one with the engine's lock held. ctx may be nil.
	Watch(ctx context.Context, op string, bytes int, seq uint32, nonblocking bool) (end func(error))
	// EndError converts the error of an operation whose context, which may be nil, may have ended.
	EndError(ctx context.Context, op string, err error) error
	// FormOf returns the memory of a transport that buf is in, or nil.
	FormOf(buf []byte) *pml.Form
	// Spawn calls f on a new goroutine, with a context that ends with the session. It does nothing
	// after the end of the session.
	Spawn(f func(context.Context))
	// Labels are the profile labels of goroutines that work for the communicator.
	Labels() pprof.LabelSet

	// Shape returns the algorithms for communicators of this shape.
	Shape() (*Shape, error)
	// Node returns the shared memory of the processes on the node, or nil without any.
	Node() coll.Node
	// LocalRanks returns the ranks of this process if ranks are goroutines, and nil otherwise.
	LocalRanks() LocalRanks
	// RecordAlgorithms records the algorithms in use for Explain.
	RecordAlgorithms(t *coll.Table, isComplete bool)
	// RecordOmission records a component that the communicator does without.
	RecordOmission(component string, why error)
}

// LocalRanks are the goroutine ranks of a process in a communicator.
type LocalRanks interface {
	// Division returns the placement of all ranks in processes.
	Division() *Division
	// Openings is shared by the ranks of the process.
	Openings() *Openings
	// Bell returns the bell of a rank of this process.
	Bell(rank int) progress.RemoteBell
}

// Env has the arguments of State.Init. They are constant.
type Env struct {
	Host Host
	PML  pml.Comm
	ID   cid.Extended
	// Rank and number of ranks.
	Rank, Size    int
	RankResources *Rank
	// Not 0 when Host.CallError returns an error.
	CommState *atomic.Uint32
	// Host.Watch has hooks.
	HasHooks bool
	// Host.LocalRanks is not nil.
	IsThreadRank bool
}

// Rank has the resources that the communicators of one rank share. It must not be copied after Init.
type Rank struct {
	engine *progress.Engine
	// Of the process.
	pieces *Pieces
	// Guarded by the engine's lock.
	freeOperations []*Operation
	pendingSteps   pendingSteps
}

// Init prepares the resources. Pieces are those of the process.
func (r *Rank) Init(e *progress.Engine, pieces *Pieces) {
	r.engine, r.pieces, r.pendingSteps.engine = e, pieces, e
}

// PollSteps polls the pending steps of a goroutine rank after a step that may complete them. No
// other code polls them while the waits of the rank are parked. The lock is held.
func (r *Rank) PollSteps() {
	if len(r.pendingSteps.list) > 0 && r.engine.IsRank() {
		r.pendingSteps.Poll()
	}
}

// RemoveFromEngine removes the source of the engine. It is called before the engine closes.
func (r *Rank) RemoveFromEngine() { r.pendingSteps.removeFromEngine() }

// PendingSteps calls f for each pending step in shared memory, with the communicator that it
// belongs to. The lock is held.
func (r *Rank) PendingSteps(f func(h Host, p pml.Pending)) {
	for _, t := range r.pendingSteps.list {
		f(t.collState.env.Host, t.pending())
	}
}

// MinFormBytes is the smallest length of a buffer for Host.FormOf. Smaller messages are copied into
// cells in any case.
const MinFormBytes = 2 << 10

// buffer returns the buffer of a send.
func (e *Env) buffer(buf []byte) pml.Buffer {
	if len(buf) < MinFormBytes {
		return pml.Buffer{Bytes: buf}
	}
	return pml.Buffer{Bytes: buf, Form: e.Host.FormOf(buf)}
}

// background replaces a nil context for callees that need one.
func background(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

func hasEnded(ctx context.Context) bool { return ctx != nil && ctx.Err() != nil }

// Shape is the common data of communicators with one shape and the same parameters. It is
// read-only after MakeShape.
type Shape struct {
	nodes         coll.Placement
	force         *coll.Force
	comparesCalls bool
	offers        []coll.ComponentOffer
	// Some offers need an instance.
	hasInstances bool
	// Algorithms without an instance.
	plainTable *coll.Table
}

// MakeShape returns the data of a shape. offers are those of the components for it, and
// comparesCalls is the parameter coll.check.
func MakeShape(nodes coll.Placement, force *coll.Force, offers []coll.ComponentOffer, comparesCalls bool) *Shape {
	s := &Shape{nodes: nodes, force: force, comparesCalls: comparesCalls, offers: offers}
	var plain []coll.ComponentOffer
	for _, o := range offers {
		if o.Open == nil {
			plain = append(plain, o)
		}
	}
	s.hasInstances = len(plain) < len(offers)
	s.plainTable = coll.NewTable(plain, force)
	return s
}
