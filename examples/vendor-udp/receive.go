package udp

import (
	"bytes"
	"encoding/binary"
	"slices"
	"syscall"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// inbound is a path from a peer.
type inbound struct {
	m        *module
	id       uint64
	peer     framework.Life
	greeting []byte
	from     syscall.Sockaddr
	up       btl.Inbound
	next     uint32        // the first frame that has not come
	early    [ahead][]byte // those that came before it, by number
	waits    int           // how many those are
	owes     time.Duration // when a confirmation is due; 0: none is
	listed   bool          // it is in m.owed
	news     int           // frames since the last one
}

// A confirmation waits for a frame that goes to the peer and takes it along, or for more frames,
// for so long or for so many: by itself it costs a datagram. A small window is never left
// without one.
const (
	confirmAfter = time.Millisecond
	confirmEach  = 8
)

// opens answers who wants to send, once for each path, however often he asks.
func (m *module) opens(id uint64, greeting []byte, from syscall.Sockaddr) {
	p := m.in[id]
	switch {
	case m.closed:
		m.tell(refused, id, 0, nil, from)
		return
	case p != nil && !bytes.Equal(p.greeting, greeting): // somebody else's number
		return
	case p == nil:
		peer, err := m.env.Greeted(greeting)
		if err != nil {
			m.tell(refused, id, 0, cut(err.Error()), from)
			return
		}
		p = &inbound{m: m, id: id, peer: peer, greeting: slices.Clone(greeting), from: from, up: m.env.Upcall.Accept(peer)}
		m.in[id] = p
		for _, e := range m.out {
			if e.peer == peer {
				e.back = p
			}
		}
	}
	m.tell(opened, id, 0, nil, from)
}

// data takes a frame, in whatever order it comes.
func (p *inbound) data(number uint32, frame []byte) {
	early := number - p.next
	if len(frame) == 0 || early >= ahead {
		p.owe(p.m.at) // it came before: the confirmation was lost
		return
	}
	if early > 0 {
		if slot := &p.early[number%ahead]; *slot == nil {
			*slot = slices.Clone(frame)
			p.waits++
		}
		p.owe(p.m.at) // who hears of a gap early fills it early
		return
	}
	for frame != nil {
		p.next++
		p.news++
		if err := p.up.Frame(frame); err != nil {
			delete(p.m.in, p.id)
			p.m.tell(refused, p.id, 0, cut("this makes no sense: "+err.Error()), p.from)
			p.owes = 0
			p.m.env.Ended("btl udp", p.peer, "receive", err)
			return
		}
		slot := &p.early[p.next%ahead]
		if frame, *slot = *slot, nil; frame != nil {
			p.waits--
		}
	}
	if p.many() {
		p.owe(p.m.at)
	} else if p.owes == 0 {
		p.owe(p.m.at + confirmAfter)
	}
}

// many reports whether so many have come that the sender is to hear of it.
func (p *inbound) many() bool { return p.news >= min(confirmEach, (p.m.p.Window+3)/4) }

// owe has a confirmation sent at that time.
func (p *inbound) owe(at time.Duration) {
	if !p.listed {
		p.listed = true
		p.m.owed = append(p.m.owed, p)
	}
	p.owes = at
	p.m.wake(at)
}

// confirm says what has come.
func (p *inbound) confirm() {
	p.owes, p.news = 0, 0
	var body [8]byte
	binary.LittleEndian.PutUint64(body[:], p.more())
	p.m.tell(confirm, p.id, p.next, body[:], p.from)
}

// with has a datagram take the confirmation along that is owed, and returns its size.
func (p *inbound) with(b []byte) int {
	if p == nil || p.owes == 0 {
		return 0
	}
	p.owes, p.news = 0, 0
	binary.LittleEndian.PutUint64(b, p.id)
	binary.LittleEndian.PutUint32(b[8:], p.next)
	binary.LittleEndian.PutUint64(b[12:], p.more())
	return confirmSize
}

// more has a bit for each frame that came before the first one that is missing.
func (p *inbound) more() (more uint64) {
	if p.waits == 0 {
		return 0
	}
	for i := range uint32(ahead - 1) {
		if p.early[(p.next+1+i)%ahead] != nil {
			more |= 1 << i
		}
	}
	return more
}

// cut is a reason, not too long.
func cut(reason string) []byte { return []byte(reason[:min(len(reason), longest)]) }
