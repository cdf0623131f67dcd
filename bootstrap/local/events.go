package local

import (
	"slices"
	"strings"
	"sync"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/internal/wire"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// events keeps what a later OnEvent must still hear, and delivers one event at
// a time, on a goroutine that lives while there is something to deliver.
type events struct {
	mu      sync.Mutex
	f       func(bootstrap.Event)
	history []bootstrap.Event // deaths, and the loss of the server
	queue   []bootstrap.Event
	running bool
	stopped bool
	spawn   func(func()) // starts a goroutine that Close waits for
}

// add takes an event in.
func (e *events) add(ev bootstrap.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ev.Kind == bootstrap.ProcDied || ev.Kind == bootstrap.ServerLost {
		e.history = append(e.history, ev)
	}
	if e.f != nil {
		e.queue = append(e.queue, ev)
	}
	e.startLocked()
}

// set makes f the receiver, of the past first.
func (e *events) set(f func(bootstrap.Event)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.f, e.queue = f, nil
	if f != nil {
		e.queue = slices.Clone(e.history)
	}
	e.startLocked()
}

func (e *events) startLocked() {
	if e.running || e.stopped || len(e.queue) == 0 {
		return
	}
	e.running = true
	e.spawn(e.run)
}

func (e *events) run() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) > 0 {
		f, ev := e.f, e.queue[0]
		e.queue = e.queue[1:]
		e.mu.Unlock()
		f(ev)
		e.mu.Lock()
	}
	e.running = false
}

// stop ends delivery; the goroutine may still be in its last call.
func (e *events) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped, e.queue = true, nil
}

// Begin tells the server of a life. If that is gone nobody hears of a death.
func (c *client) Begin(nonce uint64) { c.begin(nonce) }

// End implements bootstrap.EventSource.
func (c *client) End() { c.begin(0) }

func (c *client) begin(nonce uint64) {
	c.mu.Lock()
	c.life = nonce
	c.mu.Unlock()
	_, _ = c.send(wire.Life, 0, wire.LifeBody{Nonce: nonce})
}

// GiveUp implements bootstrap.EventSource. Whoever is not of this job hears nothing; nor
// does anybody while the launcher does not read.
func (c *client) GiveUp(p framework.Proc, nonce uint64, reason string) {
	if p.Namespace == c.id.Proc.Namespace {
		c.tell(wire.GiveUp, wire.GiveUpBody{Rank: p.Rank, Nonce: nonce, Reason: cut(reason)})
	}
}

// Broke implements bootstrap.EventSource. Who is not of this job hears nothing.
func (c *client) Broke(comm cid.Extended, members []framework.Proc, reason string) {
	news := wire.BrokeBody{Comm: comm.Bytes(), Reason: cut(reason)}
	for _, p := range members {
		if p.Namespace == c.id.Proc.Namespace {
			news.Ranks = append(news.Ranks, p.Rank)
		}
	}
	c.tell(wire.Broke, news)
}

// cut returns as much of a reason as travels.
func cut(reason string) string {
	if len(reason) <= bootstrap.MaxName {
		return reason
	}
	return strings.ToValidUTF8(reason[:bootstrap.MaxName], "")
}

// tell sends news, unless the launcher does not read.
func (c *client) tell(k wire.Kind, news any) {
	c.mu.Lock()
	unread := c.out.bytes
	c.mu.Unlock()
	if unread < mostNews {
		_, _ = c.send(k, 0, news)
	}
}

func (c *client) OnEvent(f func(bootstrap.Event)) { c.events.set(f) }
