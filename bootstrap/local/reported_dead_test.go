package local

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/bootstrap/local/server"
	"github.com/ferrympi/ferry/framework"
)

// frames encodes messages.
func frames(t *testing.T, messages ...wire.Message) (all []byte) {
	t.Helper()
	for _, m := range messages {
		h, err := wire.Header(m.Kind, m.ID, len(m.Body))
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, h...), m.Body...)
	}
	return all
}

func TestReportDead_ProcessContinuesToSend_IsDiscarded(t *testing.T) {
	reports := make(chan string, 1)
	j := testJob(t, server.Options{Size: 2, OnReport: func(_ int, name string, _ []byte) { reports <- name }})
	peer := j.open(t, 0).(*client)
	peer.BeginIncarnation(5)
	p, err := paramsFrom(j.srv.Environ(1))
	if err != nil {
		t.Fatal(err)
	}
	dead := rawDial(t, p)
	r := wire.NewReader(dead, wire.MaxFrame)
	if _, err := dead.Write(append(hello(t, func(*wire.HelloBody) {}, p), frames(t, wire.Message{Kind: wire.Incarnation, Body: wire.EncodeBody(wire.IncarnationBody{Nonce: 7})})...)); err != nil {
		t.Fatal(err)
	}
	if m, err := r.Next(); err != nil || m.Kind != wire.Welcome {
		t.Fatalf("kind %d, %v", m.Kind, err)
	}
	group := wire.EncodeBody(wire.Runs{{Namespace: p.Namespace, First: 1, Count: 1}})
	join := wire.Message{Kind: wire.Fence, ID: 1, Body: wire.EncodeBody(wire.JoinBody{Tag: "t", Group: group})}
	if _, err := dead.Write(frames(t, join)); err != nil { // The reply follows the Incarnation.
		t.Fatal(err)
	}
	if m, err := r.Next(); err != nil || m.Kind != wire.Reply {
		t.Fatalf("kind %d, %v", m.Kind, err)
	}
	events := listen(t, peer)
	j.srv.ReportDead(1, "test")
	j.srv.ReportDead(1, "again")
	j.srv.ReportDead(-1, "no rank")
	j.srv.ReportDead(2, "no process")
	want := bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: j.groupOf(1)[0], Nonce: 7, Reason: "test"}
	if e := next(t, events); e != want {
		t.Errorf("event %+v, want %+v", e, want)
	}
	if m, err := r.Next(); err != nil || m.Kind != wire.Event {
		t.Fatalf("the dead process receives kind %d, %v; want its event", m.Kind, err)
	} else if ev, err := wire.Decode[wire.EventBody](m.Body); err != nil || ev.Rank != 1 || ev.Kind != uint8(bootstrap.PeerFailed) {
		t.Errorf("the dead process receives %+v, %v", ev, err)
	}
	join.ID = 2
	if _, err := dead.Write(frames(t,
		wire.Message{Kind: wire.Note, Body: wire.EncodeBody(wire.NoteBody{To: 5})},
		wire.Message{Kind: wire.Disconnect, Body: wire.EncodeBody(wire.DisconnectBody{Nonce: 5})},
		wire.Message{Kind: wire.ReportCommEvent, Body: wire.EncodeBody(wire.ReportCommEventBody{Kind: uint8(bootstrap.CommBroken), Ranks: []uint32{0}})},
		wire.Message{Kind: wire.ReportCommEvent, Body: wire.EncodeBody(wire.ReportCommEventBody{Kind: uint8(bootstrap.CommRevoked), Ranks: []uint32{0}})},
		wire.Message{Kind: wire.Incarnation, Body: wire.EncodeBody(wire.IncarnationBody{})},
		wire.Message{Kind: wire.Put, Body: wire.EncodeBody(wire.ValuedBody{Name: "late"})},
		wire.Message{Kind: wire.Report, ID: 3, Body: wire.EncodeBody(wire.ValuedBody{Name: "late"})},
		join,
	)); err != nil {
		t.Fatal(err)
	}
	if err := dead.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if m, err := r.Next(); err != io.EOF { // The server has read everything.
		t.Errorf("the dead process receives kind %d, %v; want the end", m.Kind, err)
	}
	if _, err := peer.Get(t.Context(), j.groupOf(1)[0], "late"); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("a value that was put after the report: %v, want ErrProcFailed", err)
	}
	j.srv.Dump() // Arrives last.
	if e := next(t, events); e.Kind != bootstrap.Dump {
		t.Errorf("an extra event: %+v", e)
	}
	if len(reports) > 0 {
		t.Errorf("the server accepts the report %q", <-reports)
	}
	if _, err := j.dial(t.Context(), 1, 0); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("the dead process connects again: %v", err)
	}
}

// stopped is the connection of a process that does not read until it is resumed. Its writes fail
// while it is stopped.
type stopped struct {
	net.Conn
	writeErr  error
	isStopped atomic.Bool
	resume    chan struct{}
}

func (s *stopped) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if s.isStopped.Load() {
		<-s.resume
	}
	return n, err
}

func (s *stopped) Write(b []byte) (int, error) {
	if s.isStopped.Load() {
		return 0, s.writeErr
	}
	return s.Conn.Write(b)
}

// connectStopped returns a client whose process is stopped, and the server's end of its connection.
func connectStopped(t *testing.T, writeErr error) (c *client, conn *stopped, s net.Conn) {
	t.Helper()
	a, s := net.Pipe()
	id := bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}, Size: 2, LocalSize: 1, LocalRanks: []uint32{0, 1}}
	welcome := frames(t, wire.Message{Kind: wire.Welcome, Body: wire.EncodeBody(wire.WelcomeBody{Size: 2})})
	go func() {
		_, _ = wire.NewReader(s, wire.MaxFrame).Next()
		_, _ = s.Write(welcome)
	}()
	conn = &stopped{Conn: a, writeErr: writeErr, resume: make(chan struct{})}
	c, err := connect(t.Context(), conn, id, "token", bootstrap.Env{})
	if err != nil {
		t.Fatal(err)
	}
	conn.isStopped.Store(true)
	return c, conn, s
}

// The launcher lives while the kernel has no memory, and the reader would wait for its end forever.
func TestWrite_FailsAlthoughTheLauncherLives_EndsTheConnection(t *testing.T) {
	c, conn, s := connectStopped(t, syscall.ENOBUFS)
	defer s.Close()
	close(conn.resume)
	c.BeginIncarnation(7)
	<-c.pendingCalls.Done()
	if err := c.Put(t.Context(), "k", nil); !errors.Is(err, framework.ErrTransport) || !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("put: %v, want ErrTransport with the reason", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestReportedDead_ProcessWasStopped_FindsTheEventAlthoughItWritesFirst(t *testing.T) {
	c, conn, s := connectStopped(t, syscall.EPIPE)
	events := listen(t, c)
	event := wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Reason: "test"}
	if _, err := s.Write(frames(t, wire.Message{Kind: wire.Event, Body: wire.EncodeBody(event)})); err != nil {
		t.Fatal(err)
	}
	s.Close()
	c.BeginIncarnation(7) // Its write fails.
	c.writer.Wait()
	close(conn.resume)
	if e := next(t, events); e != (bootstrap.Event{Kind: bootstrap.PeerFailed, Proc: c.id.Proc, Nonce: 7, Reason: "test"}) {
		t.Errorf("event %+v, want this process's own PeerFailed", e)
	}
	<-c.pendingCalls.Done()
	if err := c.Put(t.Context(), "k", nil); !errors.Is(err, framework.ErrProcFailed) {
		t.Errorf("put: %v, want ErrProcFailed", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	noEvent(t, events)
}

// noEvent fails the test if an event has arrived.
func noEvent(t *testing.T, ch <-chan bootstrap.Event) {
	t.Helper()
	select {
	case e := <-ch:
		t.Errorf("an extra event: %+v", e)
	default:
	}
}
