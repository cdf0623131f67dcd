package mtltest

import (
	"cmp"
	"context"
	"sync"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/mtl"
)

// Options describe a Memory. Zero fields get the values of the comment.
type Options struct {
	CIDBits      int   // 22
	SourceBits   int   // 18
	TagBits      int   // 24
	MaxMessage   int64 // 1 GiB
	Inject       int   // 64
	ControlLimit int   // 256
	Faults       Faults
}

// filled returns the options with the values of the comment.
func (o Options) filled() Options {
	o.CIDBits = cmp.Or(o.CIDBits, 22)
	o.SourceBits = cmp.Or(o.SourceBits, 18)
	o.TagBits = cmp.Or(o.TagBits, 24)
	o.MaxMessage = cmp.Or(o.MaxMessage, 1<<30)
	o.Inject = cmp.Or(o.Inject, 64)
	o.ControlLimit = cmp.Or(o.ControlLimit, 256)
	return o
}

// Faults are what a network may do, and tests want it to do.
type Faults struct {
	// Control, when not nil, sees every control message, and returns what arrives in
	// its place: nothing, or more than one. It must not call the module.
	Control func(data []byte) [][]byte
	// Send, when not nil, is the error with which sends of messages fail.
	Send error
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
	mu       sync.Mutex
	opt      Options
	modules  []*memory // by address: in the order in which they were opened
	messages spare[message]
}

// spare is what will be used again.
type spare[T any] []*T

func (s *spare[T]) give(x *T) { *s = append(*s, x) }

func (s *spare[T]) take() *T {
	n := len(*s)
	if n == 0 {
		return new(T)
	}
	x := (*s)[n-1]
	(*s)[n-1] = nil // it is the taker's alone
	*s = (*s)[:n-1]
	return x
}

// NewMemory returns a network without modules.
func NewMemory(opt Options) *Memory { return &Memory{opt: opt.filled()} }

// Component returns the component whose modules meet in f.
func (f *Memory) Component() mtl.Component { return memoryComponent{f, f.opt} }

// SetFaults changes what goes wrong from now on.
func (f *Memory) SetFaults(faults Faults) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opt.Faults = faults
}

// Inject delivers a stranger's control message to the module at an address.
func (f *Memory) Inject(address int, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deliverControl(f.modules[address], data)
}

// Fail has the module at an address fail.
func (f *Memory) Fail(address int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.modules[address].failed = &framework.TransportError{Component: "mtl memory", Op: "poll", Err: err}
}

// message returns one that holds a copy of data. f.mu held.
func (f *Memory) message(data []byte) *message {
	msg := f.messages.take()
	msg.own = append(msg.own[:0], data...)
	msg.data = msg.own
	return msg
}

// release takes a message back that nobody knows any more. f.mu held.
func (f *Memory) release(msg *message) {
	*msg = message{own: msg.own}
	f.messages.give(msg)
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
		queues: map[uint32]*queues{}, sends: map[*message]struct{}{}, receives: map[*mtl.Op]*receive{}, claims: map[*mtl.Op]*message{},
	}
	c.f.modules = append(c.f.modules, m)
	return m, nil
}
