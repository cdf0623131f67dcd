package assembly

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/self"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/components"
	"github.com/ferrympi/ferry/framework"
)

// hanging is a BTL with a module that blocks in Poll after hang, until goOn is closed.
type hanging struct {
	btl.Component
	entered, goOn chan struct{}
}

func newHanging() *hanging {
	return &hanging{Component: self.Component(), entered: make(chan struct{}), goOn: make(chan struct{})}
}

func (h *hanging) Info() framework.Info {
	info := h.Component.Info()
	info.Name = "hanging"
	return info
}

func (h *hanging) Open(ctx context.Context, env btl.Env) (btl.Module, error) {
	m, err := h.Component.Open(ctx, env)
	return &hangingModule{m, h, false}, err
}

type hangingModule struct {
	btl.Module
	*hanging
	now bool
}

func (m *hangingModule) Unwrap() any { return m.Module }

func (m *hangingModule) Poll() int {
	if m.now {
		m.now = false
		close(m.entered)
		<-m.goOn
	}
	return m.Module.Poll()
}

// eventful is the client of a singleton. The test sends its events.
type eventful struct {
	bootstrap.Client
	event func(bootstrap.Event)
}

func (e *eventful) BeginIncarnation(uint64)                             {}
func (e *eventful) EndIncarnation()                                     {}
func (e *eventful) Disconnect(framework.Proc, uint64, string)           {}
func (e *eventful) ReportBroken(cid.Extended, []framework.Proc, string) {}

func (e *eventful) OnEvent(f func(bootstrap.Event)) { e.event = f }

type watcher struct{ died, dumped chan struct{} }

func (w *watcher) PeerChanged(ev framework.PeerEvent) {
	if ev.State == framework.Failed {
		close(w.died)
	}
}
func (w *watcher) CollectivesBroken(cid.Extended, framework.Proc, string) {}
func (w *watcher) CommRevoked(cid.Extended, framework.Proc)               {}
func (w *watcher) NoteReceived(framework.Incarnation, string)             {}
func (w *watcher) Dump(string)                                            { close(w.dumped) }

// open opens an assembly over the hanging BTL, with the given watcher.
func (h *hanging) open(t *testing.T, watch Watcher, more ...framework.Setting) (*Assembly, *eventful) {
	client, err := local.Component().Open(t.Context(), bootstrap.Env{Params: local.Component().Params()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	events, reg := &eventful{Client: client}, components.Standard()
	reg.Register(h)
	a, err := Open(t.Context(), Options{
		Registry: reg, Client: events, Watcher: watch,
		Settings: append(more, framework.Setting{Name: "btl", Value: "hanging"}, framework.Setting{Name: "pml", Value: "ob1"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a, events
}

// hang blocks the progress goroutine in Poll.
func (h *hanging) hang(a *Assembly) {
	e := a.Env().Engine
	e.Lock()
	a.transports[0].(*hangingModule).now = true
	e.Unlock()
	<-h.entered
}

func TestEvent_TransportHangs_DumpIsNotDelayed(t *testing.T) {
	hang, watch := newHanging(), &watcher{make(chan struct{}), make(chan struct{})}
	a, events := hang.open(t, watch)
	hang.hang(a)
	events.event(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: framework.Proc{Namespace: "other", Rank: 1}, Nonce: 5, Reason: "test"})
	events.event(bootstrap.Event{Kind: bootstrap.Dump})
	<-watch.dumped
	if dead := a.Failed(); len(dead) != 1 {
		t.Errorf("dead are %v", dead)
	}
	for _, m := range a.Upper() {
		if _, err := m.Inspect(t.Context()); err == nil {
			t.Errorf("pml %s inspects an engine that hangs", m.Name)
		}
	}
	select {
	case <-watch.died:
		t.Error("PMLs were notified while the engine hangs")
	default:
	}
	close(hang.goOn)
	<-watch.died
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestEvent_FailureWhileLearnWaits_IsListedAndDelivered(t *testing.T) {
	hang, watch := newHanging(), &watcher{make(chan struct{}), make(chan struct{})}
	a, events := hang.open(t, watch)
	hang.hang(a)
	other := framework.Proc{Namespace: "other", Rank: 1}
	incarnation := framework.Incarnation{ID: a.env.Worlds.ID(other), Nonce: 5}
	cards{a}.Find(incarnation.Nonce) // PMLs get the card at once then.
	result := make(chan error, 1)
	go func() {
		result <- a.learn(incarnation, other, wireup.Payload{Nonce: 5, Capabilities: a.encodedCapabilities, Card: a.ownCard.encodedCard})
	}()
	for !hasCards(a) {
		time.Sleep(time.Millisecond)
	}
	events.event(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: other, Reason: "test"}) // Without a nonce.
	events.event(bootstrap.Event{Kind: bootstrap.Dump})
	<-watch.dumped
	if dead := a.Failed(); len(dead) != 1 || dead[0] != (Failure{incarnation, "test"}) {
		t.Errorf("dead are %v", dead)
	}
	a.Constructs()
	close(hang.goOn)
	if err := <-result; err != nil {
		t.Error(err)
	}
	<-watch.died
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// hasCards reports whether the card of another process has come.
func hasCards(a *Assembly) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.peers.len() > 0
}

// blockingDumps is a Watcher with dumps that end on request.
type blockingDumps struct {
	Watcher
	begun chan string
	end   chan struct{}
}

func (b *blockingDumps) Dump(kind string) {
	b.begun <- kind
	<-b.end
}

// A request for the blocked calls is not lost because the process reports something else.
func TestEvent_DumpOfAnotherKind_DoesNotWait(t *testing.T) {
	dumps := &blockingDumps{Watcher: &watcher{}, begun: make(chan string, mostDumps), end: make(chan struct{})}
	a, events := newHanging().open(t, dumps)
	for _, kind := range []string{"traffic", "report", "report", "traffic"} {
		events.event(bootstrap.Event{Kind: bootstrap.Dump, Reason: kind})
	}
	got := []string{<-dumps.begun, <-dumps.begun}
	slices.Sort(got)
	close(dumps.end)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if len(dumps.begun) > 0 || !slices.Equal(got, []string{"report", "traffic"}) {
		t.Errorf("dumps of %q, and %d more", got, len(dumps.begun))
	}
}
