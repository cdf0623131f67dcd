package ofi

import (
	"encoding/binary"

	"github.com/ferrympi/ferry/internal/libfabric"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
)

// A provider does not say when a message has matched. So who receives a synchronous one answers,
// with its tag, in a frame.

// unanswered are the synchronous sends to one peer that wait for answers, found by tag. Messages of
// one tag match in their order, so that whatever answer comes first, the oldest has matched.
type unanswered struct {
	queues match.Queues[slot, slot]
	peer   match.Peer[slot, slot]
}

// expect has a synchronous send wait for its answer.
func (m *module) expect(s *slot) {
	p := &m.peers[s.to]
	if p.matching == nil {
		p.matching = new(unanswered)
	}
	s.node.Source, s.node.Tag = 0, int(m.answerTag(s.tag))
	p.matching.queues.Post(&p.matching.peer, &s.node)
}

// answerTag is how an answer names a message: by its tag, without the bit that says that it
// is synchronous.
func (m *module) answerTag(tag uint64) uint64 {
	if !m.layout.data {
		tag &^= m.layout.sync
	}
	return tag
}

// sentSynchronous: the buffer is free; the answer may be here already.
func (m *module) sentSynchronous(s *slot, ev *libfabric.Event) {
	s.sent = true
	if ev.Err == 0 && !s.matched {
		return
	}
	if !s.matched {
		m.peers[s.to].matching.queues.Cancel(&s.node)
	}
	m.finish(s, mtl.Result{Err: m.eventError("send", s.to, ev)})
}

// acknowledge tells the sender of a synchronous message that it has matched.
func (m *module) acknowledge(s *slot, tag uint64, source int32) {
	to := s.to
	if to == mtl.NoEndpoint {
		e, _ := m.layout.message(tag, 0)
		var ok bool
		if to, ok = m.env.Upcall.Endpoint(e.CID, int(source)); !ok {
			return
		}
	}
	if m.may(to) != nil {
		return
	}
	b := append(m.scratch[:0], frameAnswer)
	b = binary.LittleEndian.AppendUint64(b, m.env.Self.Nonce)
	b = binary.LittleEndian.AppendUint64(b, m.answerTag(tag))
	// An error means that the peer gets nothing any more.
	m.untagged(answer, nil, to, b)
}

// answered ends the oldest synchronous send to a peer with this tag.
func (m *module) answered(nonce, tag uint64) {
	to, ok := m.nonces[nonce]
	if !ok {
		return
	}
	waits := m.peers[to].matching
	if waits == nil || int(tag) < 0 { // a stranger's: no layout has so many bits
		return
	}
	e := waits.queues.Arrive(&waits.peer, int(tag))
	if e == nil {
		return
	}
	s := e.Owner
	if s.matched = true; s.sent {
		m.finish(s, mtl.Result{})
	}
}
