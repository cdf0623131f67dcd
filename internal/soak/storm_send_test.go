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

// sender sends a stream's messages.
type sender struct {
	*player
	at     int
	stream *stream
	ledger *ledger
	open   []*sending
	failed int
}

// sending is a send that was started.
type sending struct {
	i          int
	what       string
	request    mpi.Request
	persistent *mpi.Persistent
	memory     *mpi.Memory
	late       bool // the peer's end had been told before
	ledger     *ledger
	peer       int
}

// moreTries is how many messages are tried after one has failed.
const moreTries = 2

func (x *sender) run() {
	for i := range x.stream.messages {
		m := &x.stream.messages[i]
		if m.pause > 0 {
			time.Sleep(m.pause)
		}
		if !x.step() || x.failed > moreTries {
			break
		}
		x.send(i, m)
		x.shorten(x.stream.sendWindow)
	}
	x.shorten(0)
	for _, s := range x.open { // those that wait for others behind them
		if x.stream.messages[s.i].hold == never {
			s.ledger.set(s.i, left)
			x.leave(s)
			continue
		}
		x.conclude(s)
	}
}

// shorten waits until no more than so many sends, of those that are received in turn, are
// under way.
func (x *sender) shorten(window int) {
	n := 0
	for _, s := range x.open {
		if x.stream.messages[s.i].hold == 0 {
			n++
		}
	}
	x.open = slices.DeleteFunc(x.open, func(s *sending) bool {
		if n <= window || x.stream.messages[s.i].hold != 0 {
			return false
		}
		n--
		x.conclude(s)
		return true
	})
}

func (p *player) leave(s *sending) {
	p.mu.Lock()
	p.left = append(p.left, s)
	p.mu.Unlock()
}

// buffer returns a message's memory, filled.
func (x *sender) buffer(i int, m *envelope) (b []byte, mem *mpi.Memory) {
	// Memory keeps its session open: a rank that closes early has none.
	if m.registered && !(x.storm.kind == "close" && x.storm.faulty(x.me)) {
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
	s := &sending{i: i, peer: to, late: x.told(to), ledger: x.ledger,
		what: fmt.Sprintf("%s %d of stream %d to %d (communicator %d, tag %d, %d bytes)", sendNames[m.send], i, x.at, to, x.stream.comm, m.tag, m.size)}
	if m.hold == never {
		s.what += ", received never: " + recvNames[m.recv]
	}
	var b []byte
	b, s.memory = x.buffer(i, m)
	var err error
	switch m.send {
	case send, ssend, bsend:
		f := map[sendMode]func(context.Context, []byte, int, int) error{send: c.Send, ssend: c.Ssend, bsend: c.Bsend}[m.send]
		err = x.under(x.life, s.what, func(ctx context.Context) error { return f(ctx, b, to, m.tag) })
		if p, ok := errors.AsType[*mpi.PendingError](err); ok {
			s.request = p.Request
			x.ledger.set(i, open)
			x.leave(s)
			return
		}
		s.late = s.late && m.send != bsend // it copies, and is told nothing
		x.ended(s, err)
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
		x.ended(s, err)
		return
	}
	x.open = append(x.open, s)
}

// conclude waits for a send.
func (x *sender) conclude(s *sending) {
	err := x.under(x.life, s.what, func(ctx context.Context) error {
		_, err := s.request.Wait(ctx)
		return err
	})
	if errors.Is(err, errClosing) {
		s.ledger.set(s.i, open)
		x.leave(s)
		return
	}
	x.ended(s, err)
}

// ended notes the end of a send.
func (x *sender) ended(s *sending, err error) {
	k := x.ends(s.peer, s.what, err)
	switch {
	case k == 0 && s.late:
		k = tooLate
	case k == 0:
		k = accepted
	default:
		x.failed++
	}
	s.ledger.set(s.i, k)
	if k == hung {
		x.failed = math.MaxInt
	}
	x.release(s)
}

// release gives back what a send has taken.
func (p *player) release(s *sending) {
	if s.persistent != nil {
		if err := s.persistent.Free(); err != nil {
			p.wrong("free: %s: %v", s.what, err)
		}
	}
	if s.memory != nil {
		if err := s.memory.Close(); err != nil {
			p.wrong("memory: %s: %v", s.what, err)
		}
	}
}
