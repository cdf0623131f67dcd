package local

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// puppet is a launcher that sends only what a test makes it send. Its connection has no buffer.
type puppet struct {
	t    *testing.T
	conn net.Conn
	r    *wire.Reader
	// Log of the client.
	log bytes.Buffer
}

// stringed returns a client of rank 0 of 2 with that timeout, and its launcher.
func stringed(t *testing.T, timeout time.Duration) (*client, *puppet) {
	t.Helper()
	a, b := net.Pipe()
	p := &puppet{t: t, conn: b, r: wire.NewReader(b, wire.MaxFrame)}
	t.Cleanup(func() { b.Close() })
	greeted := make(chan struct{})
	go func() {
		defer close(greeted)
		p.expect(wire.Hello)
		p.send(wire.Welcome, 0, wire.WelcomeBody{Size: 2})
	}()
	id := bootstrap.Identity{Proc: framework.Proc{Namespace: "job"}, Size: 2, LocalSize: 2, LocalRanks: []uint32{0, 1}}
	c, err := connect(t.Context(), a, id, "token", bootstrap.Env{Timeout: timeout, Logger: slog.New(slog.NewTextHandler(&p.log, nil))})
	<-greeted
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, p
}

// expect reads the next message.
func (p *puppet) expect(k wire.Kind) wire.Message {
	p.t.Helper()
	m, err := p.r.Next()
	if err != nil || m.Kind != k {
		p.t.Errorf("the launcher gets %v, %v, not a message of kind %d", m, err, k)
	}
	return m
}

func (p *puppet) send(k wire.Kind, id uint64, body any) {
	p.t.Helper()
	frame, err := wire.Encode(k, id, body)
	if err == nil {
		_, err = p.conn.Write(frame)
	}
	if err != nil {
		p.t.Error(err)
	}
}

// Close does not block either, nor a Put whose context ends.
func TestEvents_LauncherIsStopped_DoNotBlock(t *testing.T) {
	c, _ := stringed(t, time.Hour)
	c.BeginIncarnation(1)
	other := framework.Proc{Namespace: "job", Rank: 1}
	for range 10_000 {
		c.Disconnect(other, 2, strings.Repeat("no way ", 100))
	}
	c.mu.Lock()
	if c.outbox.unsentBytes > 2*maxLossyBytes {
		t.Errorf("%d bytes wait for a launcher that reads nothing", c.outbox.unsentBytes)
	}
	c.mu.Unlock()
	c.EndIncarnation()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.Put(ctx, "k", nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errUnread) {
		t.Errorf("put: %v", err)
	}
	if _, err := c.Get(ctx, other, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("get: %v", err)
	}
	putting := make(chan error, 10)
	for range cap(putting) {
		go func() { putting <- c.Put(t.Context(), "k", nil) }()
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for range cap(putting) {
		if err := <-putting; !errors.Is(err, framework.ErrClosed) {
			t.Errorf("put during Close: %v", err)
		}
	}
}

func TestServerLost_SeveralCauses_FirstIsReported(t *testing.T) {
	for want, lose := range map[string]func(c *client, p *puppet){
		"send with the launcher: write pipe: i/o timeout": func(c *client, _ *puppet) { c.BeginIncarnation(1) },
		"wait for an answer with the launcher: deadline exceeded": func(c *client, p *puppet) {
			go func() {
				p.expect(wire.Lookup)
				p.expect(wire.Cancel)
			}()
			if _, _, err := c.Lookup(t.Context(), "n", true); !errors.Is(err, framework.ErrTimeout) || !errors.Is(err, framework.ErrTransport) {
				t.Errorf("lookup: %v", err)
			}
		},
		"receive with the launcher: EOF": func(_ *client, p *puppet) { p.conn.Close() },
	} {
		c, p := stringed(t, 20*time.Millisecond)
		c.answerGrace = time.Millisecond
		events := listen(t, c)
		lose(c, p)
		e := next(t, events)
		if e.Kind != bootstrap.ServerLost || !strings.Contains(e.Reason, want) {
			t.Errorf("event %+v, want %q", e, want)
		}
		if err := c.Put(t.Context(), "k", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("afterwards: %v, want %q", err, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Put(t.Context(), "k", nil); !errors.Is(err, framework.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if line := p.log.String(); !strings.Contains(line, want) || strings.Contains(line, "closed") {
			t.Errorf("log %q, want %q", line, want)
		}
	}
}

// The server was stopped as a call ended.
func TestCall_LateAnswer_KeepsConnection(t *testing.T) {
	c, p := stringed(t, time.Hour)
	c.answerGrace = time.Millisecond
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	read := make(chan uint64, 1)
	go func() {
		id := p.expect(wire.Construct).ID
		cancel(why)
		p.expect(wire.Cancel)
		read <- id
	}()
	group := []framework.Proc{{Namespace: "job"}, {Namespace: "job", Rank: 1}}
	if _, err := c.Construct(ctx, group, "t", nil); !errors.Is(err, why) || !errors.Is(err, framework.ErrTransport) {
		t.Errorf("construct: %v", err)
	}
	go func() {
		p.send(wire.Reply, <-read, wire.ConstructedBody{ContextID: 1, Payloads: [][]byte{nil, nil}})
		p.send(wire.Reply, p.expect(wire.Get).ID, wire.ValueBody{Found: true, Value: []byte("v")})
	}()
	if v, err := c.Get(t.Context(), group[1], "k"); err != nil || string(v) != "v" {
		t.Errorf("afterwards: %q, %v", v, err)
	}
	go p.expect(wire.Goodbye)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if line := p.log.String(); !strings.Contains(line, "withdrawn call has completed") {
		t.Errorf("log %q", line)
	}
}
