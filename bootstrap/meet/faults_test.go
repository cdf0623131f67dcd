package meet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
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

func TestOpenSendsNothingToAnybody(t *testing.T) {
	j := newTestJob(t, unix, 3)
	j.openAll()
	if n := j.finds.Load(); n != 0 {
		t.Errorf("%d entries were looked up", n)
	}
	for _, c := range j.clients {
		if len(c.links) > 0 {
			t.Errorf("rank %d has connections", c.id.Proc.Rank)
		}
	}
}

// The leader comes again and again, and so does a member; ids never repeat.
func TestSessionsReopen(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		ids := map[uint64]bool{}
		stay := j.open(1)
		heard := listen(stay)
		for round := range 60 {
			c := j.open(0)
			group := []framework.Proc{j.proc(round % 2), j.proc(1 - round%2)}
			got := make([]uint64, 2)
			if err := inAll([]*client{c, stay}, func(c *client) error {
				made, err := c.Construct(t.Context(), group, "t", nil)
				got[c.id.Proc.Rank] = made.ContextID
				return err
			}); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if got[0] != got[1] || ids[got[0]] {
				t.Fatalf("round %d: ids %x after %v", round, got, ids)
			}
			ids[got[0]] = true
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		noEvent(t, heard)
	})
}

// Processes come in any order; those who are there wait for the leader.
func TestLeaderThatComesLate(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		first := j.open(0)
		if err := first.Close(); err != nil { // it was there once: its socket is
			t.Fatal(err)
		}
		early := []*client{j.open(1), j.open(2)}
		waiting := make(chan error, 1)
		go func() {
			waiting <- inAll(early, func(c *client) error { return c.Fence(t.Context(), j.world(), "t") })
		}()
		eventually(t, "the others wait for the leader", func() bool {
			early[0].mu.Lock()
			defer early[0].mu.Unlock()
			p := early[0].peers[0]
			return p != nil && len(p.waiting) == 1
		})
		late := j.open(0)
		if err := errors.Join(late.Fence(t.Context(), j.world(), "t"), <-waiting); err != nil {
			t.Fatal(err)
		}
	})
}

// A leader that closes while others wait in its joins is absent, and may come again.
func TestLeaderThatClosesMeanwhile(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		j.fence("start", cs...)
		waiting := make(chan error, 1)
		go func() { waiting <- cs[1].Fence(t.Context(), j.world(), "t") }()
		eventually(t, "rank 1 waits at rank 0", func() bool {
			cs[0].mu.Lock()
			defer cs[0].mu.Unlock()
			return len(cs[0].joins.Absent()) == 2
		})
		if err := cs[0].Close(); err != nil {
			t.Fatal(err)
		}
		again := j.open(0)
		if err := errors.Join(inAll([]*client{again, cs[2]}, func(c *client) error { return c.Fence(t.Context(), j.world(), "t") }), <-waiting); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLeaderThatDiesEndsTheJoin(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 4)
		cs := j.openAll()
		cs[0].Begin(50)
		j.fence("start", cs...)
		heard := listen(cs[3])
		errs := make(chan error, 2)
		for _, c := range cs[1:3] {
			go func() {
				_, err := c.Construct(t.Context(), j.world(), "t", []byte("payload"))
				errs <- err
			}()
		}
		eventually(t, "two wait at the leader", func() bool {
			cs[0].mu.Lock()
			defer cs[0].mu.Unlock()
			return len(cs[0].joins.Absent()) == 2
		})
		if err := cs[0].Crash(); err != nil {
			t.Fatal(err)
		}
		failed(t, "a construct that waits", <-errs, j.proc(0))
		failed(t, "another one", <-errs, j.proc(0))
		if e := next(t, heard); e.Kind != bootstrap.ProcDied || e.Proc != j.proc(0) || e.Nonce != 50 {
			t.Errorf("event %+v", e)
		}
		failed(t, "a construct that comes later", cs[3].Fence(t.Context(), j.world(), "t"), j.proc(0))
		j.fence("the living go on", cs[1:]...)
	})
}

// Nobody was ever connected with the member: the leader finds out.
func TestMemberThatDiesBeforeItWasMet(t *testing.T) {
	j := newTestJob(t, unix, 3)
	cs := j.openAll()
	if err := cs[2].Crash(); err != nil {
		t.Fatal(err)
	}
	err := inAll(cs[:2], func(c *client) error {
		failed(t, fmt.Sprint("rank ", c.id.Proc.Rank), c.Fence(t.Context(), j.world(), "t"), j.proc(2))
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestLeaderThatDiedBeforeItWasMet(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		cs := j.openAll()
		if err := cs[0].Crash(); err != nil {
			t.Fatal(err)
		}
		err := cs[1].Fence(t.Context(), j.world(), "t")
		if on == unix { // where nobody listens nobody is
			failed(t, "fence", err, j.proc(0))
		} else if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "nobody answers for its entry") ||
			!strings.Contains(err.Error(), j.proc(0).String()) {
			t.Errorf("fence: %v", err)
		}
	})
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
						return cs[4].connectedTo(head+1) && (head == 2 || cs[3].connectedTo(head+1))
					})
				}
				heard := listen(cs[4])
				for len(heard) > 0 { // of before
					<-heard
				}
				cs[3].Broke(cid.Extended{Base: 9}, "a reason")
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
		n += len(l.pending)
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

// Whatever stands in the book, the error says whose entry it is.
func TestEntriesThatLeadNowhere(t *testing.T) {
	_, port := closedPort(t)
	good := entry{nonce: 1, host: 7, port: port, addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	unixOnly := entry{nonce: 1, host: 7}
	for want, b := range map[string][]byte{
		"is empty":                      {},
		"has version 99":                {99},
		"is cut short":                  good.encode()[:20],
		"bytes too many":                append(good.encode(), 0),
		"makes no sense":                (&entry{nonce: 1, port: 1}).encode(),
		"nobody answers for its entry":  good.encode(),
		"has a Unix socket only":        unixOnly.encode(),
		"has an address of 5 bytes":     append((&entry{nonce: 1, port: 1, addrs: []netip.Addr{{}}}).encode()[:entryHead], 5, 1, 2, 3, 4, 5),
		"the entry is cut short in an ": append((&entry{nonce: 1, port: 1, addrs: []netip.Addr{{}}}).encode()[:entryHead], 16, 1),
	} {
		j := newTestJob(t, unix, 2)
		c := j.open(1)
		j.entries[j.proc(0)] = b
		err := c.Fence(t.Context(), j.world(), "t")
		if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), j.proc(0).String()) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// closedPort returns a port of this host on which nobody listens.
func closedPort(t *testing.T) (net.Addr, uint16) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr(), uint16(l.Addr().(*net.TCPAddr).Port)
}

// The key is what makes an entry's process out of whoever listens there.
func TestEntryWhoseKeyDoesNotAnswerIsNotFollowed(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 3)
		cs := j.openAll()
		e, err := decodeEntry(j.entries[j.proc(0)])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rand.Read(e.key[:]); err != nil {
			t.Fatal(err)
		}
		j.entries[j.proc(0)] = e.encode()
		err = cs[1].Fence(t.Context(), j.world(), "t")
		if !errors.Is(err, errWrongKey) || !strings.Contains(err.Error(), j.proc(0).String()) {
			t.Errorf("fence: %v", err)
		}
		if err := cs[0].Fence(t.Context(), j.world()[:1], "alone"); err != nil {
			t.Error(err)
		}
	})
}

func TestLauncherThatFailsEndsWhatNeedsIt(t *testing.T) {
	j := newTestJob(t, unix, 3)
	cs := j.openAll()
	j.fence("start", cs[:2]...)
	down := errors.New("the launcher is gone")
	j.mu.Lock()
	j.failure = down
	j.mu.Unlock()
	if _, err := cs[1].Get(t.Context(), j.proc(2), "k"); !errors.Is(err, down) || !errors.Is(err, framework.ErrTransport) {
		t.Errorf("get of a process that was never met: %v", err)
	}
	j.fence("those who have met go on", cs[:2]...)
	b := newBook(1)
	b.failure = down
	if _, err := Open(t.Context(), bootstrap.Env{}, launcher{b, 0}); !errors.Is(err, down) || !errors.Is(err, framework.ErrTransport) {
		t.Errorf("open: %v", err)
	}
}

func TestSecondClientOfAProcessIsRefused(t *testing.T) {
	j := newTestJob(t, unix, 1)
	j.open(0)
	if _, err := Open(t.Context(), bootstrap.Env{}, launcher{j.book, 0}); !errors.Is(err, framework.ErrConfig) {
		t.Errorf("%v", err)
	}
}

func TestReopeningCostsNoDescriptor(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		stay := j.open(1)
		count := func() int {
			fds, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(fds)
		}
		var before int
		for round := range 200 {
			c := j.open(0)
			j.fence("t", c, stay)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if round == 20 {
				before = count()
			}
		}
		if after := count(); after > before+5 {
			t.Errorf("%d descriptors, %d before", after, before)
		}
	})
}
