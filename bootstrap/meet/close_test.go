package meet

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	sys "golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// A peer still waits for what this process never put when this one closes.
func TestCloseWhileAnotherWaitsForAValue(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		cs := j.openAll()
		j.fence("start", cs...)
		got := make(chan error, 1)
		go func() {
			_, err := cs[1].Get(t.Context(), j.proc(0), "never put")
			got <- err
		}()
		eventually(t, "the Get waits", func() bool {
			cs[0].mu.Lock()
			defer cs[0].mu.Unlock()
			for l := range cs[0].links {
				if len(l.pendingRequests) > 0 {
					return true
				}
			}
			return false
		})
		if err := cs[0].Close(); err != nil {
			t.Fatal(err)
		}
		cs[0].Crash()
		if err := <-got; !errors.Is(err, framework.ErrProcFailed) {
			t.Errorf("%v", err)
		}
	})
}

// A process that was met in an earlier session ends in a later one, before it has met anybody.
func TestEndBeforeTheFirstMeetingOfASessionIsFound(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		cs := j.openAll()
		j.fence("start", cs...)
		if err := inAll(cs, (*client).Close); err != nil {
			t.Fatal(err)
		}
		again := j.open(0)
		if err := j.open(1).Crash(); err != nil {
			t.Fatal(err)
		}
		failed(t, "fence", again.Fence(t.Context(), j.world(), "again"), j.proc(1))
	})
}

// While something is under way to a host that has gone, the kernel does not ask whether it is
// there, and tries for a quarter of an hour.
func TestConnectionsHaveALimitForWhatIsNotAcknowledged(t *testing.T) {
	j := newTestJob(t, tcp, 2)
	cs := j.openAll()
	j.fence("start", cs...)
	for _, c := range cs {
		c.mu.Lock()
		defer c.mu.Unlock()
		for l := range c.links {
			raw, err := l.conn.(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			err = raw.Control(func(fd uintptr) {
				if ms, err := sys.GetsockoptInt(int(fd), sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT); err != nil || ms != int(2*c.hostTimeout.Milliseconds()) {
					t.Errorf("the limit is %d ms (%v)", ms, err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The launcher tells of a death without saying of which life, and who hears it first has only
// met somebody who has met the dead.
func TestDeathFromTheLauncherIsNamedByWhoHasMetTheDead(t *testing.T) {
	j := newTestJob(t, unix, 3)
	j.nodes = 3
	l := &told{launcher: launcher{j.book, 0}}
	c, err := openOn(t.Context(), unix, l, j.env)
	if err != nil {
		t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	leader, victim := j.open(1), j.open(2)
	victim.Begin(7)
	j.fence("start", leader, c, victim)
	first, second := listen(leader), listen(c)
	l.f(bootstrap.Event{Kind: bootstrap.ProcDied, Proc: j.proc(2), Reason: "the launcher says so"})
	if e := next(t, first); e.Kind != bootstrap.ProcDied || e.Proc != j.proc(2) || e.Nonce != 7 {
		t.Errorf("event %+v", e)
	}
	for {
		e := next(t, second)
		if e.Kind != bootstrap.ProcDied || e.Proc != j.proc(2) {
			t.Fatalf("event %+v", e)
		}
		if e.Nonce == 7 {
			break
		}
	}
}

// Who keeps a value is stopped, and its owner has just come.
func TestValueFromItsOwnerDoesNotWaitForWhoKeepsIt(t *testing.T) {
	j := newTestJob(t, unix, 3)
	asker := j.open(2)
	asker.answerGrace = time.Minute // for the answer of its keeper
	impostor(t, unix, asker, 0)
	asker.recordJoined("all", wire.MakeRuns(j.world()))
	got := make(chan error, 1)
	go func() {
		v, err := asker.Get(t.Context(), j.proc(1), "k")
		if err == nil && string(v) != "v" {
			err = fmt.Errorf("value %q", v)
		}
		got <- err
	}()
	eventually(t, "who keeps it is asked", func() (asked bool) {
		asker.pendingCalls.forEach(func(one *call) { asked = asked || one.kind == wire.Kept })
		return asked
	})
	if err := j.open(1).Put(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("it waits")
	}
}

// So many wait for a process that is stopped, or has no client, that no other can: it lives.
func TestSocketOnWhichTooManyWaitIsNoDeath(t *testing.T) {
	j := newTestJob(t, unix, 2)
	c := j.open(1)
	full := entry{nonce: c.ownEntry.nonce + 1, hostID: c.ownEntry.hostID}
	fd, err := sys.Socket(sys.AF_UNIX, sys.SOCK_STREAM|sys.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	if err := errors.Join(sys.Bind(fd, &sys.SockaddrUnix{Name: full.socketName()}), sys.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		nc, err := net.Dial("unix", full.socketName())
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}
	c.mu.Lock()
	c.entries[0] = full
	p := c.peerOf(0)
	c.suspectPeer(p, nil)
	c.updateDialing(p)
	c.mu.Unlock()
	eventually(t, "it is seen that it lives", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return p.state == peerUnresponsive
	})
}

// The launcher is gone, and a connection breaks to a process that had come by itself, whose
// entry was not looked up before: that is not a death, and it comes again.
func TestBreakWithoutLauncherIsNoDeath(t *testing.T) {
	both(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		cs := j.openAll()
		j.fence("start", cs...)
		heard := []<-chan bootstrap.Event{listen(cs[0]), listen(cs[1])}
		j.mu.Lock()
		j.failure = errors.New("the launcher is gone")
		j.mu.Unlock()
		cs[0].mu.Lock()
		old := cs[0].peers[1].links[0]
		old.drop()
		cs[0].mu.Unlock()
		eventually(t, "it is there again", func() bool {
			cs[0].mu.Lock()
			defer cs[0].mu.Unlock()
			return old.isLost && len(cs[0].peers[1].links) > 0 || len(heard[0]) > 0
		})
		for _, ch := range heard {
			noEvent(t, ch)
		}
		j.fence("again", cs...)
	})
}

// A process's launchers may have one watcher for all, which is the next client's by then.
func TestSecondCloseLeavesTheNextWatcherAlone(t *testing.T) {
	j := newTestJob(t, unix, 1)
	l := &told{launcher: launcher{j.book, 0}}
	c, err := openOn(t.Context(), unix, l, j.env)
	if err != nil {
		t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	if err := c.Close(); err != nil || l.f != nil {
		t.Fatalf("close: %v; still watching: %t", err, l.f != nil)
	}
	l.Watch(func(bootstrap.Event) {})
	if err := c.Close(); !errors.Is(err, framework.ErrClosed) || l.f == nil {
		t.Errorf("second close: %v; still watching: %t", err, l.f != nil)
	}
}
