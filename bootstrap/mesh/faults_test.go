package mesh

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// onBothNetworks runs a test over Unix sockets and over TCP.
func onBothNetworks(t *testing.T, f func(t *testing.T, on network)) {
	for _, on := range []network{unix, tcp} {
		t.Run(on.String(), func(t *testing.T) { f(t, on) })
	}
}

// collectEvents returns the events of a client.
func collectEvents(c *client) <-chan bootstrap.Event {
	ch := make(chan bootstrap.Event, 64)
	c.OnEvent(func(e bootstrap.Event) { ch <- e })
	return ch
}

func nextEvent(t *testing.T, ch <-chan bootstrap.Event) bootstrap.Event {
	t.Helper()
	select {
	case e := <-ch:
		return e
	case <-time.After(30 * time.Second):
		t.Fatal("no event")
		return bootstrap.Event{}
	}
}

func noEvent(t *testing.T, ch <-chan bootstrap.Event) {
	t.Helper()
	select {
	case e := <-ch:
		t.Errorf("event %+v", e)
	default:
	}
}

// checkFailed fails the test unless err names exactly those processes as failed.
func checkFailed(t *testing.T, what string, err error, procs ...framework.Proc) {
	t.Helper()
	var m *framework.MissingError
	if !errors.Is(err, framework.ErrProcFailed) || !errors.As(err, &m) || !slices.Equal(m.Failed, procs) || len(m.Missing) > 0 {
		t.Errorf("%s: %v, want the failure of %v", what, err, procs)
	}
}

// eventually waits for a condition that other goroutines establish.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// connectedTo reports whether c has a connection to rank.
func (c *client) connectedTo(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[uint32(rank)]
	return p != nil && len(p.links) > 0
}

// knowsIncarnation reports whether c has a connection to rank, and knows its incarnation.
func (c *client) knowsIncarnation(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[uint32(rank)]
	return p != nil && len(p.links) > 0 && p.incarnation != 0
}

// The coordinator ends in various ways. The others still receive each other's events.
func TestEvents_CoordinatorHasEnded_ReachAll(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		for what, goes := range map[string]func(*client) error{"dies": (*client).Crash, "closes": (*client).Close} {
			t.Run(what, func(t *testing.T) {
				j := newTestJob(t, on, 5)
				cs := j.openAll()
				for r, c := range cs {
					c.BeginIncarnation(uint64(100 + r))
				}
				j.fence("start", cs...)
				for head := range 3 {
					heard := collectEvents(cs[4])
					if err := goes(cs[head]); err != nil {
						t.Fatal(err)
					}
					for {
						if e := nextEvent(t, heard); e.Proc == j.proc(head) && e.Nonce == uint64(100+head) {
							break
						}
					}
					eventually(t, "the others are connected to the next", func() bool {
						return cs[4].knowsIncarnation(head+1) && (head == 2 || cs[3].knowsIncarnation(head+1))
					})
				}
				heard := collectEvents(cs[4])
				for len(heard) > 0 { // Earlier events.
					<-heard
				}
				cs[3].ReportBroken(cid.Extended{Base: 9}, j.world(), "a reason")
				if e := nextEvent(t, heard); e.Kind != bootstrap.CommBroken {
					// A new callback receives earlier deaths again.
					for e.Kind == bootstrap.PeerFailed && e.Proc != j.proc(3) {
						e = nextEvent(t, heard)
					}
					if e.Kind != bootstrap.CommBroken {
						t.Errorf("event %+v", e)
					}
				}
				if err := cs[3].Crash(); err != nil {
					t.Fatal(err)
				}
				if e := nextEvent(t, heard); e.Kind != bootstrap.PeerFailed || e.Proc != j.proc(3) || e.Nonce != 103 {
					t.Errorf("event %+v", e)
				}
			})
		}
	})
}

func TestDeath_NoCoordinatorIsConnected_IsReported(t *testing.T) {
	j := newTestJob(t, unix, 4)
	cs := j.openAll()
	j.fence("start", cs...)
	heard := collectEvents(cs[1])
	if err := errors.Join(cs[0].Crash(), cs[3].Crash()); err != nil {
		t.Fatal(err)
	}
	dead := map[framework.Proc]bool{}
	for len(dead) < 2 {
		e := nextEvent(t, heard)
		dead[e.Proc] = e.Kind == bootstrap.PeerFailed
	}
	if !dead[j.proc(0)] || !dead[j.proc(3)] {
		t.Errorf("dead are %v", dead)
	}
}

func TestClose_AllAtOnce_ReportsNoDeath(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 24)
		cs := j.openAll()
		var heard []<-chan bootstrap.Event
		for r, c := range cs {
			c.BeginIncarnation(uint64(r + 1))
			heard = append(heard, collectEvents(c))
		}
		j.fence("start", cs...)
		if err := inAll(cs, (*client).Close); err != nil {
			t.Fatal(err)
		}
		for _, ch := range heard {
			for len(ch) > 0 {
				if e := <-ch; e.Kind != bootstrap.PeerLeft {
					t.Fatalf("event %+v", e)
				}
			}
		}
	})
}

// The dead process may have been the coordinator.
func TestGet_OwnerIsDead_ReturnsReplica(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		for victim := range 3 {
			j := newTestJob(t, on, 3)
			cs := j.openAll()
			for i := range 40 { // More than the limit of unread bytes.
				if err := cs[victim].Put(t.Context(), fmt.Sprint(i), make([]byte, bootstrap.MaxValue)); err != nil {
					t.Fatal(err)
				}
			}
			j.fence("start", cs...)
			if err := cs[victim].Put(t.Context(), "1", []byte("newer")); err != nil {
				t.Fatal(err)
			}
			j.fence("again", cs...)
			if err := cs[victim].Crash(); err != nil {
				t.Fatal(err)
			}
			for r, c := range cs {
				if r == victim {
					continue
				}
				v, err := c.Get(t.Context(), j.proc(victim), "0")
				w, err2 := c.Get(t.Context(), j.proc(victim), "1")
				if err != nil || err2 != nil || len(v) != bootstrap.MaxValue || string(w) != "newer" {
					t.Errorf("rank %d of rank %d: %d bytes, %v, %q, %v", r, victim, len(v), err, w, err2)
				}
				_, err = c.Get(t.Context(), j.proc(victim), "never put")
				checkFailed(t, "get of what was not put", err, j.proc(victim))
			}
		}
	})
}

func TestCall_IsCanceled_LeavesNothingPending(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		j.fence("start", cs...)
		cause := errors.New("a cause")
		for name, call := range map[string]func(context.Context) error{
			"fence": func(ctx context.Context) error { return cs[1].Fence(ctx, j.world(), "t") },
			"get":   func(ctx context.Context) error { _, err := cs[1].Get(ctx, j.proc(0), "never"); return err },
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() { done <- call(ctx) }()
			eventually(t, name+" waits at rank 0", func() bool { return waitingRequests(cs[0]) == 1 })
			cancel(cause)
			if err := <-done; !errors.Is(err, cause) || errors.Is(err, framework.ErrTimeout) {
				t.Errorf("%s: %v", name, err)
			}
			if n := waitingRequests(cs[0]); n != 0 {
				t.Errorf("%s: %d requests still wait at rank 0", name, n)
			}
		}
		j.fence("t", cs...)
	})
}

// waitingRequests returns the number of requests of others that wait at c.
func waitingRequests(c *client) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.links {
		n += len(l.pendingRequests)
	}
	return n
}

func TestDeadline_AtOneMember_NamesMissingToAll(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 5)
		long := j.open(0)
		j.env.Timeout = 300 * time.Millisecond
		short := j.open(3)
		err := inAll([]*client{long, short}, func(c *client) error {
			err := c.Fence(t.Context(), j.world(), "t")
			var m *framework.MissingError
			if !errors.As(err, &m) || !slices.Equal(m.Missing, []framework.Proc{j.proc(1), j.proc(2), j.proc(4)}) {
				return fmt.Errorf("%w, want ranks 1, 2 and 4", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestDeadline_CoordinatorIsAbsent_IsNamed(t *testing.T) {
	j := newTestJob(t, unix, 2)
	j.env.Timeout = 200 * time.Millisecond
	c := j.open(1)
	err := c.Fence(t.Context(), j.world(), "t")
	var m *framework.MissingError
	if !errors.As(err, &m) || !slices.Equal(m.Missing, []framework.Proc{j.proc(0)}) || !strings.Contains(err.Error(), "published no entry") {
		t.Errorf("%v", err)
	}
}

func TestDisconnect_UnconnectedPeer_ReceivesIt(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		cs[1].BeginIncarnation(5)
		cs[2].BeginIncarnation(6)
		j.fence("start", cs...)
		heard := collectEvents(cs[2])
		cs[1].Disconnect(j.proc(2), 6, "no way")
		if e := nextEvent(t, heard); e != (bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: j.proc(1), Nonce: 5, Reason: "no way"}) {
			t.Errorf("event %+v", e)
		}
	})
}

// Two processes that connect to each other at the same time have two connections.
func TestConnect_BothEndsAtOnce_BothLinksWork(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		for range 30 {
			j := newTestJob(t, on, 2)
			cs := j.openAll()
			err := inAll(cs, func(c *client) error {
				me := int(c.id.Proc.Rank)
				if err := c.Put(t.Context(), "k", []byte{byte(me)}); err != nil {
					return err
				}
				v, err := c.Get(t.Context(), j.proc(1-me), "k")
				if err == nil && int(v[0]) != 1-me {
					err = fmt.Errorf("got %v", v)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			heard := collectEvents(cs[1])
			j.fence("t", cs...)
			if err := cs[0].Close(); err != nil {
				t.Fatal(err)
			}
			noEvent(t, heard)
		}
	})
}

func TestConnectionBreaks_BothAlive_IsRestored(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		j.fence("start", cs...)
		heard := []<-chan bootstrap.Event{collectEvents(cs[0]), collectEvents(cs[1])}
		waiting := make(chan error, 1)
		go func() { waiting <- cs[1].Fence(t.Context(), j.world(), "t") }()
		eventually(t, "rank 1 waits at rank 0", func() bool { return waitingRequests(cs[0]) == 1 })
		cs[0].mu.Lock()
		cs[0].peers[1].links[0].drop()
		cs[0].mu.Unlock()
		// The peer may have withdrawn the call.
		if err := <-waiting; !errors.Is(err, framework.ErrTransport) || errors.Is(err, framework.ErrProcFailed) {
			t.Errorf("%v", err)
		}
		// Before that, the others would take it for the next one.
		eventually(t, "rank 0 has withdrawn the call", func() bool { return waitingRequests(cs[0]) == 0 })
		j.fence("t", cs...)
		for _, ch := range heard {
			noEvent(t, ch)
		}
	})
}

// watchedLauncher is a launcher with events.
type watchedLauncher struct {
	launcher
	f func(bootstrap.Event)
}

func (l *watchedLauncher) Watch(f func(bootstrap.Event)) { l.f = f }

func TestWatcher_Events_ReachClients(t *testing.T) {
	j := newTestJob(t, unix, 3)
	l := &watchedLauncher{launcher: launcher{j.addressBook, 0}}
	c, err := openOn(t.Context(), unix, l, j.env)
	if err != nil {
		t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	other := j.open(1)
	other.BeginIncarnation(7)
	j.fence("start", c, other)
	heard := collectEvents(c)
	l.f(bootstrap.Event{Kind: bootstrap.ServerLost, Reason: "r"})
	if e := nextEvent(t, heard); e.Kind != bootstrap.ServerLost {
		t.Errorf("event %+v", e)
	}
	l.f(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: j.proc(1), Reason: "the launcher says so"})
	if e := nextEvent(t, heard); e.Kind != bootstrap.PeerFailed || e.Proc != j.proc(1) || e.Nonce != 7 {
		t.Errorf("event %+v", e)
	}
	checkFailed(t, "fence", c.Fence(t.Context(), j.world()[:2], "t"), j.proc(1))
	if err := c.Close(); err != nil || l.f != nil {
		t.Errorf("close: %v; still watching: %t", err, l.f != nil)
	}
}
