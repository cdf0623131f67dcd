package btltest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btlfault"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// brokenComponent wraps a component. It breaks one rule or hides its abilities.
type brokenComponent struct {
	btl.Component
	endpoint func(btl.Endpoint) btl.Endpoint
	upcall   func(btl.Receiver) btl.Receiver
	caps     func(btl.Caps) btl.Caps
}

func (b brokenComponent) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	if b.upcall != nil {
		env.Upcall = b.upcall(env.Upcall)
	}
	m, err := b.Component.Open(ctx, env)
	return &brokenModule{m, b}, err
}

type brokenModule struct {
	btl.Module
	b brokenComponent
}

func (m *brokenModule) Caps() btl.Caps {
	if m.b.caps != nil {
		return m.b.caps(m.Module.Caps())
	}
	return m.Module.Caps()
}

func (m *brokenModule) Connect(p framework.Peer) (btl.Endpoint, error) {
	ep, err := m.Module.Connect(p)
	if err == nil && m.b.endpoint != nil {
		ep = m.b.endpoint(ep)
	}
	return ep, err
}

// wholeCommit sends the whole reservation.
type wholeCommit struct {
	btl.Endpoint
	n int
}

func (e *wholeCommit) Reserve(n int, at btl.Placement) []byte {
	e.n = n
	return e.Endpoint.Reserve(n, at)
}
func (e *wholeCommit) Commit(int) { e.Endpoint.Commit(e.n) }

// halfShort drops half of the payload.
type halfShort struct{ btl.Endpoint }

func (e halfShort) SendShort(h btl.ShortHeader, payload []byte) bool {
	return btl.Short(e.Endpoint).SendShort(h, payload[:(len(payload)+1)/2])
}

// earlyCompletion reports the completion of a payload too early.
type earlyCompletion struct{ btl.Endpoint }

func (e earlyCompletion) Gather(header, payload []byte, c btl.LocalCompletion) bool {
	g, _ := framework.As[btl.Gatherer](e.Endpoint)
	if !g.Gather(header, payload, ignoreCompletion{}) {
		return false
	}
	c.LocallyComplete()
	return true
}

// silentCompletion never reports the completion of a payload.
type silentCompletion struct{ btl.Endpoint }

func (e silentCompletion) Gather(header, payload []byte, _ btl.LocalCompletion) bool {
	g, _ := framework.As[btl.Gatherer](e.Endpoint)
	return g.Gather(header, payload, ignoreCompletion{})
}

type ignoreCompletion struct{}

func (ignoreCompletion) LocallyComplete() {}

// stubbornReceiver continues to place a payload after the end of the receive.
type stubbornReceiver struct{ btl.Receiver }

func (r stubbornReceiver) Accept(peer framework.Incarnation) btl.Inbound {
	return &stubbornInbound{Inbound: r.Receiver.Accept(peer)}
}

type stubbornInbound struct {
	btl.Inbound
	dst []byte
}

func (p *stubbornInbound) Place(header []byte, size int) []byte {
	if dst := p.Inbound.Place(header, size); dst != nil {
		p.dst = dst
	}
	return p.dst
}

func (p *stubbornInbound) Placed([]byte, int) error {
	p.dst = nil
	return nil
}

// growingEndpoint queues frames that the path does not accept.
type growingEndpoint struct {
	btl.Endpoint
	kept [][]byte
}

func (e *growingEndpoint) Reserve(n int, _ btl.Placement) []byte {
	e.kept = append(e.kept, make([]byte, n))
	return e.kept[len(e.kept)-1]
}

func (e *growingEndpoint) Commit(n int) {
	for len(e.kept) > 0 {
		b := e.Endpoint.Reserve(len(e.kept[0]), btl.RingStart)
		if b == nil {
			return
		}
		e.Endpoint.Commit(copy(b, e.kept[0]))
		e.kept = e.kept[1:]
	}
}

// downTwice reports the end of a path twice.
type downTwice struct{ btl.Receiver }

func (r downTwice) PathDown(p framework.Incarnation, err error) {
	r.Receiver.PathDown(p, err)
	r.Receiver.PathDown(p, err)
}

// placeless receives payloads as frames only.
type placeless struct{ btl.Receiver }

func (r placeless) Accept(peer framework.Incarnation) btl.Inbound {
	return placelessInbound{r.Receiver.Accept(peer)}
}

type placelessInbound struct{ btl.Inbound }

func (placelessInbound) Place([]byte, int) []byte { return nil }

// firstCommit sends the contents of the first reservation.
type firstCommit struct {
	btl.Endpoint
	first []byte
}

func (e *firstCommit) Reserve(n int, at btl.Placement) []byte {
	b := e.Endpoint.Reserve(n, at)
	if e.first == nil {
		e.first = b
	} else if b != nil {
		b = make([]byte, n)
	}
	return b
}

func (e *firstCommit) Commit(n int) {
	e.first = nil
	e.Endpoint.Commit(n)
}

// halfPlacement drops the second half of a frame that is placed into the whole ring.
type halfPlacement struct {
	btl.Endpoint
	frame, copied []byte
}

func (e *halfPlacement) Reserve(n int, at btl.Placement) []byte {
	e.frame, e.copied = e.Endpoint.Reserve(n, at), nil
	if at == btl.RingStart || e.frame == nil {
		return e.frame
	}
	e.copied = make([]byte, n)
	return e.copied
}

func (e *halfPlacement) Commit(n int) {
	copy(e.frame, e.copied[:len(e.copied)/2])
	e.frame, e.copied = nil, nil
	e.Endpoint.Commit(n)
}

// A kit that never fails proves nothing.
func TestKit_BrokenRule_FailsItsCase(t *testing.T) {
	memory := NewMemory(Options{Step: 1000})
	for _, c := range []struct {
		caught string
		broken brokenComponent
	}{
		{"ShortSendIsAtomic", brokenComponent{endpoint: func(e btl.Endpoint) btl.Endpoint { return halfShort{e} }}},
		{"EachPlacementCarriesFrames", brokenComponent{endpoint: func(e btl.Endpoint) btl.Endpoint { return &halfPlacement{Endpoint: e} }}},
		{"EachPlacementCarriesFrames", brokenComponent{caps: func(c btl.Caps) btl.Caps { c.Ring = c.FrameLimit - 1; return c }}},
		{"GatheredPayloadCompletesOnce", brokenComponent{Component: memory, endpoint: func(e btl.Endpoint) btl.Endpoint { return earlyCompletion{e} }}},
		{"GatheredPayloadCompletesOnce", brokenComponent{Component: memory, endpoint: func(e btl.Endpoint) btl.Endpoint { return silentCompletion{e} }}},
		{"EndedReceiveStopsPlacement", brokenComponent{Component: memory, upcall: func(r btl.Receiver) btl.Receiver { return stubbornReceiver{r} }}},
		{"OnlyCommittedBytesAreSent", brokenComponent{endpoint: func(e btl.Endpoint) btl.Endpoint { return &wholeCommit{Endpoint: e} }}},
		{"OnlyCommittedBytesAreSent", brokenComponent{endpoint: func(e btl.Endpoint) btl.Endpoint { return &firstCommit{Endpoint: e} }}},
		{"FullPathBlocksInsteadOfGrowing", brokenComponent{endpoint: func(e btl.Endpoint) btl.Endpoint { return &growingEndpoint{Endpoint: e} }}},
		{"RefusedFrameEndsThePathOnce", brokenComponent{upcall: func(r btl.Receiver) btl.Receiver { return downTwice{r} }}},
		{"CapsArePlausibleAndFixed", brokenComponent{caps: func(c btl.Caps) btl.Caps { c.EagerLimit = c.FrameLimit + 1; return c }}},
	} {
		t.Run(c.caught, func(t *testing.T) {
			if c.broken.Component == nil {
				c.broken.Component = self.Component()
			}
			one, _ := Cases(Subject{Component: c.broken}).Named(c.caught)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits the waits for missing events.
			defer cancel()
			if err := one.Do(ctx); err == nil {
				t.Error("the kit passes")
			}
		})
	}
}

// The reference implementation is tested with all combinations of its abilities.
func TestMemory_AllAbilities_PassesTheKit(t *testing.T) {
	memory := func(opt Options) btl.Component { return NewMemory(opt) }
	for name, c := range map[string]btl.Component{
		"all abilities":     memory(Options{}),
		"plain":             brokenComponent{Component: memory(Options{}), endpoint: func(e btl.Endpoint) btl.Endpoint { return struct{ btl.Endpoint }{e} }},
		"without placement": brokenComponent{Component: memory(Options{}), upcall: func(r btl.Receiver) btl.Receiver { return placeless{r} }},
		"places in steps":   memory(Options{Step: 777}),
		"smallest":          memory(Options{EagerLimit: 1, FrameLimit: btl.MinFrameLimit, Step: 100}),
	} {
		t.Run(name, func(t *testing.T) { Cases(Subject{Component: c}).Run(t) })
	}
}

// The kit's message names the fault of the network.
func TestKit_FrameFault_MessageNamesIt(t *testing.T) {
	for says, plan := range map[string]btlfault.Plan{
		"is missing":          {Drop: 20},
		"arrived twice":       {Duplicate: 20},
		"arrived after frame": {Reorder: 20},
		"got ":                {Corrupt: 20},
	} {
		t.Run(strings.TrimSpace(says), func(t *testing.T) {
			one, _ := Cases(Subject{Component: btlfault.Wrap(self.Component(), plan)}).Named("FramesOfEverySizeArriveWholeAndInOrder")
			if err := one.Do(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestNull_PassesTheKit(t *testing.T) { Cases(Subject{Component: Null()}).Run(t) }

// opensNothing returns neither a module nor an error from Open.
type opensNothing struct{ btl.Component }

func (opensNothing) Open(context.Context, btl.Env) (btl.Module, error) { return nil, nil }

func TestKit_ModuleMissingOrWithoutCaps_ReturnsErrConfig(t *testing.T) {
	zero := brokenComponent{Component: self.Component(), caps: func(btl.Caps) btl.Caps { return btl.Caps{} }}
	for rule, c := range map[string]btl.Component{"neither a module": opensNothing{self.Component()}, "Caps.FrameLimit is 0": zero} {
		one, _ := Cases(Subject{Component: c}).Named("FramesOfEverySizeArriveWholeAndInOrder")
		errs := kittest.Cases{one}.Check(t.Context())
		if len(errs) != 1 || !errors.Is(errs[0], framework.ErrConfig) || !strings.Contains(errs[0].Error(), rule) {
			t.Errorf("%v, want one ErrConfig with %q", errs, rule)
		}
	}
}
