package mesh

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// Each process forwards an event that is new to it over all connections except the one that
// delivered it. Every process keeps a connection to the coordinator of each group that it was in,
// the first member that has neither ended nor left. So events reach all processes that are linked
// by a chain of common groups.

const (
	// leftBatchDelay is the time for which PeerLeft events are collected. At the end of a job all
	// processes close at about the same time, and few of these events are then sent at all.
	leftBatchDelay = 20 * time.Millisecond

	// minSeenEvents and seenEventsPerProc bound the events that are recognized as duplicates. A
	// duplicate beyond that is harmless.
	minSeenEvents, seenEventsPerProc = 256, 4

	// maxLossyFrames limits the frames that wait for a connection to one process.
	maxLossyFrames = 16

	// maxRecentEvents limits the events that are repeated on later connections. With an Exchange,
	// members connect after their constructs only.
	maxRecentEvents = 256
)

// eventLog is the state of the events of incarnations. endpoint.mu guards it.
type eventLog struct {
	// Nonce of the present incarnation of this process, 0 if there is none.
	incarnation uint64
	// Repeated on later connections.
	recent []recentEvent
	// Incarnations that have left, with unsent events.
	unsentLeft []wire.EventBody
	// Nonce of the last incarnation of each process that has left.
	leftNonces map[uint32]uint64
}

// remember keeps an event for later connections.
func (l *eventLog) remember(subject uint32, frame []byte) {
	if len(l.recent) == maxRecentEvents {
		l.recent = slices.Delete(l.recent, 0, 1)
	}
	l.recent = append(l.recent, recentEvent{subject, frame})
}

// seenEvents has the events that were forwarded, in two generations. endpoint.mu guards it.
type seenEvents struct {
	recent, older map[wire.EventBody]struct{}
}

// addIfNew adds an event, and reports whether it was new. At capacity, a generation is dropped.
func (e *seenEvents) addIfNew(ev wire.EventBody, capacity int) bool {
	if _, isKnown := e.recent[ev]; isKnown {
		return false
	}
	if _, isKnown := e.older[ev]; isKnown {
		return false
	}
	if len(e.recent) >= capacity {
		e.recent, e.older = e.older, e.recent
		clear(e.recent)
	}
	e.recent[ev] = struct{}{}
	return true
}

// recentEvent is an event frame, and the process that it is about.
type recentEvent struct {
	subject uint32
	frame   []byte
}

// publicEvent converts an event for the user of this client.
func (c *client) publicEvent(ev wire.EventBody) bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.EventKind(ev.Kind), Proc: c.id.Procs([]uint32{ev.Rank})[0], Nonce: ev.Nonce,
		Comm: cid.FromBytes(ev.Comm), Reason: ev.Reason}
}

// recordIfNew records an event, and reports whether it was new. The caller holds endpoint.mu.
func (c *client) recordIfNew(ev wire.EventBody) bool {
	ev.Reason = ""
	if ev.Kind == uint8(bootstrap.CommBroken) { // Any member may have reported it.
		ev.Rank, ev.Nonce = 0, 0
	}
	return c.seenEvents.addIfNew(ev, minSeenEvents+seenEventsPerProc*max(c.id.Size, len(c.peers)))
}

// flood sends an event to all connected processes but its sender and its subject. The caller holds
// endpoint.mu.
func (c *client) flood(ev wire.EventBody, from *link) {
	c.forwardFrame(encodeFrame(wire.Event, 0, ev), ev.Rank, from, (*link).sendFrame)
}

// floodBroken floods an event for some members, which other processes may connect. The event is
// lost on links that are not read.
func (c *client) floodBroken(b wire.CommEventBody, from *link) {
	frame, err := wire.Encode(wire.CommEvent, 0, b)
	if err != nil {
		c.log.Warn("bootstrap mesh: event of a broken communicator dropped: too large", "error", err)
		return
	}
	c.forwardFrame(frame, b.Event.Rank, from, func(l *link, frame []byte) { l.sendLossy(frame) })
}

func (c *client) forwardFrame(frame []byte, about uint32, from *link, send func(*link, []byte)) {
	c.rememberRecent(about, frame)
	for _, p := range c.peers {
		if len(p.links) > 0 && p.rank != about && (from == nil || p.rank != from.rank) {
			send(p.links[0], frame)
		}
	}
}

// rememberRecent keeps an event for later connections. The caller holds endpoint.mu.
func (c *client) rememberRecent(about uint32, frame []byte) {
	if c.exchange == nil { // All receivers are connected.
		return
	}
	c.eventLog.remember(about, frame)
}

// receiveEvent handles an event that another process forwards.
func (c *client) receiveEvent(ev wire.EventBody, from *link) error {
	if !c.isRank(ev.Rank) {
		return framework.ErrRank
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil
	}
	switch bootstrap.EventKind(ev.Kind) {
	case bootstrap.PeerFailed:
		c.reportFailed(ev, from)
	case bootstrap.PeerLeft:
		p := c.peerOf(ev.Rank)
		if from.rank == ev.Rank {
			c.reportLeft(p, ev.Nonce)
		} else if c.recordIfNew(ev) {
			if p.incarnation == 0 || p.incarnation == ev.Nonce {
				p.hasLeft = true
			}
			c.eventLog.leftNonces[ev.Rank] = ev.Nonce
			c.events.Add(c.publicEvent(ev))
			c.flood(ev, from)
			c.scheduleUpkeep()
		}
	default:
		c.log.Warn("bootstrap mesh: unknown event", "kind", ev.Kind, "from", c.procName(from.rank))
	}
	return nil
}

// receiveBroken handles and forwards the event that the collectives of a communicator have failed.
// The caller holds endpoint.mu.
func (c *client) receiveBroken(b wire.CommEventBody, from *link) {
	if !c.recordIfNew(b.Event) {
		return
	}
	if b.Members.Index(c.id.Proc.Rank) >= 0 {
		c.events.Add(c.publicEvent(b.Event))
	}
	c.floodBroken(b, from)
}

// receiveLauncherEvent handles an event of a Watcher.
func (c *client) receiveLauncherEvent(e bootstrap.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isClosed:
	case e.Kind == bootstrap.ServerLost || e.Kind == bootstrap.Dump:
		c.events.Add(e)
	case e.Kind == bootstrap.PeerFailed && e.Proc.Namespace == c.id.Proc.Namespace && c.isRank(e.Proc.Rank):
		c.reportFailed(wire.EventBody{Kind: uint8(e.Kind), Rank: e.Proc.Rank, Nonce: e.Nonce, Reason: e.Reason}, nil)
	}
}

// concludeEnded handles the end of a process, which has failed unless it had sent a goodbye. The
// caller holds endpoint.mu.
func (c *client) concludeEnded(p *peer, reason string) {
	switch {
	case p.state == peerEnded:
	case p.state == peerAbsent || !p.hasConnected && (p.hasLeft || !c.sharesGroup(p.rank)):
		c.endPeer(p)
	default:
		c.reportFailed(wire.EventBody{Kind: uint8(bootstrap.PeerFailed), Rank: p.rank, Nonce: p.incarnation, Reason: reason}, nil)
	}
}

// reportFailed records and floods the failure of a process. The caller holds endpoint.mu.
func (c *client) reportFailed(ev wire.EventBody, from *link) {
	ev.Reason = wire.TruncateReason(ev.Reason)
	if ev.Rank == c.id.Proc.Rank {
		c.isolate(ev)
		return
	}
	// The launcher may not know the incarnation. Processes that were connected add it.
	if incarnation := c.peerOf(ev.Rank).incarnation; ev.Nonce == 0 && incarnation != 0 {
		ev.Nonce, from = incarnation, nil
	}
	if before, known := c.failures[ev.Rank]; known && (before.Nonce != 0 || ev.Nonce == 0) {
		return
	}
	c.failures[ev.Rank] = ev
	c.log.Info("process failed", "rank", ev.Rank, "reason", ev.Reason)
	// The event precedes the failure of fences, so that their callers know the reason.
	c.events.Add(c.publicEvent(ev))
	c.flood(ev, from)
	c.endPeer(c.peerOf(ev.Rank))
}

// endPeer releases all that waits for a process that never returns. The caller holds endpoint.mu.
func (c *client) endPeer(p *peer) {
	p.state, p.uncertainCalls, p.waitingCalls, p.lossyFrames = peerEnded, nil, nil, nil
	c.expelPeer(p)
	for _, one := range c.pendingCalls.Select(func(one *call) bool { return one.target == p.rank }) {
		c.failCall(one, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{p.rank}})
	}
	c.joins.ProcEnded(p.rank)
	c.failRounds(p.rank)
	if c.sets != nil {
		c.sets.ProcEnded(p.rank)
	}
	c.updateDialing(p)
	c.scheduleUpkeep()
}

// setIncarnation records the incarnation of an Incarnation message. A second connection may deliver it
// after that incarnation has ended.
func (c *client) setIncarnation(rank uint32, nonce uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peerOf(rank)
	if p.state == peerEnded || nonce == 0 || nonce == c.eventLog.leftNonces[rank] {
		return
	}
	c.flushLeft() // The end of an incarnation precedes the next one.
	p.incarnation, p.hasLeft = nonce, false
}

// reportLeft records that an incarnation of p has left. The caller holds endpoint.mu.
func (c *client) reportLeft(p *peer, nonce uint64) {
	if nonce == 0 || c.isClosed {
		return
	}
	ev := wire.EventBody{Kind: uint8(bootstrap.PeerLeft), Rank: p.rank, Nonce: nonce}
	p.hasLeft = p.hasLeft || p.incarnation == nonce
	if !c.recordIfNew(ev) {
		return
	}
	c.eventLog.leftNonces[p.rank] = nonce
	c.events.Add(c.publicEvent(ev))
	c.scheduleUpkeep()
	if c.eventLog.unsentLeft = append(c.eventLog.unsentLeft, ev); len(c.eventLog.unsentLeft) == 1 {
		c.runAfter(leftBatchDelay, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.flushLeft()
		})
	}
}

// flushLeft floods the collected PeerLeft events. The caller holds endpoint.mu.
func (c *client) flushLeft() {
	for _, ev := range c.eventLog.unsentLeft {
		c.flood(ev, nil)
	}
	c.eventLog.unsentLeft = nil
}

// sendKnownEvents sends the state of this process and all known events on a new connection. The
// caller holds endpoint.mu.
func (c *client) sendKnownEvents(l *link) {
	if c.eventLog.incarnation != 0 {
		l.send(encodeFrame(wire.Incarnation, 0, wire.IncarnationBody{Nonce: c.eventLog.incarnation}))
	}
	for _, ev := range c.failures {
		if ev.Rank != l.rank {
			l.send(encodeFrame(wire.Event, 0, ev))
		}
	}
	for _, n := range c.eventLog.recent { // The receiver ignores duplicates.
		if n.subject != l.rank {
			l.sendLossy(n.frame)
		}
	}
	c.sendRevocations(l)
}

// resendKnownEvents is sendKnownEvents on a connection that replaces a broken one. That may have
// held the end of an incarnation, of this process or of another one. The caller holds endpoint.mu.
func (c *client) resendKnownEvents(l *link) {
	c.sendKnownEvents(l)
	for rank, nonce := range c.eventLog.leftNonces {
		if rank != l.rank {
			l.send(encodeFrame(wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerLeft), Rank: rank, Nonce: nonce}))
		}
	}
}

// BeginIncarnation implements bootstrap.EventSource.
func (c *client) BeginIncarnation(nonce uint64) { c.announceIncarnation(nonce) }

// EndIncarnation implements bootstrap.EventSource.
func (c *client) EndIncarnation() { c.announceIncarnation(0) }

func (c *client) announceIncarnation(nonce uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed || c.eventLog.incarnation == nonce {
		return
	}
	// The end names its incarnation, because a second connection may deliver it after the next one
	// has begun.
	frame := encodeFrame(wire.Incarnation, 0, wire.IncarnationBody{Nonce: nonce})
	if nonce == 0 {
		frame = encodeFrame(wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.PeerLeft), Rank: c.id.Proc.Rank, Nonce: c.eventLog.incarnation})
		c.rememberRecent(c.id.Proc.Rank, frame)
		c.eventLog.leftNonces[c.id.Proc.Rank] = c.eventLog.incarnation
	}
	c.eventLog.incarnation = nonce
	for l := range c.links {
		l.send(frame)
	}
}

// Disconnect implements bootstrap.EventSource. The event is lost if the process has closed.
func (c *client) Disconnect(to framework.Proc, nonce uint64, reason string) {
	if to.Namespace != c.id.Proc.Namespace || !c.isRank(to.Rank) || to == c.id.Proc {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	frame := encodeFrame(wire.Disconnect, 0, wire.DisconnectBody{Rank: to.Rank, Nonce: nonce, Reason: wire.TruncateReason(reason)})
	c.sendLossyTo(to.Rank, frame)
	c.checkPeer(c.peerOf(to.Rank))
}

// sendLossyTo sends a frame that may be lost, and dials the process if necessary. The caller holds
// endpoint.mu.
func (c *client) sendLossyTo(rank uint32, frame []byte) {
	switch p := c.peerOf(rank); {
	case len(p.links) > 0:
		if !p.links[0].sendLossy(frame) {
			c.droppedFrames.Add(1)
		}
	case p.state != peerAbsent && p.state != peerEnded && !c.isClosed && len(p.lossyFrames) < maxLossyFrames:
		p.lossyFrames = append(p.lossyFrames, frame)
		c.updateDialing(p)
	default:
		c.droppedFrames.Add(1)
	}
}

// receiveDisconnect handles the Disconnect of another process.
func (c *client) receiveDisconnect(from uint32, b wire.DisconnectBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Nonce == c.eventLog.incarnation && !c.isClosed && c.peerOf(from).state != peerEnded {
		c.events.Add(bootstrap.Event{Kind: bootstrap.PeerUnreachable, Proc: c.id.Procs([]uint32{from})[0], Nonce: c.peerOf(from).incarnation, Reason: b.Reason})
	}
}

// ReportBroken implements bootstrap.EventSource. Members of other jobs receive no event.
func (c *client) ReportBroken(comm cid.Extended, members []framework.Proc, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ev := wire.EventBody{Kind: uint8(bootstrap.CommBroken), Rank: c.id.Proc.Rank, Nonce: c.eventLog.incarnation, Comm: comm.Bytes(), Reason: wire.TruncateReason(reason)}
	if !c.isClosed && c.recordIfNew(ev) {
		c.floodBroken(wire.CommEventBody{Event: ev, Members: wire.MakeRuns(c.jobMembers(members))}, nil)
	}
}

// jobMembers returns the members that belong to this job.
func (c *client) jobMembers(members []framework.Proc) []framework.Proc {
	return slices.DeleteFunc(slices.Clone(members), func(p framework.Proc) bool { return p.Namespace != c.id.Proc.Namespace })
}

// OnEvent implements bootstrap.EventSource.
func (c *client) OnEvent(f func(bootstrap.Event)) { c.events.Set(f) }
