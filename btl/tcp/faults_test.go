package tcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

func itoa(n int) string { return strconv.Itoa(n) }

// cut ends all links of a process as the network does.
func (p *process) cut() {
	for _, q := range p.peers.byIncarnation {
		for _, l := range q.linksBySlot {
			if l != nil {
				unix.Shutdown(l.fd, unix.SHUT_RDWR)
			}
		}
	}
}

// Borrowed payloads stay with their owner until they have arrived.
func TestLink_Lost_ReconnectsAndRetransmitsInOrder(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, e := j.met()
	for round := range 20 {
		from := len(b.got)
		for k := range 50 {
			j.send(e, []byte(fmt.Sprint(round, k)))
			switch {
			case k != 25:
			case round%2 == 0:
				a.cut()
			default: // With unread data.
				b.peers.byIncarnation[a.incarnation].linksBySlot[0].close()
			}
		}
		j.until("all frames", func() bool { return len(b.got) == from+50 })
		for k := range 50 {
			if got := string(b.got[from+k]); got != fmt.Sprint(round, k) {
				t.Fatalf("round %d: frame %d is %q", round, k, got)
			}
		}
	}
	d := a.Describe(b.card())
	if d.Reconnects == 0 || d.Resent == 0 {
		t.Errorf("%+v", d)
	}
	if !slices.ContainsFunc(a.links, func(s string) bool { return strings.HasPrefix(s, "lost: link 0") }) {
		t.Errorf("states reported to the protocol: %q", a.links)
	}
}

// Neither end refuses the other.
func TestConnect_BothDialAtOnce_OneLinkStays(t *testing.T) {
	for _, change := range []func(int, *params){nil, overTLS} {
		for range 50 {
			j := newJob(t, 2, change)
			a, b := j.procs[0], j.procs[1]
			x, y := a.connect(b), b.connect(a)
			j.send(x, []byte("x"))
			j.send(y, []byte("y"))
			j.until("both frames", func() bool { return len(a.got) == 1 && len(b.got) == 1 })
			j.until("the end of the other connection", func() bool { return len(a.inbound.handshakingConns)+len(b.inbound.handshakingConns) == 0 })
			for _, p := range j.procs {
				for _, q := range p.peers.byIncarnation {
					if q.path.countUp() != 1 || q.reconnectCount != 0 || p.inbound.refusedCount != 0 {
						t.Fatalf("rank %d: %d links, %d made again, %d strangers: %s", p.rank, q.path.countUp(), q.reconnectCount, p.inbound.refusedCount, p.log.String())
					}
				}
			}
			a.end()
			b.end()
		}
	}
}

// The next incarnation listens at the same address.
func TestReconnect_NewIncarnation_GetsNoOldFrame(t *testing.T) {
	var port int
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	fixed := func(rank int, p *params) {
		if rank == 1 {
			p.PortRange = itoa(port)
		}
	}
	j := newJob(t, 2, fixed)
	a, b, e := j.met()
	// b dies without a word.
	for _, p := range b.peers.byIncarnation {
		for _, l := range p.linksBySlot {
			if l != nil {
				l.close()
			}
		}
	}
	b.peers.byIncarnation = map[framework.Incarnation]*peerConn{}
	b.end()
	if f := e.Reserve(3, btl.RingStart); f != nil {
		e.Commit(copy(f, "old"))
	}
	c := j.open(1, fixed)
	j.procs[1] = c
	j.until("the path is lost", func() bool { return len(a.lost) > 0 })
	if !errors.Is(a.lost[0], framework.ErrTransport) {
		t.Error(a.lost[0])
	}
	e = a.connect(c)
	j.send(e, []byte("new"))
	j.until("the new frame", func() bool { return len(c.got) > 0 })
	if len(c.got) != 1 || string(c.got[0]) != "new" {
		t.Errorf("%q", c.got)
	}
}

// The peer takes one window.
func TestWindow_PeerDoesNotRead_OthersProceed(t *testing.T) {
	j := newJob(t, 3, func(_ int, p *params) { p.Window = 64 << 10 })
	a, b, e := j.met()
	c := j.procs[2]
	other := a.connect(c)
	j.until("room", func() bool { return other.Reserve(1, btl.RingStart) != nil })
	sent := 0
	for frame := make([]byte, 1000); ; sent++ {
		dst := e.Reserve(len(frame), btl.RingStart)
		if dst == nil {
			break
		}
		e.Commit(copy(dst, frame))
		a.Poll()
	}
	if p := a.peers.byIncarnation[b.incarnation]; sent > 64 || p.path.bytesUsed > 64<<10 {
		t.Errorf("%d frames of 1000 bytes are taken, %d bytes of the window", sent, p.path.bytesUsed)
	}
	before := len(c.got)
	for range 1000 {
		j.until("room at the other one", func() bool { return other.Reserve(100, btl.RingStart) != nil }, b)
		other.Commit(100)
	}
	j.until("what the other one reads", func() bool { return len(c.got) == before+1000 }, b)
	j.until("all", func() bool { return len(b.got) == 1+sent })
}

func TestReconnect_HostRefuses_FailsSoonWithAttempts(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, _ := j.met()
	b.closeSocket(b.inbound.listener.fd)
	b.inbound.listener = nil
	start := time.Now()
	b.cut()
	j.until("the path is lost", func() bool { return len(a.lost) > 0 }, b)
	err := a.lost[0]
	if !errors.Is(err, framework.ErrTransport) || errors.Is(err, btl.ErrNeverOpened) || !strings.Contains(err.Error(), "connection refused") ||
		!strings.Contains(err.Error(), net.JoinHostPort("127.0.0.1", itoa(b.host.listenPort))) || !strings.Contains(err.Error(), b.env.Identity.Proc.String()) {
		t.Error(err)
	}
	if d := time.Since(start); d > 20*time.Second { // long before retry_timeout
		t.Errorf("after %v", d)
	}
}

func TestConnect_NoAnswer_ErrorHasEachAddress(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.ConnectTimeout = 300 * time.Millisecond })
	a, b := j.procs[0], j.procs[1]
	card, _ := decodeCard(b.Blob())
	card.listenPort = 1 // Closed.
	peer := b.card()
	peer.Blob = card.encode()
	if _, err := a.Connect(peer); err != nil {
		t.Fatal(err)
	}
	j.until("the path is lost", func() bool { return len(a.lost) > 0 })
	for _, addr := range card.publishedAddrs {
		if err := a.lost[0]; !errors.Is(err, btl.ErrNeverOpened) || !strings.Contains(err.Error(), net.JoinHostPort(addr.String(), "1")+": connection refused") {
			t.Error(err)
		}
	}
}

func TestListen_PortRangeInUse_IsError(t *testing.T) {
	j := newJob(t, 1, nil)
	port := j.procs[0].host.listenPort
	if _, _, err := listen(t.Context(), j.procs[0].host.publishedAddrs, port, port); err == nil || !strings.Contains(err.Error(), "btl.tcp.port_range") {
		t.Error(err)
	}
}

// It does not fail earlier.
func TestReconnect_HostSilent_FailsAfterRetryTimeout(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.RetryTimeout = 500 * time.Millisecond })
	a, b, _ := j.met()
	p := a.peers.byIncarnation[b.incarnation]
	p.peerAddrs = nil // As without a common network.
	aliveAt := p.linksBySlot[0].updateLiveness(a.readClock())
	b.closeSocket(b.inbound.listener.fd)
	b.inbound.listener = nil
	b.cut()
	j.until("the path is lost", func() bool { return len(a.lost) > 0 }, b)
	if d := a.readClock() - aliveAt; d < 400*time.Millisecond {
		t.Errorf("after %v", d)
	}
	if err := a.lost[0]; !strings.Contains(err.Error(), "the peer was silent for") {
		t.Error(err)
	}
}

// A poll of the sockets is a system call, which delays other waits.
func TestPoll_Idle_PollsSocketsRarely(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b := j.procs[0], j.procs[1]
	asked := func() (n int) {
		for range 10_000 { // until it is as seldom as it gets
			a.Poll()
		}
		for range 100 * maxIntervalIdle {
			if a.pacer.pollsUntilSockets <= 1 {
				n++
			}
			a.Poll()
		}
		return n
	}
	if n := asked(); n > 101 {
		t.Errorf("without a link %d times in %d polls", n, 100*maxIntervalIdle)
	}
	j.send(a.connect(b), []byte("x"))
	j.until("the frame", func() bool { return len(b.got) == 1 })
	if n := asked(); n > 100*maxIntervalIdle/maxIntervalConnected+16 {
		t.Errorf("with a link %d times in %d polls", n, 100*maxIntervalIdle)
	}
}

func TestAck_AllLinksWithinAFrame_IsSentLater(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, _ := j.met()
	p := b.peers.byIncarnation[a.incarnation]
	now := b.readClock()
	p.path.bytesSinceAck, p.acks.owedSince, p.path.queuesBySlot[0].isSocketFull = 100, 1, true
	if p.runTimers(now); p.acks.owedSince == 0 {
		t.Fatal("it is forgotten")
	}
	p.path.queuesBySlot[0].isSocketFull = false
	if p.runTimers(now + time.Second); p.path.bytesSinceAck != 0 {
		t.Error("it is not said")
	}
}

// connected returns a connection with p after its handshake.
func (p *process) connected(q *peerConn) *link {
	p.j.t.Helper()
	fd, err := newSocket(false)
	if err != nil {
		p.j.t.Fatal(err)
	}
	if err := unix.Connect(fd, sockaddr(netip.AddrPortFrom(p.host.publishedAddrs[0], uint16(p.host.listenPort)))); err != nil && err != unix.EINPROGRESS {
		p.j.t.Fatal(err)
	}
	return &link{module: p.module, peer: q, fd: fd}
}

// A connection that becomes no link closes once.
func TestLink_Replaced_IsReportedLost(t *testing.T) {
	j := newJob(t, 2, nil)
	a, b, _ := j.met()
	p := b.peers.byIncarnation[a.incarnation]
	l, told := b.connected(p), len(b.links)
	if err := p.addLink(l, 1<<40); err == nil {
		t.Fatal("a peer that has received what was not sent")
	}
	if _, err := unix.FcntlInt(uintptr(l.fd), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the connection is not closed: %v", err)
	}
	if err := p.addLink(b.connected(p), p.path.ackedUpTo); err != nil {
		t.Fatal(err)
	}
	if got := b.links[told:]; len(got) != 2 || !strings.HasPrefix(got[0], "lost: link 0") || !strings.HasPrefix(got[1], "up: link 0") {
		t.Errorf("states reported to the protocol: %q", got)
	}
}
