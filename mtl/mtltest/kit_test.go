package mtltest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/mtl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func reference(opt Options) Subject {
	f := NewMemory(opt)
	return Subject{Component: f.Component(), Other: memoryComponent{f, Options{TagBits: 20}.withDefaults()}}
}

func TestReference(t *testing.T) {
	for name, opt := range map[string]Options{
		"Usual":    {},
		"Narrow":   {CIDBits: 8, SourceBits: 10, TagBits: 16, MaxMessage: 8 << 20, Inject: 1, ControlLimit: mtl.MinControlLimit},
		"Late":     {Faults: Faults{Polls: 3}},
		"Never":    {Faults: Faults{NeverInject: true}},
		"Process":  {ByProcess: true},
		"Endpoint": {ByProcess: true, EndpointBits: 10},
		"OneBit":   {ByProcess: true, EndpointBits: 1, Faults: Faults{Polls: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			s := reference(opt)
			if name == "Narrow" || name == "Process" {
				s.First = kittest.AddedFirst
			}
			Cases(s).Run(t)
		})
	}
}

// broken wraps the reference implementation and violates the contract.
type broken struct {
	mtl.Component
	wrap func(mtl.Module, *mtl.Env) mtl.Module
}

func (b broken) Open(ctx context.Context, env mtl.Env) (mtl.Module, error) {
	b.wrap(nil, &env) // It may replace the upcall.
	m, err := b.Component.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	return b.wrap(m, &env), nil
}

// asynchronous treats synchronous sends as standard ones.
type asynchronous struct{ mtl.Module }

func (m asynchronous) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, _ mtl.Mode) (bool, error) {
	return m.Module.Send(op, to, e, buf, mtl.Standard)
}

// wild receives from any source.
type wild struct{ mtl.Module }

func (m wild) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	e.Source = mtl.AnySource
	return m.Module.Recv(op, from, e, buf)
}

// narrow loses the highest bit of an id.
type narrow struct{ mtl.Module }

func (m narrow) cut(e mtl.Envelope) mtl.Envelope {
	e.CID &= 1<<(m.Caps().CIDBits-1) - 1
	return e
}

func (m narrow) Send(op *mtl.Op, to mtl.Endpoint, e mtl.Envelope, buf []byte, mode mtl.Mode) (bool, error) {
	return m.Module.Send(op, to, m.cut(e), buf, mode)
}

func (m narrow) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	return m.Module.Recv(op, from, m.cut(e), buf)
}

// whole does not distinguish the ranks of a process.
type whole struct{ mtl.Module }

func (m whole) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	e.Endpoint = 0
	return m.Module.Recv(op, from, e, buf)
}

// peeks claims nothing.
type peeks struct{ mtl.Module }

func (m peeks) Probe(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, _ bool) error {
	return m.Module.Probe(op, from, e, true)
}

// blocked finds no message while many receives are posted.
type blocked struct {
	mtl.Module
	posted *int
}

func (m blocked) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	*m.posted++
	return m.Module.Recv(op, from, e, buf)
}

func (m blocked) Probe(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, claim bool) error {
	if *m.posted > 1000 {
		e.CID = 0 // An unused id.
	}
	return m.Module.Probe(op, from, e, claim)
}

// hasty calls Done outside of Poll.
type hasty struct{ mtl.Module }

func (m hasty) Cancel(op *mtl.Op) {
	op.Canceled = true
	op.Owner.Done(op)
}

// reorders withdraws one receive in a poll, the last one that was canceled first.
type reorders struct {
	mtl.Module
	canceled *[]*mtl.Op
}

func (m reorders) Cancel(op *mtl.Op) { *m.canceled = append(*m.canceled, op) }

func (m reorders) Poll() int {
	if ops := *m.canceled; len(ops) > 0 {
		*m.canceled = ops[:len(ops)-1]
		m.Module.Cancel(ops[len(ops)-1])
	}
	return m.Module.Poll()
}

// deafens loses the fifth control message.
type deafens struct {
	mtl.Receiver
	n *int
}

func (r deafens) Control(data []byte) {
	if *r.n++; *r.n != 5 {
		r.Receiver.Control(data)
	}
}

// late continues after Close.
type late struct {
	mtl.Module
	pending map[*mtl.Op]bool
}

func (m late) Recv(op *mtl.Op, from mtl.Endpoint, e mtl.Envelope, buf []byte) error {
	m.pending[op] = true
	return m.Module.Recv(op, from, e, buf)
}

func (m late) Close() error {
	for op := range m.pending {
		op.Owner.Done(op)
	}
	return m.Module.Close()
}

// loyal ignores Forget.
type loyal struct{ mtl.Module }

func (loyal) Forget(mtl.Endpoint, error) {}

// silent does not report lost messages.
type silent struct{ mtl.Module }

func (m silent) RecvClaimed(op *mtl.Op, buf []byte) error {
	op.Owner = quiet{op.Owner}
	return m.Module.RecvClaimed(op, buf)
}

type quiet struct{ mtl.Owner }

func (q quiet) Done(op *mtl.Op) {
	if op.Err == nil {
		q.Owner.Done(op)
	}
}

func TestKit_BrokenModule_Fails(t *testing.T) {
	plain := func(f func(mtl.Module) mtl.Module) func(mtl.Module, *mtl.Env) mtl.Module {
		return func(m mtl.Module, _ *mtl.Env) mtl.Module { return f(m) }
	}
	for _, c := range []struct {
		caught string
		wrap   func(mtl.Module, *mtl.Env) mtl.Module
	}{
		{"SynchronousSendWaitsForItsMatch", plain(func(m mtl.Module) mtl.Module { return asynchronous{m} })},
		{"ReceiveFromOneSourceIgnoresOthers", plain(func(m mtl.Module) mtl.Module { return wild{m} })},
		{"EveryBitOfIdAndTagIsMatched", plain(func(m mtl.Module) mtl.Module { return narrow{m} })},
		{"EveryBitOfTheEndpointIsMatched", plain(func(m mtl.Module) mtl.Module { return whole{m} })},
		{"SynchronousSendsOfEndpointsAreAnsweredEach", plain(func(m mtl.Module) mtl.Module { return asynchronous{m} })},
		{"ProbeTellsAndLeavesTheMessage", plain(func(m mtl.Module) mtl.Module { return peeks{m} })},
		{"ProbesFindWhatManyReceivesLeave", plain(func(m mtl.Module) mtl.Module { return blocked{m, new(int)} })},
		{"CanceledReceiveTakesNothing", plain(func(m mtl.Module) mtl.Module { return hasty{m} })},
		{"ReceivesAreWithdrawnInTheOrderOfTheCancels", plain(func(m mtl.Module) mtl.Module { return reorders{m, new([]*mtl.Op)} })},
		{"CloseWithEverythingInProgress", plain(func(m mtl.Module) mtl.Module { return late{m, map[*mtl.Op]bool{}} })},
		{"ForgetEndsTheSendsToThatPeerOnly", plain(func(m mtl.Module) mtl.Module { return loyal{m} })},
		{"MessagesOfTheForgottenAreReceivedWholeOrNotAtAll", plain(func(m mtl.Module) mtl.Module { return silent{m} })},
		{"ControlReceivesAreNeverUsedUp", func(m mtl.Module, env *mtl.Env) mtl.Module {
			if m == nil {
				env.Upcall = deafens{env.Upcall, new(int)}
			}
			return m
		}},
	} {
		t.Run(c.caught, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			one, _ := Cases(Subject{Component: broken{NewMemory(Options{ByProcess: true, EndpointBits: 2}).Component(), c.wrap}}).Named(c.caught)
			if err := one.Do(ctx); err == nil {
				t.Error("the kit finds nothing")
			}
		})
	}
	if errs := Cases(reference(Options{})).Check(t.Context()); len(errs) > 0 {
		t.Errorf("what keeps its promises: %v", errs)
	}
}

// opensNothing returns neither a module nor an error from Open.
type opensNothing struct{ mtl.Component }

func (opensNothing) Open(context.Context, mtl.Env) (mtl.Module, error) { return nil, nil }

// withoutCaps is a module with Caps of zeros.
type withoutCaps struct{ mtl.Module }

func (withoutCaps) Caps() mtl.Caps { return mtl.Caps{} }

func TestKit_ModuleMissingOrWithoutCaps_ReturnsErrConfig(t *testing.T) {
	reference := reference(Options{})
	zero := broken{reference.Component, func(m mtl.Module, _ *mtl.Env) mtl.Module { return withoutCaps{m} }}
	for rule, c := range map[string]mtl.Component{"neither a module": opensNothing{reference.Component}, "Caps.CIDBits is 0": zero} {
		errs := Cases(Subject{Component: c})[:1].Check(t.Context())
		if len(errs) != 1 || !errors.Is(errs[0], framework.ErrConfig) || !strings.Contains(errs[0].Error(), rule) {
			t.Errorf("%v, want one ErrConfig with %q", errs, rule)
		}
	}
}
