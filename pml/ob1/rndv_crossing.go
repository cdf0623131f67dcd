package ob1

import (
	"time"

	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// Large messages that cross each other, single ones or windows. Both processes copy at the
// same time, so that the protocol of one direction costs the other one time as well. So one
// of the two selects for both directions, by the time until both messages are complete, or
// by the time of a window that includes the sends in between. If each receiver selected on
// its own, a protocol that is good in both directions would seem bad to the first that uses it.

// selectsForBoth reports whether p selects the protocol of messages that cross each other, and not
// this process. It is the process with the smaller nonce.
func (p *proc) selectsForBoth() bool { return p.Incarnation.Nonce <= p.m.env.Self.Nonce }

// advisedProtocol returns the protocol for a receive of kind k if its sender selects for both
// directions, and has advised a mode for the next message to it.
func (p *proc) advisedProtocol(k messageKind) (protocol selector.Protocol, ok bool) {
	if !p.selectsForBoth() {
		return 0, false
	}
	sent := single
	if k.pattern == duplex {
		sent = windowed
	}
	a := &p.outgoing.packAdvice[k.memory][sent][k.class]
	if a.usesLeft == 0 {
		return 0, false
	}
	a.usesLeft--
	switch a.mode {
	case packCached:
		return selector.Pipeline, true
	case packFull:
		return selector.PipelineFull, true
	case packNT:
		return selector.PipelineNT, true
	}
	return selector.Get, true
}

// crossingReceive is the measurement of a complete receive that waits for the end of the
// send that it crossed. Without a selection there is none.
type crossingReceive struct {
	selection *selection
	// crossedSend is the handle of the send.
	crossedSend     uint64
	protocol        selector.Protocol
	bytes           int64
	from, completed time.Duration
	isClean         bool
}

// crossingTime returns the time of two crossing messages. The first lasted from from to
// completed, and the second until end. A second message that lasted more than twice as long
// has waited for its receive, and is ignored.
func crossingTime(from, completed, end time.Duration) time.Duration {
	if end-from > 2*(completed-from) {
		end = completed
	}
	return end - from
}

// recordCrossing records the held receive when the send that it crossed has ended.
func (p *proc) recordCrossing(end time.Duration) {
	h := p.incoming.heldCrossing
	p.incoming.heldCrossing.selection = nil
	h.record(p, crossingTime(h.from, h.completed, end))
}

// record adds the elapsed time of a message from p to the selector.
func (h *crossingReceive) record(p *proc, d time.Duration) {
	h.selection.record(p, h.protocol, h.bytes, int64(d), h.isClean)
}
