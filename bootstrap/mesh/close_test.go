package mesh

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

func TestClose_PeerWaitsForValue_GetFails(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
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

// The process had connections in an earlier session only.
func TestDeath_BeforeFirstConnectionOfSession_IsReported(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
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
		checkFailed(t, "fence", again.Fence(t.Context(), j.world(), "again"), j.proc(1))
	})
}

// Without the option, the kernel retransmits to a lost host for a quarter of an hour.
func TestLink_TCP_HasUserTimeout(t *testing.T) {
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
				if ms, err := sys.GetsockoptInt(int(fd), sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT); err != nil || ms != int(2*c.timeouts.host.Milliseconds()) {
					t.Errorf("the limit is %d ms (%v)", ms, err)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The launcher reports a death without the incarnation, and the first receiver has no connection
// with the dead process.
func TestLauncherReportsDeath_WithoutIncarnation_ConnectedPeerAddsIt(t *testing.T) {
	j := newTestJob(t, unix, 3)
	j.nodes = 3
	l := &watchedLauncher{launcher: launcher{j.addressBook, 0}}
	c, err := openOn(t.Context(), unix, l, j.env)
	if err != nil {
		t.Fatal(err)
	}
	j.clients = append(j.clients, c)
	leader, victim := j.open(1), j.open(2)
	victim.BeginIncarnation(7)
	j.fence("start", leader, c, victim)
	first, second := collectEvents(leader), collectEvents(c)
	l.f(bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: j.proc(2), Reason: "the launcher says so"})
	if e := nextEvent(t, first); e.Kind != bootstrap.PeerFailed || e.Proc != j.proc(2) || e.Nonce != 7 {
		t.Errorf("event %+v", e)
	}
	for {
		e := nextEvent(t, second)
		if e.Kind != bootstrap.PeerFailed || e.Proc != j.proc(2) {
			t.Fatalf("event %+v", e)
		}
		if e.Nonce == 7 {
			break
		}
	}
}

// The holder of the replica is stopped, and the owner has just connected.
func TestGet_OwnerConnects_DoesNotWaitForReplica(t *testing.T) {
	j := newTestJob(t, unix, 3)
	asker := j.open(2)
	asker.timeouts.answerGrace = time.Minute // For the answer of the holder of the replica.
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
	eventually(t, "who keeps it is asked", func() bool {
		return len(asker.pendingCalls.Select(func(one *call) bool { return one.kind == wire.GetReplica })) > 0
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

// The backlog is full, because the process is stopped or has no client.
func TestSuspectPeer_BacklogIsFull_IsAlive(t *testing.T) {
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
	eventually(t, "the process is known to be alive", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return p.state == peerUnresponsive
	})
}

// The peer had connected by itself, so its entry is unknown.
func TestConnectionBreaks_LauncherIsLost_PeerReconnects(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j := newTestJob(t, on, 2)
		cs := j.openAll()
		j.fence("start", cs...)
		heard := []<-chan bootstrap.Event{collectEvents(cs[0]), collectEvents(cs[1])}
		j.mu.Lock()
		j.launcherErr = errors.New("the launcher is gone")
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

// The launchers of a process may share a watcher, which belongs to the next client by then.
func TestClose_Twice_KeepsNextWatcher(t *testing.T) {
	j := newTestJob(t, unix, 1)
	l := &watchedLauncher{launcher: launcher{j.addressBook, 0}}
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
