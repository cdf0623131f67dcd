package server

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap/internal/wire"
)

// limited is a connection that records its write deadline.
type limited struct {
	net.Conn
	// Deadline of each write.
	writes chan time.Time

	mu       sync.Mutex
	deadline time.Time
}

func (l *limited) SetDeadline(at time.Time) error {
	if err := l.SetWriteDeadline(at); err != nil {
		return err
	}
	return l.SetReadDeadline(at)
}

func (l *limited) SetWriteDeadline(at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = at
	return l.Conn.SetWriteDeadline(at)
}

func (l *limited) Write(b []byte) (int, error) {
	l.mu.Lock()
	at := l.deadline
	l.mu.Unlock()
	l.writes <- at
	return l.Conn.Write(b)
}

// A process in a debugger is alive, however much it leaves unread.
func TestWrite_ProcessIsStopped_HasNoTimeLimit(t *testing.T) {
	s, err := New(Options{Size: 1, OnLost: func(l Lost) { t.Errorf("lost: %+v", l) }})
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	conn := &limited{Conn: near, writes: make(chan time.Time, 8)}
	s.ServeConn(conn)
	hello, err := wire.Encode(wire.Hello, 0, wire.HelloBody{Version: wire.Version, Token: s.token, Namespace: s.Namespace()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write(hello); err != nil {
		t.Fatal(err)
	}
	if m, err := wire.NewReader(far, wire.MaxFrame).Next(); err != nil || m.Kind != wire.Welcome {
		t.Fatalf("%+v, %v", m, err)
	}
	<-conn.writes
	put, err := wire.Encode(wire.Put, 0, wire.ValuedBody{Name: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Write(put); err != nil { // Its reader reads after the handshake only.
		t.Fatal(err)
	}
	s.Dump()
	if at := <-conn.writes; !at.IsZero() {
		t.Errorf("the write to a process that does not read ends in %v", time.Until(at))
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	far.Close()
}
