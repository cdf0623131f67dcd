package tcp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/netaddr"
)

// endpoint is the path to a peer.
type endpoint struct {
	p     *pair // nil: closed
	used  bool  // a Reserve has succeeded
	mem   *chunk
	frame []byte // the last reservation, with its header
}

// Reach implements btl.Module. It looks at the card only: nothing is sent.
func (m *module) Reach(peer framework.Peer) error {
	_, err := m.reach(peer)
	return err
}

func (m *module) reach(peer framework.Peer) (*blob, error) {
	if peer.Proc == m.env.Identity.Proc {
		return nil, btl.NotMeant("serves only other processes")
	}
	card, err := decodeBlob(peer.Blob)
	if err != nil {
		return nil, err
	}
	if err := m.security.differs(card.security); err != nil {
		return nil, err
	}
	if len(card.addrs) == 0 {
		return nil, fmt.Errorf("the peer has published no address: see btl.tcp.address_include there")
	}
	if p := m.pairs[peer.Life]; p != nil && p.met {
		return &card, nil
	}
	ifs := m.interfaces()
	if len(netaddr.Order(ifs, card.addrs)) == 0 {
		return nil, fmt.Errorf("none of the peer's addresses is usable from here: %v", card.addrs)
	}
	return &card, nil
}

// Connect implements btl.Module.
func (m *module) Connect(peer framework.Peer) (btl.Endpoint, error) {
	card, err := m.reach(peer)
	if err != nil {
		return nil, err
	}
	p := m.pairs[peer.Life]
	if p == nil {
		p = m.newPair(peer.Life, card)
	}
	p.knows(card)
	if p.endpoint != nil {
		p.endpoint.Close()
	}
	p.endpoint = &endpoint{p: p}
	p.limited = false // the protocol hears of them in a Poll, when it knows of the endpoint
	p.opened++
	p.control(kindOpen, binary.LittleEndian.AppendUint64(nil, p.opened))
	m.at(0)
	m.polls = 0
	return p.endpoint, nil
}

// ready reports whether a frame of n bytes can be sent now.
func (e *endpoint) ready(n int) bool {
	p := e.p
	if p == nil || !p.limited {
		return false
	}
	if !p.path.room(headerSize + n) {
		p.m.polls = 0             // somebody waits for what its sockets say
		if p.asked < p.path.end { // the peer may owe a confirmation
			p.ask()
		}
		return false
	}
	e.used = true
	return true
}

// ask has the peer confirm what it has received.
func (p *pair) ask() {
	if p.asked = p.path.end; !p.path.say(true) {
		p.asked = 0
	}
	p.touch()
}

// Reserve implements btl.Endpoint. The memory is the module's, and lies with the frames
// that wait for their confirmation.
func (e *endpoint) Reserve(n int) []byte {
	if !e.ready(n) {
		return nil
	}
	e.mem, e.frame = e.p.out.reserve(headerSize + n)
	return e.frame[headerSize:]
}

// Commit implements btl.Endpoint.
func (e *endpoint) Commit(n int) {
	if e.p == nil || e.frame == nil {
		return
	}
	h := header{size: n, kind: kindFrame}
	e.send(h, e.frame[:headerSize+n], nil, nil)
}

// SendShort implements btl.ShortSender.
func (e *endpoint) SendShort(h btl.ShortHeader, payload []byte) bool {
	n := btl.ShortHeaderSize + len(payload)
	if !e.ready(n) {
		return false
	}
	var b []byte
	e.mem, b = e.p.out.reserve(headerSize + n)
	h.Put(b[headerSize:])
	copy(b[headerSize+btl.ShortHeaderSize:], payload)
	e.send(header{size: n, kind: kindFrame}, b, nil, nil)
	return true
}

// Gather implements btl.Gatherer.
func (e *endpoint) Gather(head, payload []byte, c btl.LocalCompletion) bool {
	n := len(head) + len(payload)
	if len(head) > btl.GatherHeader || !e.ready(n) {
		return false
	}
	var b []byte
	e.mem, b = e.p.out.reserve(headerSize + len(head))
	copy(b[headerSize:], head)
	e.send(header{size: n, kind: kindFrame, gathered: len(head)}, b, payload, c)
	return true
}

// send gives a frame to the path, and writes it if nothing goes before it.
func (e *endpoint) send(h header, head, payload []byte, c btl.LocalCompletion) {
	p := e.p
	h.put(head)
	at := e.mem.used
	number := p.path.push(frame{head: head, payload: payload, done: c, mem: e.mem, at: at})
	p.out.use(len(head), number)
	e.frame = nil
	p.flush()
}

// Small frames leave at once if none has since the protocol polled last. Those behind wait
// for its next poll, and go together, or until they are worth a system call.
const (
	burst      = 1
	worthACall = 16 << 10
)

// flush writes what waits, now or with the next Poll.
func (p *pair) flush() {
	if p.visit != p.m.visits {
		p.visit, p.bursts = p.m.visits, 0
	}
	if p.bursts < burst || p.path.unsent >= worthACall {
		p.bursts++
		p.write()
		if !p.path.waiting() {
			return
		}
	}
	p.touch()
}

// Idle implements btl.Endpoint: all is confirmed. Whoever asks waits for it, so the peer is
// asked to say so.
func (e *endpoint) Idle() bool {
	p := e.p
	if p == nil || p.path.idle() {
		return true
	}
	if p.asked < p.path.end && p.path.ups() > 0 && !p.path.waiting() {
		p.ask()
	}
	return false
}

// Close implements btl.Endpoint. What was committed stays here until it is confirmed;
// payloads that are their owners' are copied.
func (e *endpoint) Close() {
	p := e.p
	if p == nil {
		return
	}
	e.p, p.endpoint = nil, nil
	for n := p.path.first; n < p.path.end; n++ {
		if f := p.path.at(n); f.done != nil {
			done := f.done
			f.payload, f.done = slices.Clone(f.payload), nil
			done.LocallyComplete()
		}
	}
	if !p.met { // nobody knows of it yet
		p.drop()
		return
	}
	p.control(kindLeave, nil)
}
