package soak

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ferrympi/ferry/mpi"
)

// sender sends the messages of a stream.
type sender struct {
	*stormPlayer
	at       int
	stream   *stream
	outcomes *streamOutcomes
	pending  []*startedSend
	failed   int
}

// startedSend is a started send.
type startedSend struct {
	i          int
	what       string
	request    mpi.Request
	persistent *mpi.Persistent
	memory     *mpi.Memory
	// Whether the end of the peer had been reported before.
	isAfterEnd bool
	outcomes   *streamOutcomes
	peer       int
}

// sendsAfterFailure is the number of sends after a failed one.
const sendsAfterFailure = 2

func (x *sender) run() {
	for i := range x.stream.messages {
		m := &x.stream.messages[i]
		if m.pause > 0 {
			time.Sleep(m.pause)
		}
		if !x.step() || x.failed > sendsAfterFailure {
			break
		}
		x.send(i, m)
		x.awaitWindow(x.stream.sendWindow)
	}
	x.awaitWindow(0)
	for _, s := range x.pending { // They wait for later messages.
		if x.stream.messages[s.i].receivedAfter == never {
			s.outcomes.set(s.i, outcomeNotReceived)
			x.leaveSend(s)
			continue
		}
		x.awaitSend(s)
	}
}

// awaitWindow waits until at most window sends of messages that are received in order are pending.
func (x *sender) awaitWindow(window int) {
	n := 0
	for _, s := range x.pending {
		if x.stream.messages[s.i].receivedAfter == 0 {
			n++
		}
	}
	x.pending = slices.DeleteFunc(x.pending, func(s *startedSend) bool {
		if n <= window || x.stream.messages[s.i].receivedAfter != 0 {
			return false
		}
		n--
		x.awaitSend(s)
		return true
	})
}

func (p *stormPlayer) leaveSend(s *startedSend) {
	p.mu.Lock()
	p.leftSends = append(p.leftSends, s)
	p.mu.Unlock()
}

// buffer returns the filled memory of a message.
func (x *sender) buffer(i int, m *envelope) (b []byte, mem *mpi.Memory) {
	// Memory keeps its session open, so a rank that closes early has none.
	if m.isRegistered && !(x.storm.kind == "close" && x.storm.isFaulty(x.me)) {
		var err error
		if mem, err = mpi.AllocMem(x.session, m.size); err == nil {
			b = mpi.View[byte](mem)
		}
	}
	if b == nil {
		b, mem = make([]byte, m.size), nil
	}
	pattern(b, x.at, i)
	return b, mem
}

func (x *sender) send(i int, m *envelope) {
	c, to := x.comms[x.stream.comm], x.stream.to
	s := &startedSend{i: i, peer: to, isAfterEnd: x.hasError(to), outcomes: x.outcomes,
		what: fmt.Sprintf("%s %d of stream %d to %d (communicator %d, tag %d, %d bytes)", sendNames[m.send], i, x.at, to, x.stream.comm, m.tag, m.size)}
	if m.receivedAfter == never {
		s.what += ", received never: " + recvNames[m.recv]
	}
	var b []byte
	b, s.memory = x.buffer(i, m)
	var err error
	switch m.send {
	case send, ssend, bsend:
		f := map[sendMode]func(context.Context, []byte, int, int) error{send: c.Send, ssend: c.Ssend, bsend: c.Bsend}[m.send]
		err = x.guarded(x.untilClose, s.what, func(ctx context.Context) error { return f(ctx, b, to, m.tag) })
		if p, ok := errors.AsType[*mpi.PendingError](err); ok {
			s.request = p.Request
			x.outcomes.set(i, outcomePendingAtClose)
			x.leaveSend(s)
			return
		}
		s.isAfterEnd = s.isAfterEnd && m.send != bsend // A buffered send copies and gets no notification.
		x.recordSend(s, err)
		return
	case isend:
		s.request, err = c.Isend(b, to, m.tag)
	case issend:
		s.request, err = c.Issend(b, to, m.tag)
	case persistentSend:
		if s.persistent, err = c.SendInit(b, to, m.tag); err == nil {
			if err = s.persistent.Start(); err == nil {
				s.request = s.persistent.Request()
			}
		}
	}
	if err != nil {
		x.recordSend(s, err)
		return
	}
	x.pending = append(x.pending, s)
}

// awaitSend waits for a send.
func (x *sender) awaitSend(s *startedSend) {
	err := x.guarded(x.untilClose, s.what, func(ctx context.Context) error {
		_, err := s.request.Wait(ctx)
		return err
	})
	if errors.Is(err, errClosing) {
		s.outcomes.set(s.i, outcomePendingAtClose)
		x.leaveSend(s)
		return
	}
	x.recordSend(s, err)
}

// recordSend records the outcome of a send.
func (x *sender) recordSend(s *startedSend, err error) {
	k := x.recordError(s.peer, s.what, err)
	switch {
	case k == 0 && s.isAfterEnd:
		k = outcomeTooLate
	case k == 0:
		k = outcomeSent
	default:
		x.failed++
	}
	s.outcomes.set(s.i, k)
	if k == outcomeHung {
		x.failed = math.MaxInt
	}
	x.releaseSend(s)
}

// releaseSend releases the resources of a send.
func (p *stormPlayer) releaseSend(s *startedSend) {
	if s.persistent != nil {
		if err := s.persistent.Free(); err != nil {
			p.recordWrong("free: %s: %v", s.what, err)
		}
	}
	if s.memory != nil {
		if err := s.memory.Close(); err != nil {
			p.recordWrong("memory: %s: %v", s.what, err)
		}
	}
}
