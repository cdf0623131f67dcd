package tcp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// between accepts connections on the way to a process, and passes them to handle.
func (p *process) between(handle func(from, to net.Conn)) (peer framework.Peer) {
	t := p.j.t
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", itoa(p.host.listenPort)))
			if err != nil {
				from.Close()
				continue
			}
			all.Go(func() {
				defer context.AfterFunc(ctx, func() { from.Close(); to.Close() })()
				defer from.Close()
				defer to.Close()
				handle(from, to)
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); all.Wait() })
	card, err := decodeCard(p.Blob())
	if err != nil {
		t.Fatal(err)
	}
	card.listenPort = uint16(l.Addr().(*net.TCPAddr).Port)
	peer = p.card()
	peer.Blob = card.encode()
	return peer
}

// relay copies both ways until one end closes.
func relay(a, b net.Conn) {
	done := make(chan bool, 2)
	for _, ends := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() { io.Copy(ends[0], ends[1]); done <- true }()
	}
	<-done
	a.Close()
	b.Close()
	<-done
}

// tap is a connection that passes written bytes to hear.
type tap struct {
	net.Conn
	hear func([]byte)
}

func (t tap) Write(b []byte) (int, error) {
	t.hear(b)
	return t.Conn.Write(b)
}

// The description of the link names TLS.
func TestTLS_PacketsOnTheWire_AreEncrypted(t *testing.T) {
	j := newJob(t, 2, overTLS)
	a, b := j.procs[0], j.procs[1]
	var mu sync.Mutex
	var ackedUpTo []byte
	e, err := a.Connect(b.between(func(from, to net.Conn) {
		relay(from, tap{to, func(p []byte) {
			mu.Lock()
			defer mu.Unlock()
			ackedUpTo = append(ackedUpTo, p...)
		}})
	}))
	if err != nil {
		t.Fatal(err)
	}
	j.send(e, []byte("nobody else reads this"))
	j.until("the frame", func() bool { return len(b.got) == 1 })
	mu.Lock()
	defer mu.Unlock()
	for _, clear := range []string{"nobody else", "ferrytc"} {
		if len(ackedUpTo) < 500 || strings.Contains(string(ackedUpTo), clear) {
			t.Errorf("of %d bytes in flight some are %q", len(ackedUpTo), clear)
		}
	}
	for _, p := range j.procs {
		if len(p.links) != 1 || !strings.Contains(p.links[0], "TLS") {
			t.Errorf("states reported to the protocol: %q", p.links)
		}
		d := p.Describe(j.procs[1-p.rank].card())
		if len(d.Notes) != 1 || !strings.Contains(d.Notes[0], ", TLS, ") {
			t.Errorf("%+v", d)
		}
	}
}

// It terminates TLS on both sides, and forwards the plaintext.
func TestAttack_TLSManInTheMiddle_IsRefusedAtBothEnds(t *testing.T) {
	j := newJob(t, 2, overTLS)
	a, b := j.procs[0], j.procs[1]
	id, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	config := id.config(func([]byte) error { return nil })
	c := tls.Client(b.dial(), config)
	h := hello{security: securityTLS, rank: 0, acceptorNonce: b.incarnation.Nonce, namespaceHash: framework.NamespaceHash(j.namespace), callerNonce: a.incarnation.Nonce, callerState: 5, limits: a.localLimits()}
	said := make(chan error, 1)
	go func() {
		_, err := c.Write(h.encode())
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		said <- err
	}()
	j.until("the acceptor refuses", func() bool { return b.inbound.refusedCount == 1 })
	if err := <-said; err == nil || b.lines(errOtherKey.Error()) != 1 {
		t.Errorf("it hears %v: %s", err, b.log.String())
	}
	e, err := a.Connect(b.between(func(from, to net.Conn) { relay(tls.Server(from, config), tls.Client(to, config)) }))
	if err != nil {
		t.Fatal(err)
	}
	j.until("the caller refuses", func() bool { return len(a.lost) == 1 })
	if err := a.lost[0]; !errors.Is(err, btl.ErrNeverOpened) || !strings.Contains(err.Error(), errOtherKey.Error()) {
		t.Error(err)
	}
	e.Close()
	j.until("no connection is in the handshake", func() bool { return len(b.inbound.handshakingConns) == 0 })
	if len(b.got) > 0 || len(b.peers.byIncarnation) > 0 {
		t.Errorf("%d frames, %d pairs", len(b.got), len(b.peers.byIncarnation))
	}
	j.met()
}

func TestTLS_CallerWithoutCard_WaitsAndIsRefused(t *testing.T) {
	j := newJob(t, 2, overTLS)
	a, b := j.procs[0], j.procs[1]
	// A slow caller dials its second address, too.
	isHeld := func() bool {
		return slices.ContainsFunc(b.inbound.handshakingConns, func(c *inboundConn) bool { return c.heldHello != nil })
	}
	b.alone = true
	e := a.connect(b)
	j.until("the caller waits", isHeld)
	b.alone = false
	j.send(e, []byte("it has come"))
	j.until("the frame", func() bool { return len(b.got) == 1 })
	if b.inbound.refusedCount != 0 || a.peers.byIncarnation[b.incarnation].reconnectCount != 0 {
		t.Errorf("%d were refused: %s", b.inbound.refusedCount, b.log.String())
	}

	c := j.open(0, overTLS)
	j.procs = append(j.procs, c)
	b.alone = true
	c.connect(b)
	j.until("the caller waits", isHeld)
	b.timers.startedAt = b.timers.startedAt.Add(-cardTimeout)
	j.until("the refusal is counted", func() bool { return b.inbound.refusedCount > 0 })
	j.until("the caller has the answer", func() bool {
		return slices.ContainsFunc(c.peers.byIncarnation[b.incarnation].lastFailures, func(f failure) bool { return strings.Contains(f.err.Error(), outcomeNames[outcomeNoCard]) })
	})
	c.config.connectTimeout = 0
	j.until("the path is lost", func() bool { return len(c.lost) == 1 })
	if err := c.lost[0]; !errors.Is(err, btl.ErrNeverOpened) || !strings.Contains(err.Error(), outcomeNames[outcomeNoCard]) {
		t.Error(err)
	}
	if b.lines("has not arrived") != 1 {
		t.Error(b.log.String())
	}
}

// The key of the acceptor's card alone is not enough.
func TestAttack_MemberPosesAsAnother_IsRefused(t *testing.T) {
	j := newJob(t, 3, overTLS)
	a, b, c := j.procs[0], j.procs[1], j.procs[2]
	a.env.Self, a.env.Identity = c.incarnation, c.env.Identity
	a.connect(b)
	j.until("it is turned away", func() bool { return b.inbound.refusedCount > 0 })
	if b.lines(errOtherKey.Error()) != 1 || len(b.peers.byIncarnation) > 0 {
		t.Errorf("%d pairs: %s", len(b.peers.byIncarnation), b.log.String())
	}
}

// Either end cuts one direction or both.
func TestTLS_LinkIsCut_LosesNothing(t *testing.T) {
	j := newJob(t, 2, func(rank int, p *params) { overTLS(rank, p); p.Window = 64 << 10 })
	a, b, e := j.met()
	for round := range 10 {
		from := len(b.got)
		for k := range 50 {
			j.send(e, fmt.Appendf(make([]byte, 0, 3000), "%d %d %3000d", round, k, k)[:3000])
			if k != 25 {
				continue
			}
			for _, l := range a.peers.byIncarnation[b.incarnation].linksBySlot {
				if l != nil {
					unix.Shutdown(l.fd, []int{unix.SHUT_RDWR, unix.SHUT_WR, unix.SHUT_RD}[round%3])
				}
			}
			if round%3 == 1 {
				b.cut()
			}
		}
		j.until("all frames", func() bool { return len(b.got) == from+50 })
		for k := range 50 {
			if got, want := string(b.got[from+k][:10]), fmt.Sprintf("%d %d          ", round, k)[:5]; !strings.HasPrefix(got, strings.TrimRight(want, " ")) {
				t.Fatalf("round %d: frame %d is %q", round, k, got)
			}
		}
	}
	if d := a.Describe(b.card()); d.Reconnects < 5 {
		t.Errorf("%+v", d)
	}
}

// The bytes are a malformed record, an endless one, a plain hello, and a hello with a false security.
func TestAttack_InvalidTLS_IsRefused(t *testing.T) {
	j := newJob(t, 2, overTLS)
	a, b, e := j.met()
	plain := hello{security: securityAuth, rank: 0, acceptorNonce: b.incarnation.Nonce, namespaceHash: framework.NamespaceHash(j.namespace), callerNonce: 77, callerState: 5, limits: a.localLimits()}
	lies := plain
	lies.security = securityTLS
	garbage := make([]byte, 4096)
	rand.Read(garbage)
	garbage[0] = 'x'
	record := append([]byte{recordHandshake, 3, 1, 2, 0}, garbage[:512]...)
	for what, bytes := range map[string][]byte{
		"garbage": garbage, "a record of it": record, "a record too long": {recordHandshake, 3, 1, 255, 255, 0}, "auth": plain.encode(), "a lie": lies.encode(),
	} {
		c := b.dial()
		c.Write(bytes)
		before := b.inbound.refusedCount
		j.until(what+" is turned away", func() bool { return b.inbound.refusedCount > before })
		j.closedBy(b, c)
	}
	c := b.dial() // it stops within
	c.Write(record[:100])
	j.until("it is let begin", func() bool {
		return len(b.inbound.handshakingConns) == 1 && b.inbound.handshakingConns[0].isProtocolKnown
	})
	b.timers.startedAt = b.timers.startedAt.Add(-inboundTimeout)
	j.until("it is turned away", func() bool { return len(b.inbound.handshakingConns) == 0 })
	j.closedBy(b, c)
	if n := b.lines("connection was refused"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, b.log.String())
	}
	j.send(e, []byte("still here"))
	j.until("a frame", func() bool { return len(b.got) == 2 })
}

// The cards name it, or the acceptor if a card is wrong.
func TestTLS_SecurityDiffers_BothEndsNameIt(t *testing.T) {
	for _, other := range []string{"auth", "none"} {
		j := newJob(t, 2, func(rank int, p *params) {
			if p.Security = other; rank == 1 {
				p.Security = "tls"
			}
		})
		for i, values := range []string{other + " here and tls at the peer", "tls here and " + other + " at the peer"} {
			from, to := j.procs[i], j.procs[1-i]
			says := "btl.tcp.security is " + values
			if err := from.Reach(to.card()); err == nil || !strings.Contains(err.Error(), says) {
				t.Error(err)
			}
			card, _ := decodeCard(to.Blob())
			if card.security = from.config.security; from.config.security == securityTLS {
				card.tlsKey = make([]byte, tlsKeySize)
			}
			peer := to.card()
			peer.Blob = card.encode()
			if _, err := from.Connect(peer); err != nil {
				t.Fatal(err)
			}
			j.until("the path is lost", func() bool { return len(from.lost) == 1 })
			if err := from.lost[0]; !errors.Is(err, btl.ErrNeverOpened) || !strings.Contains(err.Error(), says) {
				t.Error(err)
			}
			if !strings.Contains(to.log.String(), "btl.tcp.security is") {
				t.Errorf("%s: %s", says, to.log.String())
			}
		}
		j.procs[0].end()
		j.procs[1].end()
	}
}

func overTLS(rank int, p *params) { TLS(rank, p) }

// They have left the socket, so that no event announces them.
func TestTLS_DecryptedFrames_NextPollDelivers(t *testing.T) {
	j := newJob(t, 2, overTLS)
	a, b, e := j.met()
	source := b.PeerSource(a.incarnation)
	for b.PollAll() > 0 || len(b.readyLinks) > 0 {
	}
	l := b.peers.byIncarnation[a.incarnation].linksBySlot[0]
	waiting := func() int {
		n, _ := unix.IoctlGetInt(l.fd, unix.SIOCINQ)
		return n
	}
	for range 3 { // one read takes them all
		before := waiting()
		e.Commit(copy(e.Reserve(9, btl.RingStart), "at once"))
		a.PollAll()
		for waiting() == before {
		}
	}
	for source.Poll() == 0 {
	}
	if len(b.got) != 2 || waiting() != 0 {
		t.Fatalf("%d frames are handed up, %d bytes wait: this test tests nothing", len(b.got)-1, waiting())
	}
	if b.Arm() {
		t.Error("it would sleep, and has frames")
	}
	for range 5 {
		b.PollAll()
	}
	if len(b.got) != 4 {
		t.Errorf("%d frames are handed up", len(b.got)-1)
	}
}

func TestTLS_CallersCardDamaged_IsRefusedWithReason(t *testing.T) {
	j := newJob(t, 2, overTLS)
	a, b := j.procs[0], j.procs[1]
	a.module.encodedCard = a.module.encodedCard[:5]
	a.connect(b)
	j.until("it is turned away", func() bool { return b.inbound.refusedCount > 0 })
	if b.lines("card is too short") != 1 {
		t.Error(b.log.String())
	}
}
