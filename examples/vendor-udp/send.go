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

// outbound is an endpoint: a path to a peer.
//
// Its pace follows TCP's rules (RFC 5681, RFC 6298, in frames instead of bytes): a window
// that grows with what is confirmed and halves with what is lost, and a timer that follows
// the time a confirmation takes.
type outbound struct {
	m        *module
	id       uint64
	peer     framework.Life
	greeting []byte
	asked    []netip.AddrPort // where the peer may be, until it has answered
	why      error            // what the last of the others has said
	to       syscall.Sockaddr // nil: not open
	closed   bool             // given up, or ended
	timed    bool             // it is in m.waiting

	first, next uint32 // the first that is not confirmed, and the next to send
	slots       [ahead]slot
	back        *inbound // the peer's last path to this process

	silence  time.Duration // for so long the peer was waited for, and nothing came
	counted  time.Duration // up to when that is
	began    time.Duration // of the answer that is waited for: opened, or gone
	tries    int           // how often that was asked for
	window   float64       // frames
	slow     float64       // below it the window grows fast
	halved   uint32        // what is lost below it has been paid for
	rtt, dev time.Duration // 0: not measured yet
	backoff  int
}

// slot is a frame that was sent.
type slot struct {
	memory   []byte // of the largest datagram; its frame begins behind the room for a confirmation
	datagram []byte
	sent     time.Duration
	again    bool // it was sent more than once
	came     bool // it has come, before others
}

const (
	startWindow = 16
	leastWindow = 4
	firstWait   = 20 * time.Millisecond // for an answer, before anything is measured
	leastWait   = 20 * time.Millisecond // more than confirmAfter, and than a peer waits for a processor
	longestWait = time.Second
	// overtaken is how many later frames have come when one counts as lost.
	overtaken = 3
	// againAtOnce is how many go again when a timer has run out.
	againAtOnce = 8
	// goodbyes is how often a peer is told that nothing more comes.
	goodbyes = 5
)

// Connect asks at all addresses at once: the peer answers at one that leads to it.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	asked, err := m.reach(peer)
	if err != nil {
		return nil, err
	}
	var id [8]byte
	rand.Read(id[:])
	e := &outbound{
		m: m, id: binary.LittleEndian.Uint64(id[:]), peer: peer.Life, greeting: m.env.Greet(peer.Life), asked: asked,
		window: min(startWindow, float64(m.p.Window)), slow: float64(m.p.Window), began: m.now(),
	}
	e.counted = e.began
	m.out[e.id] = e
	for _, p := range m.in {
		if p.peer == e.peer {
			e.back = p
		}
	}
	e.ask()
	return e, nil
}

func (e *outbound) ask() {
	for _, a := range e.asked {
		e.m.tell(open, e.id, 0, e.greeting, sockaddr(a))
	}
	e.tries++
	e.await(e.m.now() + e.patience())
}

// await has timer called at that time.
func (e *outbound) await(at time.Duration) {
	if !e.timed {
		e.timed = true
		e.m.waiting = append(e.m.waiting, e)
	}
	e.m.wake(at)
}

// heard begins to count the peer's silence.
func (e *outbound) heard(now time.Duration) { e.silence, e.counted, e.backoff = 0, now, 0 }

// silent counts the peer's silence, and reports whether it counts as lost. A process that was
// stopped, or its whole machine, finds what has come meanwhile only after that: such a time
// counts as one wait for an answer.
func (e *outbound) silent(now, wait time.Duration) bool {
	e.silence += min(now-e.counted, wait)
	e.counted = now
	return e.silence > e.m.p.GiveUp
}

// patience is how long an answer may take before it counts as lost.
func (e *outbound) patience() time.Duration {
	wait := firstWait
	if e.rtt > 0 {
		wait = max(e.rtt+4*e.dev, leastWait)
	}
	return min(wait<<min(e.backoff, 10), longestWait)
}

// opened takes the answer of one address.
func (e *outbound) opened(from syscall.Sockaddr) {
	if e.to == nil && slices.Contains(e.asked, addrPort(from)) {
		e.to = from
		e.heard(e.m.at)
		if e.closed {
			e.leave()
		}
	}
}

// refused takes a reason. While several addresses are asked, others may be the peer's.
func (e *outbound) refused(reason []byte, from syscall.Sockaddr) {
	at := addrPort(from)
	err := error(framework.ErrPeerClosed)
	if len(reason) > 0 {
		err = fmt.Errorf("the process at %v says: %q", at, cut(string(reason)))
	}
	if e.to == nil {
		i := slices.Index(e.asked, at)
		if i < 0 {
			return
		}
		if e.asked = slices.Delete(e.asked, i, i+1); len(e.asked) > 0 {
			e.why = err
			return
		}
	}
	e.end(err)
}

// end tells the protocol, once, and not if it has closed the path itself.
func (e *outbound) end(err error) {
	silent := e.closed || e.m.closed
	if e.to == nil && !errors.Is(err, framework.ErrPeerClosed) {
		err = fmt.Errorf("%w: %w", btl.ErrNeverOpened, err)
	}
	e.drop()
	if !silent {
		e.m.env.Ended("btl udp", e.peer, "send", err)
	}
}

// drop forgets the path.
func (e *outbound) drop() {
	e.closed = true
	e.first = e.next
	delete(e.m.out, e.id)
}

// Reserve implements btl.Endpoint.
func (e *outbound) Reserve(n int) []byte {
	if e.to == nil || e.closed || float64(e.next-e.first) >= e.window {
		return nil
	}
	s := &e.slots[e.next%ahead]
	if s.memory == nil {
		s.memory = make([]byte, e.m.p.Datagram)
	}
	return s.memory[headerSize+confirmSize:][:n]
}

// Commit sends the datagram, and keeps it until it is confirmed.
func (e *outbound) Commit(n int) {
	s := &e.slots[e.next%ahead]
	s.again, s.came, s.sent = false, false, e.m.now()
	size := e.back.with(s.memory[headerSize:])
	s.datagram = s.memory[confirmSize-size : headerSize+confirmSize+n]
	header(s.datagram, data, e.next, e.id)
	s.datagram[2] = byte(size)
	if e.next == e.first {
		e.heard(s.sent)
	}
	e.next++
	_ = e.m.send(s.datagram, e.to) // what can't be sent now is lost, and goes again
	e.await(s.sent + e.patience())
}

// Idle implements btl.Endpoint.
func (e *outbound) Idle() bool { return e.first == e.next }

// Close leaves what is not confirmed to the timer.
func (e *outbound) Close() {
	if e.closed {
		return
	}
	e.closed = true
	e.began, e.tries = e.m.now(), 0
	e.leave()
	e.await(e.began + firstWait)
}

// leave says that nothing more comes, if all has come.
func (e *outbound) leave() {
	if e.first == e.next && e.to != nil {
		e.m.tell(left, e.id, e.next, nil, e.to)
		e.tries++
	}
}

// confirmed takes what the peer says has come.
func (e *outbound) confirmed(number uint32, more uint64) {
	n := number - e.first
	if n > e.next-e.first {
		return // older than another one, or nonsense
	}
	now := e.m.at
	if n > 0 {
		if s := &e.slots[(number-1)%ahead]; !s.again && !s.came {
			e.measured(now - s.sent)
		}
		e.heard(now)
		if e.window < e.slow {
			e.window += float64(n)
		} else {
			e.window += float64(n) / e.window
		}
		e.window = min(e.window, float64(e.m.p.Window))
		if e.first = number; e.first == e.next && e.closed {
			e.leave()
		}
	}
	later := 0
	for i := min(ahead-1, int(e.next-e.first)-1); i >= 0; i-- { // from the last one back
		s := &e.slots[(e.first+uint32(i))%ahead]
		switch {
		case i > 0 && more>>(i-1)&1 != 0:
			s.came = true
			later++
		case later >= overtaken && !s.came && now-s.sent > e.rtt:
			e.again(e.first+uint32(i), now)
		}
	}
}

// measured follows RFC 6298.
func (e *outbound) measured(rtt time.Duration) {
	if e.rtt == 0 {
		e.rtt, e.dev = rtt, rtt/2
		return
	}
	e.dev += ((e.rtt - rtt).Abs() - e.dev) / 4
	e.rtt += (rtt - e.rtt) / 8
}

// again sends a frame that was lost, and halves the window, once for all that were on
// their way at that time.
func (e *outbound) again(number uint32, now time.Duration) {
	if int32(number-e.halved) >= 0 {
		e.slow = max(e.window/2, leastWindow)
		e.window, e.halved = min(e.slow, float64(e.m.p.Window)), e.next
	}
	s := &e.slots[number%ahead]
	s.sent, s.again = now, true
	_ = e.m.send(s.datagram, e.to)
}

// timer does what is due, and returns when it wants to be called again; 0: it doesn't.
func (e *outbound) timer(now time.Duration) time.Duration {
	switch {
	case e.m.out[e.id] != e:
		return 0
	case e.to == nil && e.closed: // nobody has answered, and nobody waits for it any more
		if now-e.began < goodbyes*firstWait {
			return now + firstWait
		}
		e.drop()
		return 0
	case e.to == nil:
		return e.asking(now)
	case e.first != e.next:
		return e.sending(now)
	case !e.closed:
		return 0
	case e.tries > goodbyes:
		e.drop()
		return 0
	}
	e.leave()
	return now + firstWait
}

// asking asks again. The time comes with each Poll that found something, too.
func (e *outbound) asking(now time.Duration) time.Duration {
	wait := firstWait << min(e.tries, 5)
	if e.silent(now, wait) {
		if e.why == nil {
			e.why = errors.New("nobody answers")
		}
		e.end(fmt.Errorf("%v within %v: %w", e.asked, e.m.p.GiveUp, e.why))
		return 0
	}
	due := e.began + firstWait*time.Duration(1<<min(e.tries, 6)-1)
	if now >= due {
		e.ask()
		due = now + wait
	}
	return due
}

// sending sends again what was not confirmed in time.
func (e *outbound) sending(now time.Duration) time.Duration {
	wait, sent, due := e.patience(), 0, now+longestWait
	if e.silent(now, wait) {
		e.end(fmt.Errorf("%v has confirmed nothing for %v", addrPort(e.to), e.m.p.GiveUp))
		return 0
	}
	for number := e.first; number != e.next && sent < againAtOnce; number++ {
		s := &e.slots[number%ahead]
		if s.came && number != e.first { // the first one: what confirmed it was lost
			continue
		}
		if now-s.sent >= wait {
			e.again(number, now)
			sent++
		}
		due = min(due, s.sent+wait)
	}
	if sent > 0 {
		e.backoff++
	}
	return max(due, now+1)
}
