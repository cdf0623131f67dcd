package udp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// sendPath is an endpoint, a path to a peer. Congestion control follows TCP in frames instead of bytes (RFC
// 5681, RFC 6298).
type sendPath struct {
	m        *module
	id       uint64
	peer     framework.Incarnation
	greeting []byte
	// Addresses without a reply.
	candidates  []netip.AddrPort
	lastRefusal error
	// Nil until the path is open.
	dest   syscall.Sockaddr
	closed bool
	// Listed in module.timedPaths.
	hasTimer bool
	// Newest path from the peer.
	reverse *recvPath

	firstUnacked, nextSeq uint32
	slots                 [maxWindow]slot

	// Time spent waiting for the peer since its last reply.
	silence time.Duration
	// End of the time counted in silence.
	silenceSince time.Duration
	// Start of the exchange that awaits opened or left.
	openedAt time.Duration
	// Datagrams sent in that exchange.
	attempts int

	congestion
	roundTrip
}

// congestion is the state of the congestion window.
type congestion struct {
	// In frames, as the limit.
	window         float64
	slowStartLimit float64
	// Losses below it have halved the window.
	recoverySeq uint32
}

// grow enlarges the window up to limit for n acked frames.
func (c *congestion) grow(n uint32, limit float64) {
	if c.window < c.slowStartLimit {
		c.window += float64(n)
	} else {
		c.window += float64(n) / c.window
	}
	c.window = min(c.window, limit)
}

// halve halves the window if frame number was sent after the last halving. next is the sequence number of the next frame.
func (c *congestion) halve(number, next uint32, limit float64) {
	if int32(number-c.recoverySeq) >= 0 {
		c.slowStartLimit = max(c.window/2, minWindow)
		c.window, c.recoverySeq = min(c.slowStartLimit, limit), next
	}
}

// roundTrip is the estimate of the round-trip time, and the backoff of retransmissions.
type roundTrip struct {
	rtt, rttVar time.Duration
	backoff     int
}

// slot holds a frame in flight.
type slot struct {
	// The frame follows the room for header and ack.
	buf          []byte
	datagram     []byte
	sentAt       time.Duration
	isRetransmit bool
	// Selectively, behind a gap.
	isAcked bool
}

const (
	initialWindow  = 16
	minWindow      = 4
	initialTimeout = 20 * time.Millisecond // Before the first RTT sample.
	minTimeout     = 20 * time.Millisecond // Above ackDelay and the scheduling latency of a peer.
	maxTimeout     = time.Second
	// reorderThreshold is the number of later acked frames after which a frame is lost.
	reorderThreshold = 3
	// retransmitBatch limits the frames of one timeout.
	retransmitBatch = 8
	// maxLeaveAttempts limits the repetitions of leave.
	maxLeaveAttempts = 5
)

// Connect sends open to all addresses of the peer. The path uses the first one that replies.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	candidates, err := m.peerAddrs(peer)
	if err != nil {
		return nil, err
	}
	var id [8]byte
	rand.Read(id[:])
	e := &sendPath{
		m: m, id: binary.LittleEndian.Uint64(id[:]), peer: peer.Incarnation, greeting: m.env.Greet(peer.Incarnation), candidates: candidates,
		congestion: congestion{window: min(initialWindow, float64(m.params.Window)), slowStartLimit: float64(m.params.Window)}, openedAt: m.now(),
	}
	e.silenceSince = e.openedAt
	m.sendPaths[e.id] = e
	for _, p := range m.recvPaths {
		if p.peer == e.peer {
			e.reverse = p
		}
	}
	e.sendOpen()
	return e, nil
}

func (e *sendPath) sendOpen() {
	for _, a := range e.candidates {
		e.m.sendControl(kindOpen, e.id, 0, e.greeting, toSockaddr(a))
	}
	e.attempts++
	e.scheduleTimer(e.m.now() + e.ackTimeout())
}

// scheduleTimer calls runTimer at that time.
func (e *sendPath) scheduleTimer(due time.Duration) {
	if !e.hasTimer {
		e.hasTimer = true
		e.m.timedPaths = append(e.m.timedPaths, e)
	}
	e.m.scheduleTimers(due)
}

// resetSilence restarts the silence of the peer.
func (e *sendPath) resetSilence(now time.Duration) { e.silence, e.silenceSince, e.backoff = 0, now, 0 }

// isPeerSilent adds the time since the last call to the silence, at most one timeout. A pause of this process
// therefore does not make the peer unreachable.
func (e *sendPath) isPeerSilent(now, wait time.Duration) bool {
	e.silence += min(now-e.silenceSince, wait)
	e.silenceSince = now
	return e.silence > e.m.params.AckTimeout
}

func (t *roundTrip) ackTimeout() time.Duration {
	wait := initialTimeout
	if t.rtt > 0 {
		wait = max(t.rtt+4*t.rttVar, minTimeout)
	}
	return min(wait<<min(t.backoff, 10), maxTimeout)
}

func (e *sendPath) handleOpened(from syscall.Sockaddr) {
	if e.dest == nil && slices.Contains(e.candidates, addrPort(from)) {
		e.dest = from
		e.resetSilence(e.m.lastClock)
		if e.closed {
			e.sendLeave()
		}
	}
}

// handleRefused ends the path, unless other candidates have not replied.
func (e *sendPath) handleRefused(reason []byte, from syscall.Sockaddr) {
	at := addrPort(from)
	err := error(framework.ErrPeerClosed)
	if len(reason) > 0 {
		err = fmt.Errorf("refused by %v: %q", at, truncateReason(string(reason)))
	}
	if e.dest == nil {
		i := slices.Index(e.candidates, at)
		if i < 0 {
			return
		}
		if e.candidates = slices.Delete(e.candidates, i, i+1); len(e.candidates) > 0 {
			e.lastRefusal = err
			return
		}
	}
	e.fail(err)
}

// fail removes the path and reports err, unless the protocol or the module has closed it.
func (e *sendPath) fail(err error) {
	isSilent := e.closed || e.m.closed
	if e.dest == nil && !errors.Is(err, framework.ErrPeerClosed) {
		err = fmt.Errorf("%w: %w", btl.ErrNeverOpened, err)
	}
	e.remove()
	if !isSilent {
		e.m.env.Ended("btl udp", e.peer, "send", err)
	}
}

func (e *sendPath) remove() {
	e.closed = true
	e.firstUnacked = e.nextSeq
	delete(e.m.sendPaths, e.id)
}

// Reserve implements btl.Endpoint.
func (e *sendPath) Reserve(n int, _ btl.Placement) []byte {
	if e.dest == nil || e.closed || float64(e.nextSeq-e.firstUnacked) >= e.window {
		return nil
	}
	s := &e.slots[e.nextSeq%maxWindow]
	if s.buf == nil {
		s.buf = make([]byte, e.m.params.Datagram)
	}
	return s.buf[headerSize+ackSize:][:n]
}

// Commit sends the datagram and keeps it until it is acked.
func (e *sendPath) Commit(n int) {
	s := &e.slots[e.nextSeq%maxWindow]
	s.isRetransmit, s.isAcked, s.sentAt = false, false, e.m.now()
	size := e.reverse.appendOwedAck(s.buf[headerSize:])
	s.datagram = s.buf[ackSize-size : headerSize+ackSize+n]
	putHeader(s.datagram, kindData, e.nextSeq, e.id)
	s.datagram[2] = byte(size)
	if e.nextSeq == e.firstUnacked {
		e.resetSilence(s.sentAt)
	}
	e.nextSeq++
	_ = e.m.send(s.datagram, e.dest) // A failed send counts as a loss.
	e.scheduleTimer(s.sentAt + e.ackTimeout())
}

// Idle implements btl.Endpoint.
func (e *sendPath) Idle() bool { return e.firstUnacked == e.nextSeq }

// Close sends leave after all frames are acked.
func (e *sendPath) Close() {
	if e.closed {
		return
	}
	e.closed = true
	e.openedAt, e.attempts = e.m.now(), 0
	e.sendLeave()
	e.scheduleTimer(e.openedAt + initialTimeout)
}

// sendLeave does nothing while frames are in flight.
func (e *sendPath) sendLeave() {
	if e.firstUnacked == e.nextSeq && e.dest != nil {
		e.m.sendControl(kindLeave, e.id, e.nextSeq, nil, e.dest)
		e.attempts++
	}
}

// handleAck processes the cumulative ack of frames below number and the bits of selective acks.
func (e *sendPath) handleAck(number uint32, selective uint64) {
	n := number - e.firstUnacked
	if n > e.nextSeq-e.firstUnacked {
		return // Out of order or invalid.
	}
	now := e.m.lastClock
	if n > 0 {
		if s := &e.slots[(number-1)%maxWindow]; !s.isRetransmit && !s.isAcked {
			e.updateRTT(now - s.sentAt)
		}
		e.resetSilence(now)
		e.grow(n, float64(e.m.params.Window))
		if e.firstUnacked = number; e.firstUnacked == e.nextSeq && e.closed {
			e.sendLeave()
		}
	}
	later := 0
	for i := min(maxWindow-1, int(e.nextSeq-e.firstUnacked)-1); i >= 0; i-- {
		s := &e.slots[(e.firstUnacked+uint32(i))%maxWindow]
		switch {
		case i > 0 && selective>>(i-1)&1 != 0:
			s.isAcked = true
			later++
		case later >= reorderThreshold && !s.isAcked && now-s.sentAt > e.rtt:
			e.retransmit(e.firstUnacked+uint32(i), now)
		}
	}
}

// updateRTT follows RFC 6298.
func (t *roundTrip) updateRTT(rtt time.Duration) {
	if t.rtt == 0 {
		t.rtt, t.rttVar = rtt, rtt/2
		return
	}
	t.rttVar += ((t.rtt - rtt).Abs() - t.rttVar) / 4
	t.rtt += (rtt - t.rtt) / 8
}

// retransmit halves the window once for all frames in flight.
func (e *sendPath) retransmit(number uint32, now time.Duration) {
	e.halve(number, e.nextSeq, float64(e.m.params.Window))
	s := &e.slots[number%maxWindow]
	s.sentAt, s.isRetransmit = now, true
	_ = e.m.send(s.datagram, e.dest)
}

// runTimer runs the due action and returns the next due time, 0 for none.
func (e *sendPath) runTimer(now time.Duration) time.Duration {
	switch {
	case e.m.sendPaths[e.id] != e:
		return 0
	case e.dest == nil && e.closed: // Closed while opening.
		if now-e.openedAt < maxLeaveAttempts*initialTimeout {
			return now + initialTimeout
		}
		e.remove()
		return 0
	case e.dest == nil:
		return e.retryOpen(now)
	case e.firstUnacked != e.nextSeq:
		return e.retransmitExpired(now)
	case !e.closed:
		return 0
	case e.attempts > maxLeaveAttempts:
		e.remove()
		return 0
	}
	e.sendLeave()
	return now + initialTimeout
}

// retryOpen runs after each Poll with events, too.
func (e *sendPath) retryOpen(now time.Duration) time.Duration {
	wait := initialTimeout << min(e.attempts, 5)
	if e.isPeerSilent(now, wait) {
		if e.lastRefusal == nil {
			e.lastRefusal = errors.New("no reply")
		}
		e.fail(fmt.Errorf("%v within %v: %w", e.candidates, e.m.params.AckTimeout, e.lastRefusal))
		return 0
	}
	due := e.openedAt + initialTimeout*time.Duration(1<<min(e.attempts, 6)-1)
	if now >= due {
		e.sendOpen()
		due = now + wait
	}
	return due
}

func (e *sendPath) retransmitExpired(now time.Duration) time.Duration {
	wait, sent, due := e.ackTimeout(), 0, now+maxTimeout
	if e.isPeerSilent(now, wait) {
		e.fail(fmt.Errorf("no ack from %v for %v", addrPort(e.dest), e.m.params.AckTimeout))
		return 0
	}
	for number := e.firstUnacked; number != e.nextSeq && sent < retransmitBatch; number++ {
		s := &e.slots[number%maxWindow]
		if s.isAcked && number != e.firstUnacked { // The cumulative ack of the first one may be lost.
			continue
		}
		if now-s.sentAt >= wait {
			e.retransmit(number, now)
			sent++
		}
		due = min(due, s.sentAt+wait)
	}
	if sent > 0 {
		e.backoff++
	}
	return max(due, now+1)
}
