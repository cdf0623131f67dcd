package assembly

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

// endless is a client with group constructs that block until their context ends.
type endless struct {
	bootstrap.Client
	entered chan struct{}
}

func (c *endless) Unwrap() any { return c.Client }

func (c *endless) Construct(ctx context.Context, _ []framework.Proc, _ string, _ []byte) (bootstrap.Constructed, error) {
	close(c.entered)
	<-ctx.Done()
	return bootstrap.Constructed{}, ctx.Err()
}

func TestReportedDead_OwnIncarnation_EndsExchangeAndConstructs(t *testing.T) {
	watch := &watcher{make(chan struct{}), make(chan struct{})}
	a, events := newHanging().open(t, watch)
	defer a.Close()
	r := receiveFromNew(t, a, 1)
	client := &endless{a.client, make(chan struct{})}
	a.client = client
	self, group := events.Identity().Proc, []framework.Proc{events.Identity().Proc, {Namespace: "other", Rank: 1}}
	constructed := make(chan error)
	construct := func() {
		_, err := a.Construct(t.Context(), group, "test", nil)
		constructed <- err
	}
	go construct()
	<-client.entered
	events.event(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: self, Nonce: a.env.Self.Nonce + 1, Reason: "an earlier incarnation"})
	<-watch.died
	if a.isolationErr != nil {
		t.Error("the end of an earlier incarnation isolates the process")
	}
	watch.died = make(chan struct{})
	events.event(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: self, Nonce: a.env.Self.Nonce, Reason: "test"})
	<-watch.died
	errs := map[string]error{"receive": r.wait(t), "construct": <-constructed}
	go construct()
	errs["later construct"] = <-constructed
	errs["receive of a process that comes late"] = receiveFromNew(t, a, 2).wait(t)
	for what, err := range errs {
		if !errors.Is(err, framework.ErrProcFailed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if dead := a.Failed(); !slices.Contains(dead, Failure{a.env.Self, "test"}) {
		t.Errorf("dead are %v", dead)
	}
}

// slowWatcher is a Watcher that blocks in PeerChanged after a failure.
type slowWatcher struct {
	watcher
	resume chan struct{}
	gone   []framework.Incarnation
}

func (w *slowWatcher) PeerChanged(ev framework.PeerEvent) {
	if ev.State == framework.Failed {
		close(w.died)
		<-w.resume
		return
	}
	w.gone = append(w.gone, ev.Peer)
}

// TestClose_ReportedDead_PeersAreGoneBefore because a PML that closes sends its peers a goodbye.
func TestClose_ReportedDead_PeersAreGoneBefore(t *testing.T) {
	watch := &slowWatcher{watcher{died: make(chan struct{})}, make(chan struct{}), nil}
	a, events := newHanging().open(t, watch)
	receiveFromNew(t, a, 1)
	events.event(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: events.Identity().Proc, Nonce: a.env.Self.Nonce, Reason: "test"})
	<-watch.died
	closed := make(chan error)
	go func() { closed <- a.Close() }()
	for isClosing := false; !isClosing; {
		a.upcalls.Lock()
		isClosing = a.upcalls.isClosing
		a.upcalls.Unlock()
	}
	close(watch.resume)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if len(watch.gone) != 1 {
		t.Errorf("gone peers are %v, want one", watch.gone)
	}
}
