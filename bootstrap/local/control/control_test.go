package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// job is a Handler and its log. The test finishes the changes.
type job struct {
	status Status
	// Receives each change.
	begun   chan Resize
	finish  chan struct{} // Finishes one.
	resized Resized
	// Receives the cause of each withdrawal.
	ended chan error

	mu  sync.Mutex
	log bytes.Buffer
}

func (j *job) Status() Status { return j.status }

func (j *job) Resize(ctx context.Context, r Resize) (Resized, error) {
	j.begun <- r
	select {
	case <-j.finish:
		return j.resized, nil
	case <-ctx.Done():
		j.ended <- context.Cause(ctx)
		return Resized{}, context.Cause(ctx)
	}
}

func (j *job) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.log.Write(p)
}

// logged returns the lines of the log.
func (j *job) logged() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Split(strings.TrimSuffix(j.log.String(), "\n"), "\n")
}

// serve serves a job in a new directory.
func serve(t *testing.T) (j *job, dir string, s *Server) {
	t.Helper()
	j = &job{begun: make(chan Resize, 1), finish: make(chan struct{}, 1), ended: make(chan error, maxConns)}
	dir = t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, Name))
	if err != nil {
		t.Fatal(err)
	}
	s = Serve(l, j, slog.New(slog.NewTextHandler(j, nil)))
	t.Cleanup(s.Close)
	return j, dir, s
}

func dial(t *testing.T, dir string) *Conn {
	t.Helper()
	c, err := Dial(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestStatus_OfARunningJob_IsReturned(t *testing.T) {
	j, dir, _ := serve(t)
	j.status = Status{Program: "a\xff 'b\n'", Ranks: 2, Limit: 4, Changes: []Change{{Type: "add", Pset: "x", Add: 2, State: "starting", Requester: "rank 1"}}}
	c := dial(t, dir)
	got, err := c.Status(t.Context())
	if err != nil || got.Ranks != 2 || got.Limit != 4 || got.Program != "a\ufffd 'b\n'" || len(got.Changes) != 1 || got.Changes[0] != j.status.Changes[0] {
		t.Errorf("%+v, %v", got, err)
	}
	if c.PID() != os.Getpid() {
		t.Errorf("pid %d", c.PID())
	}
	if log := j.logged(); log[0] != "" {
		t.Errorf("log %q", log)
	}
}

func TestResize_Finishes_ReturnsTheResult(t *testing.T) {
	j, dir, _ := serve(t)
	want := Resize{Op: Replace, N: 2, Pset: []byte("any \xff bytes\n"), Partial: true, Wait: time.Hour}
	j.resized = Resized{Pset: []byte("n\xfe"), Ranks: 4, Added: 2, Removed: 2}
	j.finish <- struct{}{}
	got, err := dial(t, dir).Resize(t.Context(), want)
	if asked := <-j.begun; asked.Op != want.Op || asked.N != 2 || !bytes.Equal(asked.Pset, want.Pset) || !asked.Partial || asked.Wait != time.Hour {
		t.Errorf("requested %+v", asked)
	}
	if err != nil || string(got.Pset) != "n\xfe" || got.Ranks != 4 || got.Added != 2 || got.Removed != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestResize_EndsEarly_IsWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		wait time.Duration
		end  func(cancel context.CancelFunc, s *Server)
		want string
	}{
		"the user's context": {time.Hour, func(cancel context.CancelFunc, _ *Server) { cancel() }, errWithdrawn.Error()},
		"the wait":           {time.Millisecond, func(context.CancelFunc, *Server) {}, context.DeadlineExceeded.Error()},
		"the job":            {time.Hour, func(_ context.CancelFunc, s *Server) { s.Close() }, errClosed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			j, dir, s := serve(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			conn := dial(t, dir)
			go func() {
				_, err := conn.Resize(ctx, Resize{Op: Add, N: 1, Wait: c.wait})
				result <- err
			}()
			<-j.begun
			c.end(cancel, s)
			if err := <-result; err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestResize_ClientDies_IsWithdrawn(t *testing.T) {
	j, dir, _ := serve(t)
	c := dial(t, dir)
	line, err := encode(request{Version, &Resize{Op: Sub, Wait: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.nc.Write(line); err != nil {
		t.Fatal(err)
	}
	<-j.begun
	c.Close()
	if err := <-j.ended; !errors.Is(err, errWithdrawn) {
		t.Errorf("got %v", err)
	}
}

// TestServer_Garbage_EndsOneConnectionWithOneLine and the job serves others.
func TestServer_Garbage_EndsOneConnectionWithOneLine(t *testing.T) {
	for input, want := range map[string]string{
		"\n":                                    "malformed line",
		"GET / HTTP/1.1\r\n\r\n":                "malformed line",
		"{\"version\":1}{}\n":                   "malformed line",
		"{\"version\":1,\"other\":1}\n":         "unknown field",
		"{\"version\":2,\"other\":1}\n":         "protocol version 2, want 1",
		"{\"version\":1,\"resize\":{}}\n":       "want add, sub or replace",
		resizeLine(`"op":"add","n":0`):          "want at least 1",
		resizeLine(`"op":"add","n":-1`):         "want at least 1",
		resizeLine(`"op":"sub","n":1`):          "want a time above 0",
		resizeLine(`"op":"sub","n":1e99`):       "malformed line",
		resizeLine(`"op":"sub","pset":"%"`):     "malformed line",
		"{\"version\":1":                        "incomplete request",
		strings.Repeat("\x00", maxRequest):      "longer than",
		resizeLine(`"op":"sub","wait":1`) + "x": "data after the request",
	} {
		j, dir, _ := serve(t)
		c := dial(t, dir)
		if _, err := c.nc.Write([]byte(input)); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(want, "incomplete") {
			c.nc.CloseWrite()
		}
		if _, err := c.nc.Read(make([]byte, 1)); err == nil { // A reply, which ends with the connection.
			for err == nil {
				_, err = c.nc.Read(make([]byte, 1<<10))
			}
		}
		if _, err := dial(t, dir).Status(t.Context()); err != nil {
			t.Errorf("%.40q: the job does not serve others: %v", input, err)
		}
		log := j.logged()
		if len(log) != 1 || !strings.Contains(log[0], want) || len(log[0]) > 600 {
			t.Errorf("%.40q: log %.2000q, want %q", input, log, want)
		}
	}
}

func resizeLine(fields string) string { return `{"version":1,"resize":{` + fields + "}}\n" }

func TestServer_TooManyConnections_AreRefusedWithTheReason(t *testing.T) {
	j, dir, _ := serve(t)
	j.begun = make(chan Resize, maxConns)
	var clients sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for range maxConns {
		c := dial(t, dir)
		clients.Go(func() { _, _ = c.Resize(ctx, Resize{Op: Sub, Wait: time.Hour}) })
	}
	for range maxConns {
		<-j.begun
	}
	if _, err := dial(t, dir).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "64 requests are in progress") {
		t.Errorf("got %v", err)
	}
	cancel()
	clients.Wait()
}

// TestServer_SilentClient_IsDropped at the end of the job, also before its deadline.
func TestServer_SilentClient_IsDropped(t *testing.T) {
	_, dir, s := serve(t)
	c := dial(t, dir)
	s.Close()
	if n, err := c.nc.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes", n)
	}
}

func TestDial_JobHasEnded_IsGone(t *testing.T) {
	_, dir, s := serve(t)
	s.Close()
	if _, err := Dial(dir); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, Name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(dir); !errors.Is(err, ErrGone) {
		t.Errorf("a file: got %v", err)
	}
}

// TestStatus_JobIsStopped_ReturnsNoAnswer although the kernel accepts the connection.
func TestStatus_JobIsStopped_ReturnsNoAnswer(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, Name))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dial(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Status(ctx); !errors.Is(err, ErrNoAnswer) || c.PID() != os.Getpid() {
		t.Errorf("pid %d, got %v", c.PID(), err)
	}
}

// FuzzServer ends the connection of a client with arbitrary input, without a panic.
func FuzzServer(f *testing.F) {
	for _, line := range []string{"{\"version\":1}\n", resizeLine(`"op":"sub","n":2,"pset":"eA==","wait":1`), "{\"version\":1,\"resize\":null}\nx", "[]\n", ""} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		j := &job{begun: make(chan Resize, 1), finish: make(chan struct{}, 1), ended: make(chan error, maxConns)}
		j.finish <- struct{}{}
		s := &Server{handler: j, log: slog.New(slog.DiscardHandler), conns: make(chan struct{}, 1)}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		near, far := net.Pipe()
		s.wg.Go(func() { s.serve(far) })
		go func() {
			near.Write(b) // The server may have closed.
			near.Close()
		}()
		s.wg.Wait()
	})
}

// FuzzReply decodes arbitrary replies.
func FuzzReply(f *testing.F) {
	for _, line := range []string{`{"version":1,"error":"x"}`, `{"version":1,"status":{"program":"p","ranks":1,"limit":1,"ending":false,"changes":null}}`, `{"version":1,"resized":{"pset":"eA=="}}`, "{}", "null"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeReply(b); err == nil && r.Version != Version {
			t.Errorf("version %d", r.Version)
		}
	})
}
