package mesh

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/framework"
)

// logLines is a slog.Handler that records messages of Warn and above.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *logLines) WithGroup(string) slog.Handler                    { return l }
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

// newLoggedJob returns a job, and the messages of its clients.
func newLoggedJob(t testing.TB, on network, size int) (*testJob, *logLines) {
	j, lines := newTestJob(t, on, size), &logLines{}
	j.env.Logger = slog.New(lines)
	return j, lines
}

// rawDial connects to a client's socket without a handshake.
func rawDial(t testing.TB, on network, c *client) net.Conn {
	t.Helper()
	netw, at := "unix", c.ownEntry.socketName()
	if on == tcp {
		netw, at = "tcp", c.listeners.tcp.Addr().String()
	}
	nc, err := net.Dial(netw, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	return nc
}

// helloTo returns a valid hello of a rank for c.
func helloTo(c *client, rank int) hello {
	return hello{from: uint32(rank), to: c.id.Proc.Rank, fromNonce: 77, toNonce: c.ownEntry.nonce}
}

// impostor connects to c as a rank of its job, with the right key.
func impostor(t testing.TB, on network, c *client, rank int) (net.Conn, *wire.Reader) {
	t.Helper()
	nc := rawDial(t, on, c)
	proof, err := proveAsConnector(nc, c.id.Proc.Namespace, helloTo(c, rank), c.ownEntry)
	if err == nil {
		_, err = nc.Write(proof)
	}
	r := wire.NewReader(nc, wire.MaxFrame)
	if err == nil {
		_, err = r.Next()
	}
	if err != nil {
		t.Fatal(err)
	}
	return nc, r
}

// checkClosed fails the test unless the other end closes the connection.
func checkClosed(t *testing.T, what string, nc net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, nc); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: the connection is not closed: %v", what, err)
	}
}

// constructUntilStopped makes one communicator after another until stop is called, which returns
// the first error.
func (j *testJob) constructUntilStopped(cs ...*client) (stop func() error) {
	var group []framework.Proc
	for _, c := range cs {
		group = append(group, c.id.Proc)
	}
	enough, results := make(chan struct{}), make(chan error, 1)
	go func() {
		results <- inAll(cs, func(c *client) error {
			for {
				var payload []byte // The first member's payload ends the loop.
				if c == cs[0] {
					select {
					case <-enough:
						payload = []byte("last")
					default:
					}
				}
				got, err := c.Construct(j.t.Context(), group, "good", payload)
				if err != nil || len(got.Payloads[0]) > 0 {
					return err
				}
			}
		})
	}()
	return func() error { close(enough); return <-results }
}

func TestHandshake_InvalidHello_IsRefused(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j, lines := newLoggedJob(t, on, 4)
		cs := j.openAll()[:3]
		j.fence("start", cs...)
		stop := j.constructUntilStopped(cs...)
		c := cs[0]
		good := helloTo(c, 3)
		change := func(f func(*hello)) []byte {
			h := good
			f(&h)
			return h.encode()
		}
		older := good.encode()
		older[7]++
		for _, s := range []struct {
			what  string
			bytes []byte
			// The connector closes in the middle.
			half bool
		}{
			{what: "an HTTP request", bytes: []byte("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a client with a rather long name\r\n\r\n")},
			{what: "zeros", bytes: make([]byte, helloSize)},
			{what: "nothing", half: true},
			{what: "half a hello", bytes: good.encode()[:helloSize/2], half: true},
			{what: "another version", bytes: older},
			{what: "another process", bytes: change(func(h *hello) { h.toNonce++ })},
			{what: "another rank", bytes: change(func(h *hello) { h.to = 1 })},
			{what: "a rank beyond the job", bytes: change(func(h *hello) { h.from = 4 })},
			{what: "its own rank", bytes: change(func(h *hello) { h.from = 0 })},
			{what: "a wrong proof", bytes: append(good.encode(), make([]byte, proofSize)...)},
			{what: "the acceptor's own proof", bytes: nil}, // Set below.
		} {
			nc := rawDial(t, on, c)
			switch {
			case s.bytes != nil:
				if _, err := nc.Write(s.bytes); err != nil {
					t.Errorf("%s: %v", s.what, err)
				}
			case !s.half:
				if _, err := nc.Write(good.encode()); err != nil {
					t.Fatal(err)
				}
				var answer [answerSize]byte
				if _, err := io.ReadFull(nc, answer[:]); err != nil {
					t.Fatal(err)
				}
				if _, err := nc.Write(answer[challengeSize:]); err != nil {
					t.Fatal(err)
				}
			}
			if s.half {
				nc.Close()
				continue
			}
			checkClosed(t, s.what, nc)
		}
		if err := stop(); err != nil {
			t.Errorf("the good job: %v", err)
		}
		eventually(t, "ten are refused", func() bool {
			c.refusals.mu.Lock()
			defer c.refusals.mu.Unlock()
			return c.refusals.total >= 10
		})
		if n := lines.with("connection was refused"); n != 1 {
			t.Errorf("%d lines about refused connections: %q", n, lines.lines)
		}
	})
}

// A proof of one connection is invalid on another one.
func TestHandshake_Replay_IsRefused(t *testing.T) {
	j, lines := newLoggedJob(t, tcp, 2)
	c := j.openAll()[0]
	var said bytes.Buffer
	h := helloTo(c, 1)
	nc := rawDial(t, tcp, c)
	both := struct {
		io.Reader
		io.Writer
	}{nc, io.MultiWriter(nc, &said)}
	proof, err := proveAsConnector(both, c.id.Proc.Namespace, h, c.ownEntry)
	if err == nil {
		_, err = both.Write(proof)
	}
	if err == nil {
		_, err = wire.NewReader(nc, wire.MaxHello).Next() // Welcome.
	}
	if err != nil {
		t.Fatal(err)
	}
	again := rawDial(t, tcp, c)
	if _, err := again.Write(said.Bytes()); err != nil {
		t.Fatal(err)
	}
	checkClosed(t, "a replay", again)
	eventually(t, "it is logged", func() bool { return lines.with("wrong key") == 1 })
	if !c.connectedTo(1) {
		t.Error("the original connection has ended")
	}
}

// There are more silent connections than handshakes at a time.
func TestHandshake_ManySilentConnections_MembersConnect(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j, _ := newLoggedJob(t, on, 3)
		c := j.open(0)
		for range maxHandshakes + 20 {
			rawDial(t, on, c)
		}
		others := []*client{j.open(1), j.open(2)}
		j.fence("t", append(others, c)...)
		j.fence("t", append([]*client{c}, others...)...)
	})
}

// One member violates the protocol, and the others continue.
func TestMessage_Invalid_EndsConnection(t *testing.T) {
	frame := func(k wire.Kind, id uint64, body any) []byte {
		b := wire.EncodeBody(body) // Also over the limits.
		h, err := wire.Header(k, id, len(b))
		if err != nil {
			t.Fatal(err)
		}
		return append(h, b...)
	}
	get := frame(wire.Get, 1, wire.GetBody{Rank: 0, Key: "never"})
	j, _ := newLoggedJob(t, unix, 4)
	cs := []*client{j.open(0), j.open(1)}
	stop := j.constructUntilStopped(cs...)
	for what, b := range map[string][]byte{
		"a frame over the limit":      binary.BigEndian.AppendUint32(nil, wire.MaxFrame+1),
		"CBOR that is not a message":  {0, 0, 0, 3, 0xff, 0xff, 0xff},
		"a launcher's request":        frame(wire.Report, 1, wire.Empty{}),
		"a welcome":                   frame(wire.Welcome, 0, wire.WelcomeBody{}),
		"a launcher's put":            frame(wire.Put, 0, wire.ValuedBody{Name: "k"}),
		"id 0":                        frame(wire.Get, 0, wire.GetBody{}),
		"a body of another kind":      frame(wire.Get, 1, wire.Empty{}),
		"the same id twice":           append(get, get...),
		"a value over the limit":      frame(wire.Replicate, 0, wire.ReplicateBody{Value: make([]byte, bootstrap.MaxValue+1)}),
		"a payload over the limit":    frame(wire.Construct, 1, wire.JoinBody{Payload: make([]byte, wire.MaxJoin+1)}),
		"a group that is not a group": frame(wire.Fence, 1, wire.JoinBody{Group: []byte{0x01}}),
		"news of a rank of its own":   frame(wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Rank: 4}),
		"a reason over the limit":     frame(wire.Disconnect, 0, wire.DisconnectBody{Reason: strings.Repeat("x", bootstrap.MaxName+1)}),
		"a note over the limit":       frame(wire.Note, 0, wire.NoteBody{Body: make([]byte, bootstrap.MaxPayload+1)}),
		"half a frame, and no more ":  get[:len(get)-1],
	} {
		nc, r := impostor(t, unix, cs[0], 3)
		if _, err := nc.Write(b); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if strings.HasPrefix(what, "half") {
			nc.(*net.UnixConn).CloseWrite()
		}
		for {
			if _, err := r.Next(); err != nil { // An Incarnation or an event may precede.
				break
			}
		}
	}
	// A Get of another process's values and a join of another group are refused on an intact
	// connection.
	nc, r := impostor(t, unix, cs[0], 3)
	group := wire.EncodeBody(wire.Runs{{Namespace: j.namespace, First: 0, Stride: 1, Count: 2}})
	for _, b := range [][]byte{
		frame(wire.Get, 1, wire.GetBody{Rank: 1, Key: "never"}),
		frame(wire.Fence, 2, wire.JoinBody{Tag: "t", Group: group}),
		frame(wire.Reply, 1, wire.ConstructedBody{ContextID: 1}), // For a call of another process.
	} {
		if _, err := nc.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if m, err := r.Next(); err != nil || m.Kind != wire.Failure {
			t.Errorf("kind %d, %v, want a failure", m.Kind, err)
		}
	}
	if err := stop(); err != nil {
		t.Errorf("the good job: %v", err)
	}
}

func TestLink_PeerDoesNotRead_IsDropped(t *testing.T) {
	onBothNetworks(t, func(t *testing.T, on network) {
		j, lines := newLoggedJob(t, on, 3)
		cs := []*client{j.open(0), j.open(1)}
		for _, key := range []string{"big", "too"} { // The same reply twice in a row is sent once.
			if err := cs[0].Put(t.Context(), key, make([]byte, bootstrap.MaxValue)); err != nil {
				t.Fatal(err)
			}
		}
		nc, _ := impostor(t, on, cs[0], 2)
		for id := uint64(1); ; id++ {
			b := encodeFrame(wire.Get, id, wire.GetBody{Rank: 0, Key: []string{"big", "too"}[id%2]})
			if _, err := nc.Write(b); err != nil {
				if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
					break
				}
				t.Fatal(err)
			}
			if id > 100_000 {
				t.Fatal("100 GB are kept for a peer that does not read")
			}
		}
		if n := lines.with("does not read"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		j.fence("t", cs...)
	})
}

// A stopped process keeps its connections, and is not dead.
func TestDeadline_PeerIsStopped_IsNamed(t *testing.T) {
	j, _ := newLoggedJob(t, unix, 2)
	j.env.Timeout = 300 * time.Millisecond
	c := j.open(0)
	l, err := net.Listen("unix", "@ferry-meet-00000000deadbeef")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	j.entries[j.proc(1)] = (&entry{nonce: 0xdeadbeef, hostID: c.ownEntry.hostID}).encode()
	heard := collectEvents(c)
	err = c.Fence(t.Context(), []framework.Proc{j.proc(1), j.proc(0)}, "t")
	var m *framework.MissingError
	if !errors.As(err, &m) || len(m.Missing) != 1 || m.Missing[0] != j.proc(1) {
		t.Errorf("%v", err)
	}
	noEvent(t, heard)
}

// The call ends some time after its deadline, because the coordinator may have withdrawn it.
func TestDeadline_CoordinatorIsStopped_IsNamed(t *testing.T) {
	j, _ := newLoggedJob(t, unix, 2)
	j.env.Timeout = 200 * time.Millisecond
	c := j.open(0)
	c.timeouts.answerGrace = 100 * time.Millisecond
	nc, r := impostor(t, unix, c, 1)
	for _, end := range []error{framework.ErrTimeout, context.Canceled} {
		ctx, cancel := context.WithCancel(t.Context())
		if end == context.Canceled {
			time.AfterFunc(10*time.Millisecond, cancel)
		}
		err := c.Fence(ctx, []framework.Proc{j.proc(1), j.proc(0)}, "t")
		cancel()
		if !errors.Is(err, end) || !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), j.proc(1).String()) {
			t.Errorf("%v", err)
		}
		for _, k := range []wire.Kind{wire.Fence, wire.Cancel} {
			if m, err := r.Next(); err != nil || m.Kind != k {
				t.Errorf("kind %d, %v, want %d", m.Kind, err, k)
			}
		}
	}
	nc.Close()
}
