package tcp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// sentPath returns a path with one frame, sent and unconfirmed.
func sentPath(t *testing.T) *path {
	t.Helper()
	p := &path{sendWindow: sendWindow{byteLimit: 1 << 20}}
	if err := p.linkUp(0, 0); err != nil {
		t.Fatal(err)
	}
	p.push(frame{copiedBytes: make([]byte, headerSize)})
	p.assignFrames()
	p.recordWritten(0, headerSize)
	return p
}

func TestStall_NoConfirmedFrame_ExpiresAfterPatience(t *testing.T) {
	p, s := sentPath(t), stallDetector{}
	if s.isExpired(p, time.Hour, time.Second) {
		t.Error("expired without a reconnect")
	}
	s.recordReconnect(p, 10*time.Second)
	s.recordReconnect(p, 14*time.Second)
	if s.isExpired(p, 15*time.Second-1, 5*time.Second) {
		t.Error("expired before the patience has elapsed")
	}
	if !s.isExpired(p, 15*time.Second, 5*time.Second) {
		t.Errorf("not expired: %+v", s)
	}
}

func TestStall_ConfirmedFrame_StartsAgain(t *testing.T) {
	p, s := sentPath(t), stallDetector{}
	s.recordReconnect(p, time.Second)
	p.push(frame{copiedBytes: make([]byte, headerSize)})
	if err := p.recordAck(1); err != nil {
		t.Fatal(err)
	}
	if s.isExpired(p, time.Hour, time.Second) {
		t.Error("expired although a frame was confirmed")
	}
	s.recordReconnect(p, time.Minute)
	if s.isExpired(p, time.Minute+time.Second/2, time.Second) || s.reconnectsUnacked != 1 {
		t.Errorf("%+v, want a count that starts at the last reconnect", s)
	}
}

func TestStall_IdlePath_NeverExpires(t *testing.T) {
	p, s := &path{sendWindow: sendWindow{byteLimit: 1 << 20}}, stallDetector{}
	for i := range 100 {
		s.recordReconnect(p, time.Duration(i)*time.Minute)
	}
	if s.isExpired(p, 1000*time.Hour, time.Second) {
		t.Errorf("expired: %+v", s)
	}
}

// A stopped peer may lose the first link that replaces another one. It is running when the
// second one comes up.
func TestStall_OneReconnect_DoesNotExpire(t *testing.T) {
	p, s := sentPath(t), stallDetector{}
	s.recordReconnect(p, time.Second)
	if s.isExpired(p, time.Hour, time.Second) {
		t.Error("expired after one reconnect")
	}
	s.recordReconnect(p, time.Hour)
	if !s.isExpired(p, time.Hour, time.Second) {
		t.Errorf("not expired: %+v", s)
	}
}

// stallPair leaves a pair as after some reconnects without a confirmed frame.
func stallPair(a, b *process) {
	p := a.peers.byIncarnation[b.incarnation]
	p.stallDetector.recordReconnect(&p.path, 1)
	p.stallDetector.recordReconnect(&p.path, 2)
}

func TestPair_LinksComeUpWithoutProgress_BothFailWithPathMTU(t *testing.T) {
	const retry = 100 * time.Millisecond
	j := newJob(t, 2, func(_ int, p *params) { p.RetryTimeout = retry })
	a, b, e := j.met()
	j.until("confirmation", func() bool { return a.peers.byIncarnation[b.incarnation].path.isIdle() })
	b.connect(a)
	j.until("the peer's path", func() bool { return b.peers.byIncarnation[a.incarnation].path.isIdle() })
	dst := e.Reserve(100, btl.RingStart)
	if dst == nil {
		t.Fatal("no room")
	}
	e.Commit(len(dst)) // It is not read before the link is cut.
	stallPair(a, b)
	stallPair(b, a)
	j.until("the retry timeout", func() bool { return a.readClock() > 2*retry }, b)
	a.cut()
	j.until("failure of the sender", func() bool { return len(a.lost) > 0 }, b)
	j.until("failure of the receiver", func() bool { return len(b.lost) > 0 })
	for _, p := range j.procs[:2] {
		if err := p.lost[0]; !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "check the path MTU") {
			t.Errorf("rank %d: %v", p.rank, err)
		}
	}
	if err := a.lost[0]; !strings.Contains(err.Error(), "no frame was acked for") {
		t.Error(err)
	}
}

func TestPair_IdleLinkBreaksOften_Reconnects(t *testing.T) {
	j := newJob(t, 2, func(_ int, p *params) { p.RetryTimeout = 100 * time.Millisecond })
	a, b, e := j.met()
	j.until("confirmation", func() bool { return a.peers.byIncarnation[b.incarnation].path.isIdle() })
	j.until("the retry timeout", func() bool { return a.readClock() > 200*time.Millisecond })
	for n := range 5 {
		stallPair(a, b)
		a.cut()
		j.until("reconnect", func() bool {
			return a.peers.byIncarnation[b.incarnation].reconnectCount > n && b.peers.byIncarnation[a.incarnation].reconnectCount > n
		})
	}
	j.send(e, []byte("second"))
	j.until("the frame", func() bool { return len(b.got) == 2 })
	for _, p := range j.procs {
		if len(p.lost) > 0 {
			t.Errorf("rank %d: %v", p.rank, p.lost)
		}
		if n := p.lines("lost a connection and reconnected"); n != 1 {
			t.Errorf("rank %d logs %d reconnects, want the first:\n%s", p.rank, n, p.log.String())
		}
	}
}
