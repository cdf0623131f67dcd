package tcp

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// Two processes do random operations of protocol and engine. Whenever one may sleep, unread data
// makes its descriptor readable, unwritten frames have no room, and owed acks are due soon. In the
// end the processes only poll when they are woken, and all frames are acked.
func TestSleep_RandomOperations_NoWorkIsLeftBehind(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { sleepy(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

// sleeper is one end of a connection.
type sleeper struct {
	*process
	btl.Endpoint
	from    btl.Peeker
	peeked  bool
	sent    int
	dropped int
}

func sleepy(t *testing.T, rnd *rand.Rand) {
	links, window := 1+rnd.IntN(3), 4<<10<<rnd.IntN(10)
	j := newJob(t, 2, func(_ int, p *params) {
		p.LinkCount = links
		p.Window = framework.Size(window)
	})
	var ends [2]*sleeper
	for i, p := range j.procs {
		ends[i] = &sleeper{process: p, Endpoint: p.connect(j.procs[1-i])}
	}
	j.until("room", func() bool {
		return ends[0].Reserve(1, btl.RingStart) != nil && ends[1].Reserve(1, btl.RingStart) != nil
	})
	for i, e := range ends {
		e.from = e.PeerSource(j.procs[1-i].incarnation).(btl.Peeker)
	}
	step := func(i int) {
		e := ends[i]
		switch rnd.IntN(10) {
		case 0, 1, 2:
			n := 1 + rnd.IntN(min(e.config.frameLimit-64, 1<<rnd.IntN(18)))
			if b := e.Reserve(n, btl.RingStart); b != nil {
				e.Commit(n)
				e.sent++
			}
		case 3:
			n := 1 + rnd.IntN(min(e.config.frameLimit-64, 1<<rnd.IntN(18)))
			if e.Endpoint.(btl.Gatherer).Gather(make([]byte, 16), make([]byte, n), &lent{}) {
				e.sent++
			}
		case 4:
			e.Poll()
			e.peeked = false
		case 5:
			e.PeerSource(j.procs[1-i].incarnation).Poll()
			e.peeked = false
		case 6:
			e.peeked = e.from.Peek(1+rnd.IntN(16)) != nil
		case 7:
			if e.peeked {
				e.from.Drop()
				e.peeked = false
				e.dropped++
			}
		case 8:
			e.Idle()
		case 9:
			e.PollAll()
			e.peeked = false
			if asleep, reason := e.asleep(); asleep && reason != "" {
				t.Fatalf("rank %d sleeps, and %s", i, reason)
			}
		}
	}
	for range 600 {
		step(rnd.IntN(2))
	}
	drain(t, j, ends)
}

// drain polls the processes when they are woken until all frames are received and acked.
func drain(t *testing.T, j *job, ends [2]*sleeper) {
	over := func() bool {
		return len(ends[0].got)+ends[0].dropped == ends[1].sent && len(ends[1].got)+ends[1].dropped == ends[0].sent &&
			j.procs[0].peers.byIncarnation[j.procs[1].incarnation].path.isIdle() && j.procs[1].peers.byIncarnation[j.procs[0].incarnation].path.isIdle()
	}
	for start := time.Now(); !over(); {
		if time.Since(start) > 20*time.Second {
			for i, e := range ends {
				asleep, reason := e.asleep()
				p := e.peers.byIncarnation[j.procs[1-i].incarnation]
				t.Errorf("rank %d: %d frames sent, %d not confirmed, %d handed up and %d dropped, asleep %v %s", i, e.sent, p.path.nextNumber-p.path.firstUnacked, len(e.got), e.dropped, asleep, reason)
			}
			return
		}
		woken := false
		for i, e := range ends {
			asleep, reason := e.asleep()
			if asleep && reason != "" {
				t.Fatalf("rank %d sleeps, and %s", i, reason)
			}
			if !asleep || e.timers.nextAt <= e.readClock() {
				e.PollAll()
				woken = true
			}
		}
		if !woken {
			time.Sleep(time.Millisecond)
		}
	}
}

// asleep reports whether the engine may sleep on the module now, without being woken, and why
// it must not.
func (m *module) asleep() (asleep bool, reason string) {
	if !m.Arm() || m.Due() <= time.Millisecond {
		return false, ""
	}
	for _, p := range m.peers.byIncarnation {
		for i, l := range p.linksBySlot[:len(p.path.queuesBySlot)] {
			if l == nil {
				continue
			}
			n, err := unix.IoctlGetInt(l.fd, unix.SIOCINQ)
			switch {
			case l.hasBufferedFrame():
				reason = fmt.Sprintf("%v has a frame", l)
			case err == nil && n > 0 && l.readMode != modeOutOfOrder:
				reason = fmt.Sprintf("the socket of %v has %d bytes", l, n)
			case !p.path.queuesBySlot[i].isSocketFull && (len(p.path.queuesBySlot[i].queuedFrames) > 0 || p.path.hasUnassigned()):
				reason = fmt.Sprintf("%v could write", l)
			case !p.path.queuesBySlot[i].isSocketFull && p.path.mustAck(p.peerWindow()):
				reason = "the peer waits for a confirmation"
			}
		}
		if p.path.bytesSinceAck > 0 && m.Due() > 2*ackDelay {
			reason = fmt.Sprintf("%d bytes are not confirmed", p.path.bytesSinceAck)
		}
	}
	fds := []unix.PollFd{{Fd: int32(m.poller.epollFD), Events: unix.POLLIN}}
	for range 20 { // The event may be delayed.
		if n, _ := unix.Poll(fds, 0); n > 0 {
			return false, ""
		}
		if reason == "" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return true, reason
}
