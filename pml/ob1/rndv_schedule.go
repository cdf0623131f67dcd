package ob1

import (
	"time"

	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// Scheduling of large receives, where the transport has several protocols. The receiver
// selects the protocol, since it knows both buffers after the match. It measures each
// message from the match, or from the end of the message before, until it is complete.
// Messages of one process that are in flight together use one protocol, so that each time
// belongs to one. The sender contributes the time to pack the fragment of the RTS. The CTS
// advises it whether to send such a fragment with the next message of the kind.

// largeReceives are the large messages from one process.
type largeReceives struct {
	// selections is nil until the first message with a choice of protocols.
	selections *selections
	// scheduled are matched receives that are not started.
	scheduled requestList
	// inFlight counts started messages of bytesInFlight bytes, which all use protocol.
	inFlight      int
	bytesInFlight int64
	protocol      selector.Protocol
	// windowPattern is the pattern of the last message of a window.
	windowPattern pattern
	// fullRingBytes counts bytes received by PipelineFull, up to a whole lap of the ring.
	fullRingBytes int64
	// uncrossed counts messages that crossed no message of this process, since the last one that
	// did. wasCrossed is set if one of the present window did.
	uncrossed  uint8
	wasCrossed bool
	// lastProtocol and lastEnd are those of the message that ended last.
	lastProtocol selector.Protocol
	lastEnd      time.Duration
	// inStartScheduled is set while startScheduled iterates.
	inStartScheduled bool
	heldCrossing     crossingReceive
	// canPut is set if the last RTS announced that the sender can write into this process's memory.
	canPut bool
}

// maxLap bounds the part of the ring that isFirstLap excludes from measurement, in bytes.
const maxLap = 4 << 20

// maxAhead bounds the bytes of messages in flight by the pipeline as a further one is
// accepted. Several are, so that the sender never idles.
const maxAhead = 1 << 20

// maxUncrossed is the number of consecutive messages that count as parts of a duplex window
// although they cross no message of this process.
const maxUncrossed = 64

// now returns the time since the module was opened.
func (m *Module) now() time.Duration { return time.Since(m.openedAt) }

// receivePlan is the plan and the measurement of a large receive.
type receivePlan struct {
	// fragment came with the RTS and is not copied yet. It is memory of the BTL, or of the
	// unexpected message. copyBase is the offset behind it, where the transfer begins.
	fragment []byte
	copyBase int64
	protocol selector.Protocol
	// possible is empty until planReceive.
	possible  selector.Set
	selection *selection
	// crossedSend is the handle of the send that the message crosses.
	crossedSend uint64
	// isInFlight is set while the message counts in largeReceives.inFlight.
	isInFlight bool
	// nextProtocol is the protocol planned for the next message of the kind.
	nextProtocol selector.Protocol
	// isTimeInvalid is set if the message must not be measured.
	isTimeInvalid bool
	// followsAnother is set if the measured time begins with the end of the message before.
	// Otherwise it begins at busySince.
	followsAnother bool
	busySince      time.Duration
	// fragmentTime is the time that the copy of the fragment has consumed.
	fragmentTime time.Duration
}

// schedule queues a matched message if several protocols are possible, and starts it when
// earlier ones allow. Otherwise it reports false. Lock held.
func (r *request) schedule(in *matchedRTS) bool {
	x := r.rndv
	p := r.p.proc
	if p.inTransport == nil || p.inTransport.copier == nil || !in.isDescribed || x.bytesWanted-int64(len(in.fragment)) < minFragment || p.requirePath() != nil {
		return false
	}
	r.state, x.remote = stateMatched, in.remote
	x.fragment, x.bytesMoved = in.fragment, int64(len(in.fragment))
	x.copyBase, x.pattern = x.bytesMoved, in.pattern
	x.followsAnother = p.incoming.inFlight > 0 || p.incoming.scheduled.head != nil
	r.setPattern(in.isUnexpected)
	r.setStart(in)
	p.incoming.scheduled.push(r)
	p.startScheduled()
	// A message that has started has none left, and neither has another one that uses r since.
	r.storeFragment()
	return true
}

// setPattern determines how the message and those of this process to its sender overlap.
func (r *request) setPattern(isUnexpected bool) {
	x := r.rndv
	p := r.p.proc
	in := &p.incoming
	isSending := p.isSendingLarge()
	if !isSending && !x.followsAnother {
		if !in.wasCrossed {
			in.windowPattern = windowed
		}
		in.wasCrossed = false
	}
	switch {
	case !isSending && in.windowPattern == duplex && in.uncrossed < maxUncrossed:
		// The start or the end of a duplex window. This process's messages are not sent yet, or
		// all complete.
		in.uncrossed++
		if x.pattern == windowed {
			x.pattern = duplex
		}
	case !isSending:
		// The message crosses no other one, so the pattern in the RTS holds.
	case x.pattern == single:
		x.pattern, x.crossedSend = crossing, p.outgoing.lastRTS
	default:
		in.uncrossed, in.wasCrossed = 0, true
		// The time between two messages counts, since it contains the packing of this process's
		// messages, which belongs to the cost of a protocol.
		x.pattern = duplex
		x.followsAnother = x.followsAnother || !isUnexpected && in.lastEnd > 0
	}
}

// setStart determines when the measured time of the message begins. 0 stands for the start of
// the protocol, and a negative value for an earlier time.
func (r *request) setStart(in *matchedRTS) {
	x := r.rndv
	p := r.p.proc
	x.busySince, x.fragmentTime = 0, 0
	if in.isUnexpected {
		return
	}
	x.busySince = -in.packTime
	if p.outgoing.windowStart > 0 && p.isSendingLarge() && !x.followsAnother {
		// The message has waited here while this process packed a window in the other direction.
		x.busySince = max(p.outgoing.windowStart, p.incoming.lastEnd)
	}
}

// storeFragment copies the fragment of the RTS to the receive buffer, unless that is done.
func (r *request) storeFragment() {
	if x := r.rndv; x != nil && len(x.fragment) > 0 {
		r.store(x.fragment, 0)
		x.fragment = nil
	}
}

// startScheduled starts as many scheduled messages as may be in flight together. Lock held.
func (p *proc) startScheduled() {
	in := &p.incoming
	if in.inStartScheduled {
		return
	}
	in.inStartScheduled = true
	for in.scheduled.head != nil {
		r := in.scheduled.head
		x := r.rndv
		if x.possible == 0 {
			if err := p.planReceive(r); err != nil {
				in.scheduled.pop()
				p.sendControl(newCTS(x.peerHandle, 0, 0))
				r.failUnlessPeerFailed(err)
				continue
			}
		}
		l, possible := x.selection, x.possible
		l.plan(p, possible)
		x.protocol = l.planned[0]
		if in.inFlight > 0 && (x.protocol != in.protocol || !in.hasRoom(r)) {
			break
		}
		in.scheduled.pop()
		in.inFlight++
		in.bytesInFlight += x.bytesWanted
		in.protocol = x.protocol
		if x.pattern != single && x.pattern != crossing {
			in.windowPattern = x.pattern
		}
		x.isInFlight, x.nextProtocol = true, l.planned[1]
		l.planned[0], l.plannedCount = l.planned[1], 1
		r.startProtocol()
		// After the answer, for which the sender waits.
		l.plan(p, possible)
	}
	in.inStartScheduled = false
}

// hasRoom reports whether one more message may be in flight.
func (in *largeReceives) hasRoom(r *request) bool {
	switch in.protocol {
	case selector.Pipeline, selector.PipelineFull, selector.PipelineNT:
		return in.bytesInFlight < maxAhead || in.inFlight < 2
	case selector.Get:
		return false
	default:
		return in.inFlight < 2
	}
}

// beginCopy stores the fragment of a scheduled message before a copy between the processes.
func (r *request) beginCopy() {
	x := r.rndv
	if !x.isInFlight {
		return
	}
	r.noteStart()
	if !x.followsAnother || len(x.fragment) == 0 {
		r.storeFragment()
		return
	}
	began := r.m.now()
	r.storeFragment()
	x.fragmentTime = r.m.now() - began
}

// noteStart sets the start of the measured time of a scheduled message, unless it follows
// another one.
func (r *request) noteStart() {
	x := r.rndv
	if x.isInFlight && !x.followsAnother && x.busySince <= 0 {
		x.busySince += r.m.now()
	}
}

// endTransfer ends the rendezvous of a request, and removes a message from those in flight. Lock
// held.
func (r *request) endTransfer() {
	x := r.rndv
	if x == nil {
		return
	}
	r.setTransfer(nil)
	x.fragment = nil
	if !x.isInFlight {
		return
	}
	x.isInFlight = false
	// Fail clears the count.
	if in := &r.p.proc.incoming; in.inFlight > 0 {
		in.inFlight--
		in.bytesInFlight -= x.bytesWanted
		r.measure()
	}
}

// measure passes the elapsed time of a message that has left those in flight to its selector, if
// it was successful.
func (r *request) measure() {
	x, p, now := r.rndv, r.p.proc, r.m.now()
	in := &p.incoming
	from, bytes, clean := x.busySince, x.bytesWanted, true
	if x.followsAnother {
		from, clean = in.lastEnd, in.lastProtocol == x.protocol
		if !selector.AnyPipeline.Has(x.protocol) {
			// The fragment arrived while the message before was in flight.
			bytes -= x.copyBase
			from += x.fragmentTime
		}
	}
	in.lastEnd, in.lastProtocol = now, x.protocol
	if x.protocol == selector.PipelineFull && in.isFirstLap(bytes, p.inTransport.lap()) {
		x.isTimeInvalid = true
	}
	if r.Status.Err == nil && !x.isTimeInvalid && x.selection != nil {
		// With others in flight, it was the first message of a window.
		if (x.pattern == single || x.pattern == crossing) && in.inFlight > 0 {
			x.selection = p.selectionOf(messageKind{x.selection.kind.memory, in.windowPattern, x.selection.kind.class}, x.possible.Has(selector.Get))
		}
		one := crossingReceive{x.selection, x.crossedSend, x.protocol, bytes, from, now, clean}
		if x.selection.kind.pattern == crossing && p.isSending(x.crossedSend) {
			in.heldCrossing = one
		} else {
			one.record(p, now-from)
		}
	}
}

// lap returns the bytes of a pass through the ring of a path.
func (t *transport) lap() int { return min(t.Ring, maxLap) }

// isFirstLap counts bytes received by PipelineFull, and reports whether they passed through
// parts of the ring that were never used before. The first use of each page is slow, which is
// not representative.
func (in *largeReceives) isFirstLap(bytes int64, ring int) bool {
	if in.fullRingBytes >= int64(ring) {
		return false
	}
	in.fullRingBytes += bytes
	return true
}

// hasLapped reports whether messages of the process have passed through the whole ring.
func (p *proc) hasLapped() bool {
	return p.inTransport == nil || p.incoming.fullRingBytes >= int64(p.inTransport.lap())
}
