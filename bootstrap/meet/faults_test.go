package meet

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

// both runs a test over Unix sockets and over TCP.
func both(t *testing.T, f func(t *testing.T, on network)) {
	for _, on := range []network{unix, tcp} {
		t.Run(on.String(), func(t *testing.T) { f(t, on) })
	}
}

// listen returns what a client hears.
func listen(c *client) <-chan bootstrap.Event {
	ch := make(chan bootstrap.Event, 64)
	c.OnEvent(func(e bootstrap.Event) { ch <- e })
	return ch
}

func next(t *testing.T, ch <-chan bootstrap.Event) bootstrap.Event {
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

// failed fails the test unless err says that exactly those have failed.
func failed(t *testing.T, what string, err error, procs ...framework.Proc) {
	t.Helper()
	var m *framework.MissingError
	if !errors.Is(err, framework.ErrProcFailed) || !errors.As(err, &m) || !slices.Equal(m.Failed, procs) || len(m.Missing) > 0 {
		t.Errorf("%s: %v, want the failure of %v", what, err, procs)
	}
}

// eventually waits for what other goroutines are about to do.
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

// knows reports whether c has a connection to rank, and has heard of its life.
func (c *client) knows(rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[uint32(rank)]
	return p != nil && len(p.links) > 0 && p.incarnation != 0
}

// When the process through which all were connected goes, in whatever way, those who stay
// still hear of one another's ends, and communicators that break.
func TestNewsFindsAllWhenTheHeadHasGone(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		for what, goes := range map[string]func(*client) error{"dies": (*client).Crash, "closes": (*client).Close} {
			t.Run(what, func(t *testing.T) {
				j := newTestJob(t, on, 5)
				cs := j.openAll()
				for r, c := range cs {
					c.Begin(uint64(100 + r))
				}
				j.fence("start", cs...)
				for head := range 3 {
					heard := listen(cs[4])
					if err := goes(cs[head]); err != nil {
						t.Fatal(err)
					}
					for {
						if e := next(t, heard); e.Proc == j.proc(head) && e.Nonce == uint64(100+head) {
							break
						}
					}
					eventually(t, "the others are connected to the next", func() bool {
						return cs[4].knows(head+1) && (head == 2 || cs[3].knows(head+1))
					})
				}
				heard := listen(cs[4])
				for len(heard) > 0 { // of before
					<-heard
				}
				cs[3].Broke(cid.Extended{Base: 9}, j.world(), "a reason")
				if e := next(t, heard); e.Kind != bootstrap.Broken {
					// Deaths of before are told again to a new listener.
					for e.Kind == bootstrap.ProcDied && e.Proc != j.proc(3) {
						e = next(t, heard)
					}
					if e.Kind != bootstrap.Broken {
						t.Errorf("event %+v", e)
					}
				}
				if err := cs[3].Crash(); err != nil {
					t.Fatal(err)
				}
				if e := next(t, heard); e.Kind != bootstrap.ProcDied || e.Proc != j.proc(3) || e.Nonce != 103 {
					t.Errorf("event %+v", e)
				}
			})
		}
	})
}

// A member that dies while there is no head is missed by the next one.
func TestDeathBetweenTwoHeadsIsFound(t *testing.T) {
	j := newTestJob(t, unix, 4)
	cs := j.openAll()
	j.fence("start", cs...)
	heard := listen(cs[1])
	if err := errors.Join(cs[0].Crash(), cs[3].Crash()); err != nil {
		t.Fatal(err)
	}
	dead := map[framework.Proc]bool{}
	for len(dead) < 2 {
		e := next(t, heard)
		dead[e.Proc] = e.Kind == bootstrap.ProcDied
	}
	if !dead[j.proc(0)] || !dead[j.proc(3)] {
		t.Errorf("dead are %v", dead)
	}
}

func TestJobThatClosesAtOnceIsNoDeath(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 24)
		cs := j.openAll()
		var heard []<-chan bootstrap.Event
		for r, c := range cs {
			c.Begin(uint64(r + 1))
			heard = append(heard, listen(c))
		}
		j.fence("start", cs...)
		if err := inAll(cs, (*client).Close); err != nil {
			t.Fatal(err)
		}
		for _, ch := range heard {
			for len(ch) > 0 {
				if e := <-ch; e.Kind != bootstrap.ProcLeft {
					t.Fatalf("event %+v", e)
				}
			}
		}
	})
}

// What a process has put can be had when it has died, and so when it led the group.
func TestWhatTheDeadHavePutCanBeHad(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		for victim := range 3 {
			j := newTestJob(t, on, 3)
			cs := j.openAll()
			for i := range 40 { // together more than may lie unread
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
				failed(t, "get of what was not put", err, j.proc(victim))
			}
		}
	})
}

// A call that waits elsewhere is withdrawn there.
func TestCanceledCallLeavesNothingBehind(t *testing.T) {
	both(t, func(t *testing.T, on network) {
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
			eventually(t, name+" waits at rank 0", func() bool { return waitsAt(cs[0]) == 1 })
			cancel(cause)
			if err := <-done; !errors.Is(err, cause) || errors.Is(err, framework.ErrTimeout) {
				t.Errorf("%s: %v", name, err)
			}
			if n := waitsAt(cs[0]); n != 0 {
				t.Errorf("%s: %d requests still wait at rank 0", name, n)
			}
		}
		j.fence("t", cs...)
	})
}

// waitsAt returns how many requests of others wait at c.
func waitsAt(c *client) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l := range c.links {
		n += len(l.pendingRequests)
	}
	return n
}

func TestDeadlineAtAMemberNamesTheMissingToAll(t *testing.T) {
	both(t, func(t *testing.T, on network) {
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

func TestLeaderThatNeverComesIsNamed(t *testing.T) {
	j := newTestJob(t, unix, 2)
	j.env.Timeout = 200 * time.Millisecond
	c := j.open(1)
	err := c.Fence(t.Context(), j.world(), "t")
	var m *framework.MissingError
	if !errors.As(err, &m) || !slices.Equal(m.Missing, []framework.Proc{j.proc(0)}) || !strings.Contains(err.Error(), "published no entry") {
		t.Errorf("%v", err)
	}
}

func TestGiveUpFindsWhomItWasNeverConnectedWith(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		cs[1].Begin(5)
		cs[2].Begin(6)
		j.fence("start", cs...)
		heard := listen(cs[2])
		cs[1].GiveUp(j.proc(2), 6, "no way")
		if e := next(t, heard); e != (bootstrap.Event{Kind: bootstrap.GivenUp, Proc: j.proc(1), Nonce: 5, Reason: "no way"}) {
			t.Errorf("event %+v", e)
		}
	})
}

// Two processes that connect with each other at the same time have two connections, and
// that does no harm.
func TestConnectionsThatCross(t *testing.T) {
	both(t, func(t *testing.T, on network) {
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
			heard := listen(cs[1])
			j.fence("t", cs...)
			if err := cs[0].Close(); err != nil {
				t.Fatal(err)
			}
			noEvent(t, heard)
		}
	})
}

// A connection that breaks though both ends live is not a death, and is made again.
func TestConnectionThatBreaksBetweenTheLiving(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		j.fence("start", cs...)
		heard := []<-chan bootstrap.Event{listen(cs[0]), listen(cs[1])}
		waiting := make(chan error, 1)
		go func() { waiting <- cs[1].Fence(t.Context(), j.world(), "t") }()
		eventually(t, "rank 1 waits at rank 0", func() bool { return waitsAt(cs[0]) == 1 })
		cs[0].mu.Lock()
		cs[0].peers[1].links[0].drop()
		cs[0].mu.Unlock()
		// It is not known whether the call has been withdrawn.
		if err := <-waiting; !errors.Is(err, framework.ErrTransport) || errors.Is(err, framework.ErrProcFailed) {
			t.Errorf("%v", err)
		}
		// Until it has, the others would take it for the next one.
		eventually(t, "rank 0 has withdrawn the call", func() bool { return waitsAt(cs[0]) == 0 })
		j.fence("t", cs...)
		for _, ch := range heard {
			noEvent(t, ch)
		}
	})
}

// told is a launcher that hears of things.
type told struct {
	launcher
	f func(bootstrap.Event)
}

func (l *told) Watch(f func(bootstrap.Event)) { l.f = f }

func TestLauncherThatHearsOfThings(t *testing.T) {
	j := newTestJob(t, unix, 3)
	l := &told{launcher: launcher{j.book, 0}}
	c, err := openOn(t.Context(), unix, l, j.env)
	if err != nil {
		t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	other := j.open(1)
	other.Begin(7)
	j.fence("start", c, other)
	heard := listen(c)
	l.f(bootstrap.Event{Kind: bootstrap.ServerLost, Reason: "r"})
	if e := next(t, heard); e.Kind != bootstrap.ServerLost {
		t.Errorf("event %+v", e)
	}
	l.f(bootstrap.Event{Kind: bootstrap.ProcDied, Proc: j.proc(1), Reason: "the launcher says so"})
	if e := next(t, heard); e.Kind != bootstrap.ProcDied || e.Proc != j.proc(1) || e.Nonce != 7 {
		t.Errorf("event %+v", e)
	}
	failed(t, "fence", c.Fence(t.Context(), j.world()[:2], "t"), j.proc(1))
	if err := c.Close(); err != nil || l.f != nil {
		t.Errorf("close: %v; still watching: %t", err, l.f != nil)
	}
}
