package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// listen returns c's events.
func listen(t *testing.T, c bootstrap.Client) <-chan bootstrap.Event {
	t.Helper()
	src, ok := framework.As[bootstrap.EventSource](c)
	if !ok {
		t.Fatal("no EventSource")
	}
	ch := make(chan bootstrap.Event, 16)
	src.OnEvent(func(e bootstrap.Event) { ch <- e })
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

// The end of a process decides whether it has failed, and releases the calls that wait for it.
func TestExit_WithFailure_IsReported(t *testing.T) {
	const came, closed = 1, 2 // Bits of the history of the process: a hello, and a goodbye too.
	for _, c := range []struct {
		what        string
		incarnation int
		// Reason from the launcher, "-" for no ProcExited.
		exit string
		// Reason in the event, empty for no event.
		reason string
	}{
		{"killed at work", came, "signal: killed", "signal: killed"},
		{"exit status 3 at work", came, "exit status 3", "exit status 3"},
		{"exit status 0 without Close", came, "", "exit status 0, but its session was not closed"},
		{"connection lost", came, "-", "connection lost"},
		{"closed, exit status 0", closed, "", ""},
		{"closed, then crashed", closed, "signal: segmentation fault", "signal: segmentation fault"},
		{"never came, exit status 0", 0, "", ""},
		{"never came, not executable", 0, "exit status 126", "exit status 126"},
	} {
		t.Run(c.what, func(t *testing.T) {
			j := testJob(t, server.Options{Size: 2})
			watch := j.open(t, 0)
			events := listen(t, watch)
			victim := framework.Proc{Namespace: j.srv.Namespace(), Rank: 1}
			var v bootstrap.Client
			if c.incarnation >= came {
				v = j.open(t, 1)
			}
			if c.incarnation == closed {
				if err := v.Close(); err != nil {
					t.Fatal(err)
				}
			}
			// ProcExited precedes the end of the connection. In the other order the server does not
			// wait for it for long, because this process runs.
			if c.exit != "-" {
				j.srv.ProcExited(1, c.exit)
			}
			if c.incarnation == came {
				v.(*client).conn.Close()
			}
			err := watch.Fence(t.Context(), []framework.Proc{watch.Identity().Proc, victim}, "t")
			var missing *framework.MissingError
			if !errors.As(err, &missing) || len(missing.Failed) != 1 || missing.Failed[0] != victim {
				t.Errorf("fence with it: %v", err)
			}
			if c.reason != "" {
				if e := next(t, events); e.Kind != bootstrap.PeerFailed || e.Proc != victim || e.Reason != c.reason {
					t.Errorf("event %+v, want %q", e, c.reason)
				}
			}
			j.srv.Dump() // Arrives last.
			if e := next(t, events); e.Kind != bootstrap.Dump {
				t.Errorf("event %+v, want the dump", e)
			}
			if _, err := j.dial(t.Context(), 1, time.Second); err == nil || !strings.Contains(err.Error(), "rank 1 has ended") {
				t.Errorf("the same rank again: %v", err)
			}
		})
	}
}

// A program that panics closes its session in deferred functions.
func TestExit_ClosesWhileDying_IsReported(t *testing.T) {
	j := testJob(t, server.Options{Size: 2})
	events := listen(t, j.open(t, 0))
	v := j.open(t, 1)
	src, ok := framework.As[bootstrap.EventSource](v)
	if !ok {
		t.Fatal("no EventSource")
	}
	src.BeginIncarnation(7)
	if _, parted := j.srv.WithdrawnAt(1); parted {
		t.Error("it has parted before it has closed")
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // PeerLeft is delayed by 20 ms.
	j.srv.ProcExited(1, "exit status 2")
	want := bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: v.Identity().Proc, Nonce: 7, Reason: "exit status 2"}
	if e := next(t, events); e != want {
		t.Errorf("event %+v, want %+v", e, want)
	}
	if _, parted := j.srv.WithdrawnAt(1); !parted {
		t.Error("the server does not know when it has parted")
	}
	time.Sleep(400 * time.Millisecond) // Longer than PeerLeft waits for the end of the process.
	j.srv.Dump()                       // Arrives last.
	if e := next(t, events); e.Kind != bootstrap.Dump {
		t.Errorf("event %+v, want the dump", e)
	}
}

// A child that inherited the connection keeps it open after the end of the process.
func TestExit_ConnectionIsInherited_IsReported(t *testing.T) {
	j := testJob(t, server.Options{Size: 2})
	a := j.open(t, 0)
	j.open(t, 1)
	j.srv.ProcExited(1, "signal: killed")
	_, err := a.Get(t.Context(), framework.Proc{Namespace: j.srv.Namespace(), Rank: 1}, "never")
	if !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("get: %v", err)
	}
}

func TestServerIsLost_CallsEndAndEventArrives(t *testing.T) {
	j := testJob(t, server.Options{Size: 2})
	c := j.open(t, 0)
	events := listen(t, c)
	result := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := c.Get(ctx, framework.Proc{Namespace: j.srv.Namespace(), Rank: 1}, "never")
		result <- err
	}()
	if err := j.srv.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; !errors.Is(err, framework.ErrTransport) {
		t.Errorf("call in progress: %v", err)
	}
	if e := next(t, events); e.Kind != bootstrap.ServerLost || e.Reason == "" {
		t.Errorf("event %+v", e)
	}
	if err := c.Put(t.Context(), "k", nil); !errors.Is(err, framework.ErrTransport) {
		t.Errorf("put afterwards: %v", err)
	}
}

func TestReport_ReachesLauncher(t *testing.T) {
	var mu sync.Mutex
	got := map[string]string{}
	j := testJob(t, server.Options{Size: 2, OnReport: func(rank int, name string, body []byte) {
		mu.Lock()
		defer mu.Unlock()
		got[fmt.Sprint(name, rank)] = string(body)
	}})
	for r := range 2 {
		rep, ok := framework.As[bootstrap.Reporter](j.open(t, r))
		if !ok {
			t.Fatal("no Reporter")
		}
		if err := rep.Report(t.Context(), "explain", []byte("all is shm")); err != nil {
			t.Fatal(err)
		}
		if err := rep.Report(t.Context(), "x", make([]byte, bootstrap.MaxValue+1)); !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("over the limit: %v", err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 2 || got["explain0"] != "all is shm" || got["explain1"] != "all is shm" {
		t.Errorf("got %q", got)
	}
}

func TestListen_SocketIsPrivateAndRemoved(t *testing.T) {
	base := t.TempDir()
	j, err := newJob(base, server.Options{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	dir := j.srv.Dir()
	if id := j.open(t, 0).Identity(); id.JobDir != dir {
		t.Errorf("the process has directory %q, the server %q", id.JobDir, dir)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "bootstrap"): 0o600} {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mode().Perm() != want {
			t.Errorf("%s is %v, want %v", path, st.Mode().Perm(), want)
		}
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := j.srv.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// A survivor that dies later has not failed first.
func TestWithdrawnAt_ProcessRecovers_IsCleared(t *testing.T) {
	j := testJob(t, server.Options{Size: 2})
	watch, c := j.open(t, 0), j.open(t, 1).(*client)
	events := listen(t, watch)
	both := []framework.Proc{watch.Identity().Proc, c.Identity().Proc}
	c.BeginIncarnation(7)
	var comm cid.Extended
	for name, rejoin := range map[string]func() error{
		"note":  func() error { return c.Note(both[0], 1, nil) },
		"fence": func() error { return c.Fence(t.Context(), both[1:], "t") },
	} {
		comm.Base++
		c.ReportBroken(comm, both, "a context has ended")
		if e := next(t, events); e.Kind != bootstrap.CommBroken {
			t.Fatalf("event %+v, want Broken", e)
		}
		if _, parted := j.srv.WithdrawnAt(1); !parted {
			t.Errorf("%s: the departure from a communicator is not recorded", name)
		}
		if err := rejoin(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Psets(t.Context()); err != nil { // The server has read all earlier messages.
			t.Fatal(err)
		}
		if _, parted := j.srv.WithdrawnAt(1); parted {
			t.Errorf("%s: the departure is still recorded", name)
		}
	}
}
