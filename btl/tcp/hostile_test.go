package tcp

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// closedBy waits until the other end has closed a stranger's connection.
func (j *job) closedBy(p *process, c net.Conn) {
	j.t.Helper()
	j.until("a stranger is turned away", func() bool {
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := io.Copy(io.Discard, c)
		return err == nil || !errors.Is(err, errTimeout(err))
	})
}

// errTimeout is err if it is a timeout.
func errTimeout(err error) error {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return err
	}
	return io.ErrNoProgress
}

// The hellos are garbage, cut, of another version, for another process, or without the key.
func TestAttack_InvalidHello_IsRefusedAndLoggedOnce(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, e := j.met()
	good := hello{security: securityAuth, rank: 0, acceptorNonce: b.incarnation.Nonce, namespaceHash: framework.NamespaceHash(j.namespace), callerNonce: 77, callerState: 5, limits: a.localLimits()}
	garbage := make([]byte, 4096)
	rand.Read(garbage)
	other := good
	other.acceptorNonce++
	foreign := good
	foreign.namespaceHash++
	newer := good.encode()
	newer[7]++
	wrongKey := append(good.encode(), make([]byte, proofSize)...)
	for what, bytes := range map[string][]byte{
		"garbage": garbage, "another version": newer, "for another process": other.encode(), "another job": foreign.encode(), "no key": wrongKey,
	} {
		c := b.dial()
		c.Write(bytes)
		before := b.inbound.refusedCount
		j.until(what+" is turned away", func() bool { return b.inbound.refusedCount > before })
		j.closedBy(b, c)
	}
	c := b.dial() // cut
	c.Write(good.encode()[:50])
	c.Close()
	j.until("a cut greeting is turned away", func() bool { return b.inbound.refusedCount == 6 })
	if n := b.lines("connection was refused"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, b.log.String())
	}
	if len(b.inbound.handshakingConns) != 0 || len(b.peers.byIncarnation) != 1 {
		t.Errorf("%d guests and %d pairs are left", len(b.inbound.handshakingConns), len(b.peers.byIncarnation))
	}
	j.send(e, []byte("still here"))
	j.until("a frame", func() bool { return len(b.got) == 2 })
}

// A process of the job hangs up if another connection was faster.
func TestInbound_CallerHangsUp_IsNotLogged(t *testing.T) {
	j := newJob(t, 2, nil)
	_, b, _ := j.met()
	b.dial().Close()
	b.dial().Write(make([]byte, helloSize)) // it is accepted behind that
	j.until("a stranger is turned away", func() bool { return b.inbound.refusedCount > 0 })
	if b.inbound.refusedCount != 1 || len(b.inbound.handshakingConns) != 0 {
		t.Errorf("%d strangers, %d guests", b.inbound.refusedCount, len(b.inbound.handshakingConns))
	}
	if said := b.log.String(); strings.Contains(said, errEnd.Error()) {
		t.Error(said)
	}
}

func TestAttack_ReplayedHandshake_IsRefused(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b := j.procs[0], j.procs[1]
	// A relay records the bytes from a to b.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	card, _ := decodeCard(b.Blob())
	card.listenPort = uint16(l.Addr().(*net.TCPAddr).Port)
	said := make(chan []byte, 1)
	go func() {
		from, err := l.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", itoa(b.host.listenPort)))
		if err != nil {
			return
		}
		go func() { io.Copy(from, to); from.Close() }()
		all := make([]byte, helloSize+proofSize)
		io.ReadFull(from, all[:helloSize])
		to.Write(all[:helloSize])
		io.ReadFull(from, all[helloSize:])
		to.Write(all[helloSize:])
		said <- all
		io.Copy(to, from)
		to.Close()
	}()
	peer := b.card()
	peer.Blob = card.encode()
	e, err := a.Connect(peer)
	if err != nil {
		t.Fatal(err)
	}
	j.send(e, []byte("through the relay"))
	j.until("the frame", func() bool { return len(b.got) == 1 })
	c := b.dial()
	c.Write(<-said)
	j.until("the replay is turned away", func() bool { return b.inbound.refusedCount == 1 })
	j.closedBy(b, c)
	j.send(e, []byte("more"))
	j.until("the frame", func() bool { return len(b.got) == 2 })
}

func TestAttack_ManyConnections_DescriptorsAreBounded(t *testing.T) {
	j := newJob(t, 2, nil)
	_, b, e := j.met()
	var open []net.Conn
	for k := range 3 * maxInboundConns {
		c := b.dial()
		if open = append(open, c); len(open) > maxInboundConns {
			open[0].Close()
			open = open[1:]
		}
		for range 3 {
			b.pacer.pollsUntilSockets = 0
			b.Poll()
		}
		if len(b.inbound.handshakingConns) > maxInboundConns {
			t.Fatalf("%d strangers are in a handshake", len(b.inbound.handshakingConns))
		}
		if k%100 == 0 {
			j.send(e, []byte("x"))
		}
	}
	j.until("all frames", func() bool { return len(b.got) == 1+(3*maxInboundConns+99)/100 })
	// A silent caller delays no other.
	b.timers.startedAt = b.timers.startedAt.Add(-inboundTimeout)
	j.until("silent strangers are turned away", func() bool { return len(b.inbound.handshakingConns) == 0 })
	if n := b.lines("connection was refused"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}

// Repeated damage ends the path.
func TestLink_DamagedFrames_ReconnectsWithoutLoss(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, e := j.met()
	damage := func() {
		p := a.peers.byIncarnation[b.incarnation]
		j.until("a link", func() bool {
			return len(a.lost)+len(b.lost) > 0 || p.linksBySlot[0] != nil && b.peers.byIncarnation[a.incarnation] != nil && b.peers.byIncarnation[a.incarnation].linksBySlot[0] != nil
		})
		if p.linksBySlot[0] != nil {
			p.path.queuesBySlot[0].pendingAck = []byte(strings.Repeat("garbage ", 3))
			p.markPending()
		}
	}
	for k := range maxDamagedLinks {
		links := len(b.links)
		damage()
		j.send(e, []byte{byte(k)})
		j.until("the link ends", func() bool { return len(b.links) > links+1 })
		j.until("the frame", func() bool { return len(b.got) == k+2 })
	}
	if n := b.lines("level=WARN"); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, b.log.String())
	}
	damage()
	j.until("the path ends", func() bool { return len(b.lost) > 0 })
	if !errors.Is(b.lost[0], framework.ErrTransport) || !errors.Is(b.lost[0], errDamaged) {
		t.Error(b.lost[0])
	}
	j.until("the sender reports the loss", func() bool { return len(a.lost) > 0 })
}

func TestSecurity_Differs_ErrorNamesBoth(t *testing.T) {
	j := newJob(t, 2, func(rank int, p *params) {
		if rank == 1 {
			p.Security = "none"
		}
	})
	a, b := j.procs[0], j.procs[1]
	_, err := a.Connect(b.card())
	for _, e := range []error{err, a.Reach(b.card())} {
		if e == nil || !strings.Contains(e.Error(), "btl.tcp.security is auth here and none at the peer") {
			t.Error(e)
		}
	}
	// A caller that ignores the card gets it from the peer.
	card, _ := decodeCard(b.Blob())
	card.security = securityAuth
	peer := b.card()
	peer.Blob = card.encode()
	if _, err := a.Connect(peer); err != nil {
		t.Fatal(err)
	}
	j.until("the path is lost", func() bool { return len(a.lost) == 1 })
	if err := a.lost[0]; !errors.Is(err, btl.ErrNeverOpened) || !strings.Contains(err.Error(), "auth here and none at the peer") {
		t.Error(err)
	}
}

func TestSecurity_None_AcceptsTheJob(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.Security = "none" })
	j.met()
}

// The caller or the acceptor sends arbitrary bytes in place of each part.
func FuzzHandshake(f *testing.F) {
	h := hello{security: securityAuth, linkSlot: 3, rank: 7, acceptorNonce: 1, namespaceHash: 2, callerNonce: 3, callerState: 4, acceptorState: 5, limits: limits{windowBytes: 4 << 20, frameLimit: 1 << 17}}
	a := answer{security: securityAuth, outcome: outcomeAccepted, acceptorState: 9, limits: h.limits}
	f.Add(h.encode())
	f.Add(a.encode())
	f.Add(make([]byte, proofSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		b := make([]byte, helloSize)
		copy(b, in)
		if h, err := decodeHello(b); err == nil {
			again, err := decodeHello(h.encode())
			if err != nil || again != h {
				t.Fatalf("%+v became %+v, %v", h, again, err)
			}
		}
		if a, err := decodeAnswer(b[:answerSize]); err == nil {
			again, err := decodeAnswer(a.encode())
			if err != nil || again != a {
				t.Fatalf("%+v became %+v, %v", a, again, err)
			}
		}
		c := &callerHandshake{hello: h}
		c.cardKey[0] = 1
		c.startHello()
		if c.checkAnswer(b[:answerSize]) == nil {
			t.Fatal("an answer without the key is a proof")
		}
		if _, err := c.checkWelcome(b[:welcomeSize]); err == nil {
			t.Fatal("a welcome without the key is taken")
		}
		v := &acceptorHandshake{receivedHello: h.encode()}
		v.cardKey[0] = 1
		v.makeAnswer(a)
		if _, err := v.checkProof(b[:proofSize]); err == nil {
			t.Fatal("a caller without the key is let in")
		}
	})
}

// The frames of the link are retransmitted.
func TestLink_NumberBeyondWindow_EndsOnlyTheLink(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.Window = 64 << 10 })
	a, b, e := j.met()
	from, to := a.peers.byIncarnation[b.incarnation], b.peers.byIncarnation[a.incarnation]
	goesOn := func(what string) {
		t.Helper()
		links, got := len(b.links), len(b.got)
		j.until("the link ends because of "+what, func() bool { return len(b.links) > links+1 })
		j.send(e, []byte(what))
		j.until("a frame after "+what, func() bool { return len(b.got) > got })
		if got := string(b.got[got]); got != what || len(a.lost)+len(b.lost) > 0 {
			t.Fatalf("after %s: %q, lost %v %v", what, got, a.lost, b.lost)
		}
	}
	note := make([]byte, headerSize)
	h := header{kind: kindAck, flags: flagAckRequest, number: 1 << 60}
	h.encode(note)
	from.path.queuesBySlot[0].pendingAck = note
	from.markPending()
	goesOn("a number far ahead")
	if to.path.ackRequestedUpTo > to.path.nextExpected || to.path.damagedLinks != 1 {
		t.Errorf("a confirmation is owed at %d, %d are here; %d damages", to.path.ackRequestedUpTo, to.path.nextExpected, to.path.damagedLinks)
	}
	for k := range 6 {
		to.bufferFrame(header{bodySize: 16 << 10, kind: kindFrame, number: to.path.nextExpected + 2 + uint64(k)}, make([]byte, 16<<10))
	}
	if len(to.reorderBuffer.framesByNumber) > 2 {
		t.Errorf("%d frames are left aside", len(to.reorderBuffer.framesByNumber))
	}
	to.reorderBuffer.framesByNumber, to.reorderBuffer.bytesBuffered = map[uint64]bufferedFrame{}, 0 // those are no frames of the peer's
	goesOn("frames whose turn never comes")
}

// A peer may open one refused path after another, and never read the answers.
func TestAttack_PathsOpenedWithoutAcks_MemoryIsBounded(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.Window = 4 << 10 })
	a, b, _ := j.met()
	p := a.peers.byIncarnation[b.incarnation]
	for k := 0; !p.isClosed; k++ {
		if p.sendControl(kindRefuse, make([]byte, 100)); k > 1000 {
			t.Fatalf("%d answers take %d bytes", k, p.path.bytesUsed)
		}
		a.PollAll()
	}
	if len(a.lost) != 1 || !errors.Is(a.lost[0], framework.ErrTransport) {
		t.Error(a.lost)
	}
}

// The caller has waited since before the last poll.
func TestInbound_AcceptorWasComputing_AcceptsTheCaller(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b := j.procs[0], j.procs[1]
	b.PollAll()
	e := a.connect(b)
	j.until("the call", func() bool {
		d := a.peers.byIncarnation[b.incarnation].dialersBySlot[0]
		return d != nil && len(d.runningAttempts) == 1 && d.runningAttempts[0].hasSentHello()
	}, b)
	b.timers.startedAt = b.timers.startedAt.Add(-2 * inboundTimeout)
	j.send(e, []byte("waited"))
	j.until("the frame", func() bool { return len(b.got) == 1 })
	if b.inbound.refusedCount > 0 || a.peers.byIncarnation[b.incarnation].dialersBySlot[0] != nil || b.log.Len() > 0 {
		t.Errorf("%d were turned away: %s", b.inbound.refusedCount, b.log.String())
	}
}
