package base

import (
	"fmt"
	"runtime"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// Module is the state of an open module that every MTL has. It implements Caps, Describe, Offer and Blob of mtl.Module.
type Module struct {
	// Component is the name of the MTL in errors, such as "mtl ofi".
	Component    string
	Env          mtl.Env
	Capabilities mtl.Caps
	Description  mtl.Description
	Card         Card
	// Endpoints has the peers that are connected and not forgotten.
	Endpoints map[framework.Incarnation]mtl.Endpoint
	SlotPool  SlotPool
	Results   Results
	// unflushedPeers lists the peers for which the library may hold messages, each once.
	unflushedPeers []mtl.Endpoint
	// errUnknown is the error of operations with an endpoint that Connect did not return.
	errUnknown error
	// Err is the module's failure. Once it is set, all calls return it.
	Err error
	// Pins hold memory that stays pinned until EndClose.
	Pins runtime.Pinner
}

// NewModule returns the state of a module without peers and operations. The caller sets the rest of the fields.
func NewModule(component string, env mtl.Env) Module {
	return Module{
		Component: component, Env: env, Endpoints: map[framework.Incarnation]mtl.Endpoint{},
		errUnknown: fmt.Errorf("%s: %w: the endpoint was never connected", component, framework.ErrUnsupported),
	}
}

func (m *Module) Caps() mtl.Caps            { return m.Capabilities }
func (m *Module) Describe() mtl.Description { return m.Description }
func (m *Module) Offer() string             { return m.Card.Offer }
func (m *Module) Blob() []byte              { return m.Card.Blob }

// TransportError returns the error of an operation with a peer. For that of mtl.NoEndpoint the error names no process.
func (m *Module) TransportError(op string, p *Peer, err error) error {
	e := &framework.TransportError{Component: m.Component, Op: op, Err: err}
	if !p.isUnknown {
		e.Peer = m.Env.Worlds.Proc(p.ID).String()
	}
	return e
}

// QueueResult queues the result of op for the next Poll. op may be nil.
func (m *Module) QueueResult(op *mtl.Op, r mtl.Result) {
	if op != nil {
		m.Results.pendingResults = append(m.Results.pendingResults, queuedResult{op, r})
	}
}

// Abandon queues an error for the owner of an operation that the library still holds. The slot stays in use, without an owner, until the
// operation completes.
func (m *Module) Abandon(s *Slot, why error) {
	m.QueueResult(s.Op, mtl.Result{Err: why})
	if s.Kind.IsSend() {
		m.SlotPool.activeSends--
	}
	s.Op, s.UserBuf, s.Kind = nil, nil, SlotAbandoned
}

// IdleAfter calls flush for each unflushed peer, and reports whether the module has no send and no result left. A failed module has
// none.
func (m *Module) IdleAfter(flush func(to mtl.Endpoint)) bool {
	if m.Err != nil {
		return true
	}
	for n := len(m.unflushedPeers); n > 0; n = len(m.unflushedPeers) {
		to := m.unflushedPeers[n-1]
		m.unflushedPeers = m.unflushedPeers[:n-1]
		flush(to)
	}
	return m.SlotPool.activeSends == 0 && m.Results.IsEmpty()
}

// EndClose ends Close, after the library has released all buffers. Operations end without Done, and later calls return framework.ErrClosed
// or the module's failure.
func (m *Module) EndClose() {
	m.Pins.Unpin()
	if m.Err == nil {
		m.Err = fmt.Errorf("%s: %w", m.Component, framework.ErrClosed)
	}
	m.SlotPool, m.Results = SlotPool{}, Results{}
}
