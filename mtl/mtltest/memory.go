package mtltest

import (
	"context"
	"sync"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// Options describe a Memory. Zero fields get the values of the comment.
type Options struct {
	CIDBits      int    // 22
	SourceBits   int    // 18
	TagBits      int    // 24
	MaxMessage   int64  // 1 GiB
	Inject       int    // 64
	ControlLimit int    // 256
	Layout       string // part of the offer: modules with another one don't understand it
	Faults       Faults
}

// Faults are what a network may do, and tests want it to do.
type Faults struct {
	// Control, when not nil, sees every control message, and returns what arrives in
	// its place: nothing, or more than one. It must not call the module.
	Control func(from, to framework.Proc, data []byte) [][]byte
	// Send, when not nil, fails the send of a message with the error that it returns.
	Send func(from, to framework.Proc, e mtl.Envelope) error
	// Polls is how many polls of the receiver a message, and how many polls of the
	// caller a cancel, waits before it takes effect. A message that arrives in
	// between is received, and the cancel comes too late.
	Polls int
	// NeverInject: no Send is done when it returns.
	NeverInject bool
}

// Memory is a network in Go memory: the modules that its component opens, all in
// one process, reach one another. It is the reference of the contract, and what
// protocols above MTLs are tested with. It is safe for concurrent use.
type Memory struct {
	mu      sync.Mutex
	opt     Options
	modules []*memory // by address
	free    *message
}

// NewMemory returns a network without modules.
func NewMemory(opt Options) *Memory {
	set := func(v *int, usual int) {
		if *v == 0 {
			*v = usual
		}
	}
	set(&opt.CIDBits, 22)
	set(&opt.SourceBits, 18)
	set(&opt.TagBits, 24)
	set(&opt.Inject, 64)
	set(&opt.ControlLimit, 256)
	if opt.MaxMessage == 0 {
		opt.MaxMessage = 1 << 30
	}
	return &Memory{opt: opt}
}

// Component returns the component whose modules meet in f.
func (f *Memory) Component() mtl.Component { return memoryComponent{f, f.opt} }

// Other returns a component whose modules are in f too, and differ from the
// others in their options, but for the faults.
func (f *Memory) Other(opt Options) mtl.Component {
	return memoryComponent{f, NewMemory(opt).opt}
}

// SetFaults changes what goes wrong from now on.
func (f *Memory) SetFaults(faults Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opt.Faults = faults
}

// Inject delivers a stranger's control message to a process.
func (f *Memory) Inject(to framework.Proc, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.modules {
		if m.env.Identity.Proc == to && !m.closed {
			f.deliverControl(m, data)
		}
	}
}

// Fail has the module of a process fail.
func (f *Memory) Fail(p framework.Proc, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.modules {
		if m.env.Identity.Proc == p && !m.closed {
			m.failed = &framework.TransportError{Component: "mtl memory", Op: "poll", Err: err}
		}
	}
}

// message returns one that holds a copy of data. f.mu held.
func (f *Memory) message(data []byte) *message {
	msg := f.free
	if msg == nil {
		msg = new(message)
	} else {
		f.free = msg.next
	}
	msg.own = append(msg.own[:0], data...)
	msg.data = msg.own
	return msg
}

// release takes a message back that nobody knows any more. f.mu held.
func (f *Memory) release(msg *message) {
	own := msg.own
	*msg = message{own: own, next: f.free}
	f.free = msg
}

type memoryComponent struct {
	f   *Memory
	opt Options
}

func (memoryComponent) Info() framework.Info {
	return framework.Info{Kind: framework.MTL, Name: "memory", Version: "1.0.0", Summary: "processes of a test, in one process"}
}

func (memoryComponent) Params() any { return nil }

func (memoryComponent) Probe(context.Context, any) framework.Verdict { return framework.Usable() }

func (c memoryComponent) Open(_ context.Context, env mtl.Env) (mtl.Module, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	m := &memory{
		peers: []memoryPeer{{gone: errNobody}},                                // mtl.NoEndpoint
		f:     c.f, env: env, opt: c.opt, address: len(c.f.modules), polls: 1, // a cancel names its poll, and 0 is none
		queues: map[uint32]*queues{}, sends: map[*message]struct{}{},
	}
	c.f.modules = append(c.f.modules, m)
	return m, nil
}
