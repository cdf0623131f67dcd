package meet

import (
	"slices"
	"time"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/internal/wire"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
)

// News is passed on by whoever had not heard it, over all connections but the one that it
// came by. Every process keeps a connection to the head of each group that it was in, the
// first member that has neither ended nor left, so that news finds all who were ever in a
// group with somebody who was in a group with somebody, and so on.

const (
	// leftBatchDelay is how long the news that lives are over in good order waits for more of
	// its kind. It concerns who is late only: at the end of a job all close at once, and
	// nobody is left then who would have to hear of all others.
	leftBatchDelay = 20 * time.Millisecond

	// minSeenEvents is how much news is remembered at least, and seenEventsPerProc how much more for each
	// process. What is told twice does no harm.
	minSeenEvents, seenEventsPerProc = 256, 4

	// maxLossyFrames is how much news waits for a connection to one process.
	maxLossyFrames = 16

	// maxRecentEvents is how much news is told to those who connect afterwards, where members
	// don't meet by their constructs (Exchange) and connect when those are over.
	maxRecentEvents = 256
)

// recent is news with whom it is about.
type recentEvent struct {
	subject uint32
	frame   []byte
}

// event is ev as this client's user sees it.
func (c *client) publicEvent(ev wire.EventBody) bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.EventKind(ev.Kind), Proc: c.id.Procs([]uint32{ev.Rank})[0], Nonce: ev.Nonce,
		Comm: cid.FromBytes(ev.Comm), Reason: ev.Reason}
}

// recordIfNew reports whether ev has not been heard, and remembers it. The caller holds place.mu.
func (c *client) recordIfNew(ev wire.EventBody) bool {
	ev.Reason = ""
	if ev.Kind == uint8(bootstrap.Broken) { // whoever says so
		ev.Rank, ev.Nonce = 0, 0
	}
	if _, told := c.seenEvents[ev]; told {
		return false
	}
	if _, told := c.olderSeenEvents[ev]; told {
		return false
	}
	if len(c.seenEvents) >= minSeenEvents+seenEventsPerProc*int(c.id.Size) {
		c.seenEvents, c.olderSeenEvents = c.olderSeenEvents, c.seenEvents
		clear(c.seenEvents)
	}
	c.seenEvents[ev] = struct{}{}
	return true
}

// flood sends news to all who are connected, but not to whom it came from nor to whom it is
// about. The caller holds place.mu.
func (c *client) flood(ev wire.EventBody, from *link) {
	c.forwardFrame(encodeFrame(wire.Event, 0, ev), ev.Rank, from, (*link).sendFrame)
}

// floodBroken is flood for what concerns some only, who may be found through others. It is
// lost where what was sent before is not read.
func (c *client) floodBroken(b wire.BrokenBody, from *link) {
	frame, err := wire.Encode(wire.Told, 0, b)
	if err != nil {
		c.log.Warn("bootstrap meet: the news of a broken communicator is too large", "error", err)
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

// remember keeps news for those who connect afterwards. The caller holds place.mu.
func (c *client) rememberRecent(about uint32, frame []byte) {
	if c.exchange == nil { // who is to hear of it is connected
		return
	}
	if len(c.recentEvents) == maxRecentEvents {
		c.recentEvents = slices.Delete(c.recentEvents, 0, 1)
	}
	c.recentEvents = append(c.recentEvents, recentEvent{about, frame})
}

// heard takes in news that another process passes on.
func (c *client) receiveEvent(ev wire.EventBody, from *link) error {
	if int64(ev.Rank) >= int64(c.id.Size) {
		return framework.ErrRank
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil
	}
	switch bootstrap.EventKind(ev.Kind) {
	case bootstrap.ProcDied:
		c.reportFailed(ev, from)
	case bootstrap.ProcLeft:
		p := c.peerOf(ev.Rank)
		if from.rank == ev.Rank {
			c.reportLeft(p, ev.Nonce)
		} else if c.recordIfNew(ev) {
			if p.incarnation == 0 || p.incarnation == ev.Nonce {
				p.hasLeft = true
			}
			c.leftNonces[ev.Rank] = ev.Nonce
			c.events.Add(c.publicEvent(ev))
			c.flood(ev, from)
			c.scheduleUpkeep()
		}
	default:
		c.log.Warn("bootstrap meet: unknown event", "kind", ev.Kind, "from", c.procName(from.rank))
	}
	return nil
}

// receiveBroken takes in and passes on that a communicator's collectives can't go on. The caller
// holds place.mu.
func (c *client) receiveBroken(b wire.BrokenBody, from *link) {
	if !c.recordIfNew(b.Event) {
		return
	}
	if b.Members.Index(c.id.Proc.Rank) >= 0 {
		c.events.Add(c.publicEvent(b.Event))
	}
	c.floodBroken(b, from)
}

// receiveLauncherEvent takes in what a Watcher says.
func (c *client) receiveLauncherEvent(e bootstrap.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.isClosed:
	case e.Kind == bootstrap.ServerLost || e.Kind == bootstrap.Dump:
		c.events.Add(e)
	case e.Kind == bootstrap.ProcDied && e.Proc.Namespace == c.id.Proc.Namespace && int64(e.Proc.Rank) < int64(c.id.Size):
		c.reportFailed(wire.EventBody{Kind: uint8(e.Kind), Rank: e.Proc.Rank, Nonce: e.Nonce, Reason: e.Reason}, nil)
	}
}

// over draws the conclusion that a process has ended. It has failed unless it had said
// goodbye. The caller holds place.mu.
func (c *client) concludeEnded(p *peer, reason string) {
	switch {
	case p.state == peerEnded:
	case p.state == peerAbsent || !p.hasConnected && (p.hasLeft || !c.sharesGroup(p.rank)):
		c.endPeer(p)
	default:
		c.reportFailed(wire.EventBody{Kind: uint8(bootstrap.ProcDied), Rank: p.rank, Nonce: p.incarnation, Reason: reason}, nil)
	}
}

// died notes and passes on that a process has failed. The caller holds place.mu.
func (c *client) reportFailed(ev wire.EventBody, from *link) {
	ev.Reason = wire.CutReason(ev.Reason)
	if ev.Rank == c.id.Proc.Rank {
		c.isolate(ev)
		return
	}
	// Who has not met it, and has heard from the launcher, hears which life it was from those who
	// have met it.
	if life := c.peerOf(ev.Rank).incarnation; ev.Nonce == 0 && life != 0 {
		ev.Nonce, from = life, nil
	}
	if before, known := c.failures[ev.Rank]; known && (before.Nonce != 0 || ev.Nonce == 0) {
		return
	}
	c.failures[ev.Rank] = ev
	c.log.Info("process failed", "rank", ev.Rank, "reason", ev.Reason)
	// The news goes first: who then sees a fence fail knows of it already.
	c.events.Add(c.publicEvent(ev))
	c.flood(ev, from)
	c.endPeer(c.peerOf(ev.Rank))
}

// ends releases those who wait for a process that will never come. The caller holds
// place.mu.
func (c *client) endPeer(p *peer) {
	p.state, p.uncertainCalls, p.waitingCalls, p.lossyFrames = peerEnded, nil, nil, nil
	c.expelPeer(p)
	var calls []*call
	c.pendingCalls.forEach(func(call *call) {
		if call.target == p.rank {
			calls = append(calls, call)
		}
	})
	for _, call := range calls {
		c.failCall(call, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{p.rank}})
	}
	c.joins.ProcEnded(p.rank)
	c.failRounds(p.rank)
	c.updateDialing(p)
	c.scheduleUpkeep()
}

// setIncarnation records the incarnation of a Life message. A second connection may deliver it late, after the
// incarnation has ended.
func (c *client) setIncarnation(rank uint32, nonce uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peerOf(rank)
	if p.state == peerEnded || nonce == 0 || nonce == c.leftNonces[rank] {
		return
	}
	c.flushLeft() // before it has another one
	p.incarnation, p.hasLeft = nonce, false
}

// left reports that an incarnation of p has ended in good order. The caller holds place.mu.
func (c *client) reportLeft(p *peer, nonce uint64) {
	if nonce == 0 || c.isClosed {
		return
	}
	ev := wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: p.rank, Nonce: nonce}
	p.hasLeft = p.hasLeft || p.incarnation == nonce
	if !c.recordIfNew(ev) {
		return
	}
	c.leftNonces[p.rank] = nonce
	c.events.Add(c.publicEvent(ev))
	c.scheduleUpkeep()
	if c.unsentLeft = append(c.unsentLeft, ev); len(c.unsentLeft) == 1 {
		c.runAfter(leftBatchDelay, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.flushLeft()
		})
	}
}

// flushLeft sends what left has noted. The caller holds place.mu.
func (c *client) flushLeft() {
	for _, ev := range c.unsentLeft {
		c.flood(ev, nil)
	}
	c.unsentLeft = nil
}

// introduce tells the other end of a new connection what it should know. The caller holds
// place.mu.
func (c *client) sendKnownEvents(l *link) {
	if c.incarnation != 0 {
		l.send(encodeFrame(wire.Life, 0, wire.LifeBody{Nonce: c.incarnation}))
	}
	for _, ev := range c.failures {
		if ev.Rank != l.rank {
			l.send(encodeFrame(wire.Event, 0, ev))
		}
	}
	for _, n := range c.recentEvents { // what it has heard already it passes over
		if n.subject != l.rank {
			l.sendLossy(n.frame)
		}
	}
	c.sendRevocations(l)
}

// resendKnownEvents is introduce on a connection in place of one that broke, which may have held the end of an
// incarnation, this process's own or one that it passed on. The caller holds place.mu.
func (c *client) resendKnownEvents(l *link) {
	c.sendKnownEvents(l)
	for rank, nonce := range c.leftNonces {
		if rank != l.rank {
			l.send(encodeFrame(wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: rank, Nonce: nonce}))
		}
	}
}

// Begin implements bootstrap.EventSource.
func (c *client) Begin(nonce uint64) { c.announceIncarnation(nonce) }

// End implements bootstrap.EventSource.
func (c *client) End() { c.announceIncarnation(0) }

func (c *client) announceIncarnation(nonce uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed || c.incarnation == nonce {
		return
	}
	// The end names its incarnation, because a second connection may deliver it after the next one has begun.
	frame := encodeFrame(wire.Life, 0, wire.LifeBody{Nonce: nonce})
	if nonce == 0 {
		frame = encodeFrame(wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: c.id.Proc.Rank, Nonce: c.incarnation})
		c.rememberRecent(c.id.Proc.Rank, frame)
		c.leftNonces[c.id.Proc.Rank] = c.incarnation
	}
	c.incarnation = nonce
	for l := range c.links {
		l.send(frame)
	}
}

// GiveUp implements bootstrap.EventSource. The news is lost if the process has closed.
func (c *client) GiveUp(to framework.Proc, nonce uint64, reason string) {
	if to.Namespace != c.id.Proc.Namespace || int64(to.Rank) >= int64(c.id.Size) || to == c.id.Proc {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	frame := encodeFrame(wire.GiveUp, 0, wire.GiveUpBody{Rank: to.Rank, Nonce: nonce, Reason: wire.CutReason(reason)})
	c.sendLossyTo(to.Rank, frame)
	c.checkPeer(c.peerOf(to.Rank))
}

// sendLossyTo sends a frame that may be lost, and connects to the process first if necessary. The
// caller holds place.mu.
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

// receiveDisconnect is the other end of GiveUp.
func (c *client) receiveDisconnect(from uint32, b wire.GiveUpBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Nonce == c.incarnation && !c.isClosed && c.peerOf(from).state != peerEnded {
		c.events.Add(bootstrap.Event{Kind: bootstrap.GivenUp, Proc: c.id.Procs([]uint32{from})[0], Nonce: c.peerOf(from).incarnation, Reason: b.Reason})
	}
}

// Broke implements bootstrap.EventSource. Who is not of this job hears nothing.
func (c *client) Broke(comm cid.Extended, members []framework.Proc, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ev := wire.EventBody{Kind: uint8(bootstrap.Broken), Rank: c.id.Proc.Rank, Nonce: c.incarnation, Comm: comm.Bytes(), Reason: wire.CutReason(reason)}
	if !c.isClosed && c.recordIfNew(ev) {
		c.floodBroken(wire.BrokenBody{Event: ev, Members: wire.MakeRuns(c.jobMembers(members))}, nil)
	}
}

// ours returns the processes of this job.
func (c *client) jobMembers(members []framework.Proc) []framework.Proc {
	return slices.DeleteFunc(slices.Clone(members), func(p framework.Proc) bool { return p.Namespace != c.id.Proc.Namespace })
}

// OnEvent implements bootstrap.EventSource.
func (c *client) OnEvent(f func(bootstrap.Event)) { c.events.Set(f) }
