package local

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
)

// logLines is a slog.Handler that records messages.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logLines) WithGroup(string) slog.Handler            { return l }
func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *logLines) with(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// rawDial connects to the job's socket without a handshake.
func rawDial(t *testing.T, p *Params) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", strings.TrimPrefix(p.Address, "unix:"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func hello(t *testing.T, change func(*wire.HelloBody), p *Params) []byte {
	t.Helper()
	h := wire.HelloBody{Version: wire.Version, Token: p.Token, Namespace: p.Namespace, Rank: uint32(p.Rank)}
	change(&h)
	f, err := wire.Encode(wire.Hello, 0, h)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A job continues while its server receives hostile connections.
func TestHandshake_HostileConnections_AreRefused(t *testing.T) {
	log := &logLines{}
	j := testJob(t, server.Options{Size: 4, Logger: slog.New(log)})
	group := make([]framework.Proc, 3)
	for r := range group {
		group[r] = j.open(t, r).Identity().Proc
	}
	stop, cancel := context.WithCancel(t.Context())
	results := make(chan error, len(group))
	for r := range group {
		go func() {
			// The payload of rank 0 ends the loop of all ranks.
			for last := false; !last; {
				var payload []byte
				if r == 0 && stop.Err() != nil {
					payload = []byte("last")
				}
				got, err := j.clients[r].Construct(t.Context(), group, "good", payload)
				if err != nil {
					results <- err
					return
				}
				last = len(got.Payloads[0]) > 0
			}
			results <- nil
		}()
	}
	params, err := paramsFrom(j.srv.Environ(3))
	if err != nil {
		t.Fatal(err)
	}
	keep := func(*wire.HelloBody) {}
	good := hello(t, keep, params)
	oversized := binary.BigEndian.AppendUint32(nil, wire.MaxHello+1)
	huge := binary.BigEndian.AppendUint32(nil, wire.MaxFrame+1)
	frame := func(k wire.Kind, id uint64, body any) []byte {
		b := wire.EncodeBody(body) // Also over the limits.
		h, err := wire.Header(k, id, len(b))
		if err != nil {
			t.Fatal(err)
		}
		return append(h, b...)
	}
	for _, c := range []struct {
		what  string
		bytes []byte
		// The sender closes in the middle.
		half bool
		// Reason in the Refused message.
		refusal string
	}{
		{what: "an HTTP request", bytes: []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")},
		{what: "zeros", bytes: make([]byte, 64)},
		{what: "half a length", bytes: []byte{0, 0}, half: true},
		{what: "half a hello", bytes: good[:len(good)/2], half: true},
		{what: "a frame too large before the handshake", bytes: oversized},
		{what: "CBOR that is not a message", bytes: append([]byte{0, 0, 0, 3}, 0xff, 0xff, 0xff)},
		{what: "a request before the hello", bytes: frame(wire.Psets, 1, wire.Empty{})},
		{what: "a hello without its body", bytes: frame(wire.Hello, 0, wire.Empty{})},
		{what: "a wrong token", bytes: hello(t, func(h *wire.HelloBody) { h.Token = strings.Repeat("0", len(h.Token)) }, params), refusal: "wrong token"},
		{what: "no token", bytes: hello(t, func(h *wire.HelloBody) { h.Token = "" }, params), refusal: "wrong token"},
		{what: "another version", bytes: hello(t, func(h *wire.HelloBody) { h.Version++ }, params), refusal: "build both with the same"},
		{what: "another job", bytes: hello(t, func(h *wire.HelloBody) { h.Namespace += "x" }, params), refusal: "this job is"},
		{what: "a rank beyond the job", bytes: hello(t, func(h *wire.HelloBody) { h.Rank = 4 }, params), refusal: "rank 4 of 4"},
		{what: "a rank that is there", bytes: hello(t, func(h *wire.HelloBody) { h.Rank = 1 }, params), refusal: "rank 1 is already connected"},
	} {
		conn := rawDial(t, params)
		if _, err := conn.Write(c.bytes); err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if c.half {
			conn.Close()
			continue
		}
		answer, err := io.ReadAll(conn)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the connection is not closed: %v", c.what, err)
		}
		if !strings.Contains(string(answer), c.refusal) || c.refusal == "" && len(answer) > 0 {
			t.Errorf("%s: answer %q, want %q", c.what, answer, c.refusal)
		}
	}
	for what, bytes := range map[string][]byte{
		"a frame over the limit":      huge,
		"a second hello":              good,
		"a server's message":          frame(wire.Reply, 7, wire.Empty{}),
		"id 0":                        frame(wire.Get, 0, wire.GetBody{}),
		"a body of another kind":      frame(wire.Get, 1, wire.Empty{}),
		"a value over the limit":      frame(wire.Put, 0, wire.ValuedBody{Value: make([]byte, bootstrap.MaxValue+1)}),
		"a note over the limit":       frame(wire.Note, 0, wire.NoteBody{Body: make([]byte, bootstrap.MaxPayload+1)}),
		"a death of a communicator":   frame(wire.ReportCommEvent, 0, wire.ReportCommEventBody{Kind: uint8(bootstrap.PeerFailed)}),
		"a name over the limit":       frame(wire.Lookup, 1, wire.LookupBody{Name: strings.Repeat("x", bootstrap.MaxName+1)}),
		"a group that is not a group": frame(wire.Fence, 1, wire.JoinBody{Group: []byte{0x01}}),
		"the same id twice": slices.Concat(frame(wire.Get, 1, wire.GetBody{Rank: 0, Key: "never"}),
			frame(wire.Get, 1, wire.GetBody{Rank: 0, Key: "never"})),
		"the id of a call that waits for one that does not": slices.Concat(frame(wire.Get, 1, wire.GetBody{Rank: 0, Key: "never"}),
			frame(wire.Unpublish, 1, wire.NameBody{Name: "never"})),
	} {
		k := testJob(t, server.Options{Size: 2, Logger: slog.New(log)})
		other := k.open(t, 0)
		p, err := paramsFrom(k.srv.Environ(1))
		if err != nil {
			t.Fatal(err)
		}
		conn := rawDial(t, p)
		opening := hello(t, keep, p)
		if what == "a second hello" {
			bytes = opening
		}
		if _, err := conn.Write(append(opening, bytes...)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: the connection is not closed: %v", what, err)
		}
		// The sender has failed, like a process that lost its connection.
		_, err = other.Get(t.Context(), framework.Proc{Namespace: p.Namespace, Rank: 1}, "never")
		if !errors.Is(err, framework.ErrProcFailed) {
			t.Errorf("%s: its process is not failed: %v", what, err)
		}
	}
	cancel()
	for range group {
		if err := <-results; err != nil {
			t.Errorf("the good job: %v", err)
		}
	}
	if n := log.with("wrong token"); n != 2 {
		t.Errorf("wrong tokens are logged %d times for 2 connections", n)
	}
	// Rank 3 itself has not connected yet, and is admitted.
	if err := j.open(t, 3).Fence(t.Context(), []framework.Proc{{Namespace: params.Namespace, Rank: 3}}, "t"); err != nil {
		t.Error(err)
	}
}

func TestHandshake_SilentConnection_IsClosed(t *testing.T) {
	j := testJob(t, server.Options{Size: 1, HandshakeTimeout: 20 * time.Millisecond})
	p, err := paramsFrom(j.srv.Environ(0))
	if err != nil {
		t.Fatal(err)
	}
	conn := rawDial(t, p)
	if _, err := conn.Write([]byte{0, 0, 0, 50, 0x83}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("half a hello is still waited for: %v", err)
	}
	// The deadline applies to the hello only.
	c := j.open(t, 0)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, c.Identity().Proc, "never"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get: %v", err)
	}
}

// One client requests more than it reads, and the others continue.
func TestServer_ClientDoesNotRead_IsDropped(t *testing.T) {
	log := &logLines{}
	j := testJob(t, server.Options{Size: 3, Logger: slog.New(log)})
	a, b := j.open(t, 0), j.open(t, 1)
	if err := a.Put(t.Context(), "big", make([]byte, bootstrap.MaxValue)); err != nil {
		t.Fatal(err)
	}
	p, err := paramsFrom(j.srv.Environ(2))
	if err != nil {
		t.Fatal(err)
	}
	conn := rawDial(t, p)
	if _, err := conn.Write(hello(t, func(*wire.HelloBody) {}, p)); err != nil {
		t.Fatal(err)
	}
	for id := uint64(1); ; id++ {
		get, err := wire.Encode(wire.Get, id, wire.GetBody{Rank: 0, Key: "big"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(get); err != nil {
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
				break
			}
			t.Fatal(err)
		}
		if id > 100_000 {
			t.Fatal("the server keeps 100 GB for a client that does not read")
		}
	}
	dead := framework.Proc{Namespace: p.Namespace, Rank: 2}
	if _, err := b.Get(t.Context(), dead, "never"); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("the dropped process is not failed: %v", err)
	}
	if n := log.with("does not read"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	group := []framework.Proc{a.Identity().Proc, b.Identity().Proc}
	met := make(chan error, 1)
	go func() { met <- a.Fence(t.Context(), group, "t") }()
	if err := errors.Join(b.Fence(t.Context(), group, "t"), <-met); err != nil {
		t.Error(err)
	}
}

// Earlier messages of a dropped client have no effect.
func TestServer_DroppedClient_IsNotServed(t *testing.T) {
	served := make(chan string, 1)
	j := testJob(t, server.Options{Size: 2, OnReport: func(_ int, name string, _ []byte) { served <- name }})
	a := j.open(t, 0)
	if err := a.Put(t.Context(), "big", make([]byte, bootstrap.MaxValue)); err != nil {
		t.Fatal(err)
	}
	// A Put has no answer. The reply to this Get follows it.
	if _, err := a.Get(t.Context(), a.Identity().Proc, "big"); err != nil {
		t.Fatal(err)
	}
	p, err := paramsFrom(j.srv.Environ(1))
	if err != nil {
		t.Fatal(err)
	}
	// 60 MiB of answers, more than maxUnwritten, precede a report.
	burst := hello(t, func(*wire.HelloBody) {}, p)
	for id := range uint64(60) {
		get, err := wire.Encode(wire.Get, id+1, wire.GetBody{Rank: 0, Key: "big"})
		if err != nil {
			t.Fatal(err)
		}
		burst = append(burst, get...)
	}
	report, err := wire.Encode(wire.Report, 61, wire.ValuedBody{Name: "late"})
	if err != nil {
		t.Fatal(err)
	}
	conn := rawDial(t, p)
	if _, err := conn.Write(append(burst, report...)); err != nil {
		t.Fatal(err)
	}
	dead := framework.Proc{Namespace: p.Namespace, Rank: 1}
	if _, err := a.Get(t.Context(), dead, "never"); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("the dropped process is not failed: %v", err)
	}
	select {
	case name := <-served:
		t.Errorf("report %q of a dropped client was served", name)
	default:
	}
}

// A process of another user is refused before its token is checked.
func TestHandshake_OtherUser_IsRefused(t *testing.T) {
	needs.Root(t, "act as another user")
	log := &logLines{}
	j := testJob(t, server.Options{Size: 1, Logger: slog.New(log)})
	// An abstract socket has no directory permissions.
	l, err := net.Listen("unix", "@ferry-test-"+j.srv.Namespace())
	if err != nil {
		t.Fatal(err)
	}
	conn := dialAsNobody(t, l.Addr().String())
	there, err := l.Accept()
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	j.srv.ServeConn(there)
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if err := j.srv.Close(); err != nil {
		t.Error(err)
	}
	if n := log.with("belongs to user 65534"); n != 1 {
		t.Errorf("logged %d times: %q", n, log.lines)
	}
}

// dialAsNobody connects with another effective user of this thread, which the kernel reports to the
// other end.
func dialAsNobody(t *testing.T, addr string) net.Conn {
	t.Helper()
	const nobody = 65534
	keep := ^uintptr(0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, nobody, keep); e != 0 {
		t.Fatal(e)
	}
	conn, err := net.Dial("unix", addr)
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, 0, keep); e != 0 {
		panic(e) // This thread would keep another user's id.
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// The map is logged once in two sessions.
func TestWelcome_MapOfTheNodesIsBroken_IsDropped(t *testing.T) {
	for what, nodes := range map[string][]wire.NodeRun{
		"none": nil, "truncated": {{Count: 1}}, "too long": {{Count: 2}, {Count: 1, Node: 1}}, "empty run": {{Count: 2}, {}}, "huge": {{Count: 1<<32 - 1}},
	} {
		t.Run(what, func(t *testing.T) {
			log := &logLines{}
			id := bootstrap.Identity{Proc: framework.Proc{Namespace: t.Name() + strconv.Itoa(rand.Int())}, Size: 2, MaxSize: 2}
			for range 2 {
				c, err := connect(t.Context(), welcomedWith(nodes), id, "token", bootstrap.Env{Logger: slog.New(log)})
				if err != nil {
					t.Fatal(err)
				}
				got := c.Identity()
				if len(got.Nodes) > 0 || len(got.LocalRanks) > 0 || got.LocalSize != 0 || got.IsDivided || log.with("map of the nodes is dropped") != 1 {
					t.Errorf("got %+v, log %q", got, log.lines)
				}
				if _, _, err := bootstrap.BuiltinPset(got, bootstrap.PsetRoots); !errors.Is(err, framework.ErrPset) {
					t.Errorf("ROOTS: %v", err)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// welcomedWith returns the connection to a launcher that sends a map of the nodes, and ignores the rest.
func welcomedWith(nodes []wire.NodeRun) net.Conn {
	near, far := net.Pipe()
	go func() {
		if _, err := wire.NewReader(far, wire.MaxHello).Next(); err != nil {
			far.Close()
			return
		}
		welcome, _ := wire.Encode(wire.Welcome, 0, wire.WelcomeBody{Size: 2, Most: 2, Nodes: nodes, Divided: true})
		far.Write(welcome)
		io.Copy(io.Discard, far)
	}()
	return near
}

// A launcher that sends such a note violates the protocol.
func TestNote_OfTheLauncherIsOverTheLimit_EndsTheConnection(t *testing.T) {
	c, conn, s := connectStopped(t, nil)
	defer s.Close()
	close(conn.resume)
	events := listen(t, c)
	for _, size := range []int{bootstrap.MaxPayload, bootstrap.MaxPayload + 1} {
		if _, err := s.Write(frames(t, wire.Message{Kind: wire.Note, Body: wire.EncodeBody(wire.NoteBody{Rank: 1, Body: make([]byte, size)})})); err != nil {
			t.Fatal(err)
		}
	}
	<-c.pendingCalls.Done()
	if err := c.Put(t.Context(), "k", nil); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "malformed note: a value of 65537 bytes is over the limit of 65536") {
		t.Errorf("put: %v, want the reason", err)
	}
	if e := next(t, events); e.Kind != bootstrap.NoteReceived || len(e.Body) != bootstrap.MaxPayload {
		t.Errorf("event %v of %d bytes, want the note within the limit", e.Kind, len(e.Body))
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
