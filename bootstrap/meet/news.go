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
	// leftDelay is how long the news that lives are over in good order waits for more of
	// its kind. It concerns who is late only: at the end of a job all close at once, and
	// nobody is left then who would have to hear of all others.
	leftDelay = 20 * time.Millisecond

	// leastTold is how much news is remembered at least, and toldEach how much more for each
	// process. What is told twice does no harm.
	leastTold, toldEach = 256, 4

	// mostParcel is how much news waits for a connection to one process.
	mostParcel = 16

	// mostRecent is how much news is told to those who connect afterwards, where members
	// don't meet by their constructs (Exchange) and connect when those are over.
	mostRecent = 256
)

// recent is news with whom it is about.
type recent struct {
	about uint32
	frame []byte
}

// event is ev as this client's user sees it.
func (c *client) event(ev wire.EventBody) bootstrap.Event {
	return bootstrap.Event{Kind: bootstrap.EventKind(ev.Kind), Proc: c.id.Procs([]uint32{ev.Rank})[0], Nonce: ev.Nonce,
		Comm: cid.FromBytes(ev.Comm), Reason: ev.Reason}
}

// isNew reports whether ev has not been heard, and remembers it. The caller holds place.mu.
func (c *client) isNew(ev wire.EventBody) bool {
	ev.Reason = ""
	if ev.Kind == uint8(bootstrap.Broken) { // whoever says so
		ev.Rank, ev.Nonce = 0, 0
	}
	if _, told := c.told[ev]; told {
		return false
	}
	if _, told := c.toldBefore[ev]; told {
		return false
	}
	if len(c.told) >= leastTold+toldEach*int(c.id.Size) {
		c.told, c.toldBefore = c.toldBefore, c.told
		clear(c.told)
	}
	c.told[ev] = struct{}{}
	return true
}

// flood sends news to all who are connected, but not to whom it came from nor to whom it is
// about. The caller holds place.mu.
func (c *client) flood(ev wire.EventBody, from *link) {
	c.spread(frameOf(wire.Event, 0, ev), ev.Rank, from, (*link).sendFrame)
}

// floodBroken is flood for what concerns some only, who may be found through others. It is
// lost where what was sent before is not read.
func (c *client) floodBroken(b wire.BrokenBody, from *link) {
	frame, err := wire.Encode(wire.Told, 0, b)
	if err != nil {
		c.log.Warn("bootstrap meet: the news of a broken communicator is too large", "error", err)
		return
	}
	c.spread(frame, b.Event.Rank, from, func(l *link, frame []byte) { l.news(frame) })
}

func (c *client) spread(frame []byte, about uint32, from *link, send func(*link, []byte)) {
	c.remember(about, frame)
	for _, p := range c.peers {
		if len(p.links) > 0 && p.rank != about && (from == nil || p.rank != from.rank) {
			send(p.links[0], frame)
		}
	}
}

// remember keeps news for those who connect afterwards. The caller holds place.mu.
func (c *client) remember(about uint32, frame []byte) {
	if c.exchange == nil { // who is to hear of it is connected
		return
	}
	if len(c.recent) == mostRecent {
		c.recent = slices.Delete(c.recent, 0, 1)
	}
	c.recent = append(c.recent, recent{about, frame})
}

// heard takes in news that another process passes on.
func (c *client) heard(ev wire.EventBody, from *link) error {
	if int64(ev.Rank) >= int64(c.id.Size) {
		return framework.ErrRank
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	switch bootstrap.EventKind(ev.Kind) {
	case bootstrap.ProcDied:
		c.died(ev, from)
	case bootstrap.ProcLeft:
		p := c.peerOf(ev.Rank)
		if from.rank == ev.Rank {
			c.left(p, ev.Nonce)
		} else if c.isNew(ev) {
			if p.life == 0 || p.life == ev.Nonce {
				p.left = true
			}
			c.lastLeft[ev.Rank] = ev.Nonce
			c.events.Add(c.event(ev))
			c.flood(ev, from)
			c.tidy()
		}
	default:
		c.log.Warn("bootstrap meet: unknown event", "kind", ev.Kind, "from", c.procName(from.rank))
	}
	return nil
}

// heardBroken takes in and passes on that a communicator's collectives can't go on. The caller
// holds place.mu.
func (c *client) heardBroken(b wire.BrokenBody, from *link) {
	if !c.isNew(b.Event) {
		return
	}
	if b.Members.Index(c.id.Proc.Rank) >= 0 {
		c.events.Add(c.event(b.Event))
	}
	c.floodBroken(b, from)
}

// fromLauncher takes in what a Watcher says.
func (c *client) fromLauncher(e bootstrap.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case e.Kind == bootstrap.ServerLost || e.Kind == bootstrap.Dump:
		c.events.Add(e)
	case e.Kind == bootstrap.ProcDied && e.Proc.Namespace == c.id.Proc.Namespace && int64(e.Proc.Rank) < int64(c.id.Size):
		c.died(wire.EventBody{Kind: uint8(e.Kind), Rank: e.Proc.Rank, Nonce: e.Nonce, Reason: e.Reason}, nil)
	}
}

// over draws the conclusion that a process has ended. It has failed unless it had said
// goodbye. The caller holds place.mu.
func (c *client) over(p *peer, reason string) {
	switch {
	case p.gone:
	case p.absent || !p.met && (p.left || !c.fellow(p.rank)):
		c.ends(p)
	default:
		c.died(wire.EventBody{Kind: uint8(bootstrap.ProcDied), Rank: p.rank, Nonce: p.life, Reason: reason}, nil)
	}
}

// died notes and passes on that a process has failed. The caller holds place.mu.
func (c *client) died(ev wire.EventBody, from *link) {
	ev.Reason = wire.CutReason(ev.Reason)
	if ev.Rank == c.id.Proc.Rank {
		c.isolate(ev)
		return
	}
	// Who has not met it, and has heard from the launcher, hears which life it was from those who
	// have met it.
	if life := c.peerOf(ev.Rank).life; ev.Nonce == 0 && life != 0 {
		ev.Nonce, from = life, nil
	}
	if before, known := c.dead[ev.Rank]; known && (before.Nonce != 0 || ev.Nonce == 0) {
		return
	}
	c.dead[ev.Rank] = ev
	c.log.Info("process failed", "rank", ev.Rank, "reason", ev.Reason)
	// The news goes first: who then sees a fence fail knows of it already.
	c.events.Add(c.event(ev))
	c.flood(ev, from)
	c.ends(c.peerOf(ev.Rank))
}

// ends releases those who wait for a process that will never come. The caller holds
// place.mu.
func (c *client) ends(p *peer) {
	p.gone, p.suspect, p.doubtful, p.waiting, p.parcel = true, false, nil, nil, nil
	c.expel(p)
	var calls []*call
	c.answers.each(func(call *call) {
		if call.rank == p.rank {
			calls = append(calls, call)
		}
	})
	for _, call := range calls {
		c.failMissing(call, wire.FailureBody{Code: wire.CodeMissing, Failed: []uint32{p.rank}})
	}
	c.joins.ProcEnded(p.rank)
	c.endRounds(p.rank)
	c.review(p)
	c.tidy()
}

// lifeOf records the incarnation of a Life message. A second connection may deliver it late, after the
// incarnation has ended.
func (c *client) lifeOf(rank uint32, nonce uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peerOf(rank)
	if p.gone || nonce == 0 || nonce == c.lastLeft[rank] {
		return
	}
	c.sayLeft() // before it has another one
	p.life, p.left = nonce, false
}

// left reports that an incarnation of p has ended in good order. The caller holds place.mu.
func (c *client) left(p *peer, nonce uint64) {
	if nonce == 0 || c.closed {
		return
	}
	ev := wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: p.rank, Nonce: nonce}
	p.left = p.left || p.life == nonce
	if !c.isNew(ev) {
		return
	}
	c.lastLeft[p.rank] = nonce
	c.events.Add(c.event(ev))
	c.tidy()
	if c.unsaid = append(c.unsaid, ev); len(c.unsaid) == 1 {
		c.after(leftDelay, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sayLeft()
		})
	}
}

// sayLeft sends what left has noted. The caller holds place.mu.
func (c *client) sayLeft() {
	for _, ev := range c.unsaid {
		c.flood(ev, nil)
	}
	c.unsaid = nil
}

// introduce tells the other end of a new connection what it should know. The caller holds
// place.mu.
func (c *client) introduce(l *link) {
	if c.life != 0 {
		l.send(frameOf(wire.Life, 0, wire.LifeBody{Nonce: c.life}))
	}
	for _, ev := range c.dead {
		if ev.Rank != l.rank {
			l.send(frameOf(wire.Event, 0, ev))
		}
	}
	for _, n := range c.recent { // what it has heard already it passes over
		if n.about != l.rank {
			l.news(n.frame)
		}
	}
	c.introduceRevoked(l)
}

// introduceAgain is introduce on a connection in place of one that broke, which may have held the end of an
// incarnation, this process's own or one that it passed on. The caller holds place.mu.
func (c *client) introduceAgain(l *link) {
	c.introduce(l)
	for rank, nonce := range c.lastLeft {
		if rank != l.rank {
			l.send(frameOf(wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: rank, Nonce: nonce}))
		}
	}
}

// Begin implements bootstrap.EventSource.
func (c *client) Begin(nonce uint64) { c.tellLife(nonce) }

// End implements bootstrap.EventSource.
func (c *client) End() { c.tellLife(0) }

func (c *client) tellLife(nonce uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.life == nonce {
		return
	}
	// The end names its incarnation, because a second connection may deliver it after the next one has begun.
	frame := frameOf(wire.Life, 0, wire.LifeBody{Nonce: nonce})
	if nonce == 0 {
		frame = frameOf(wire.Event, 0, wire.EventBody{Kind: uint8(bootstrap.ProcLeft), Rank: c.id.Proc.Rank, Nonce: c.life})
		c.remember(c.id.Proc.Rank, frame)
		c.lastLeft[c.id.Proc.Rank] = c.life
	}
	c.life = nonce
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
	frame := frameOf(wire.GiveUp, 0, wire.GiveUpBody{Rank: to.Rank, Nonce: nonce, Reason: wire.CutReason(reason)})
	c.sendLossy(to.Rank, frame)
	c.doubt(c.peerOf(to.Rank))
}

// sendLossy sends a frame that may be lost, and connects to the process first if necessary. The
// caller holds place.mu.
func (c *client) sendLossy(rank uint32, frame []byte) {
	switch p := c.peerOf(rank); {
	case len(p.links) > 0:
		if !p.links[0].news(frame) {
			c.dropped.Add(1)
		}
	case !p.absent && !p.gone && !c.closed && len(p.parcel) < mostParcel:
		p.parcel = append(p.parcel, frame)
		c.review(p)
	default:
		c.dropped.Add(1)
	}
}

// givenUp is the other end of GiveUp.
func (c *client) givenUp(from uint32, b wire.GiveUpBody) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.Nonce == c.life && !c.closed && !c.peerOf(from).gone {
		c.events.Add(bootstrap.Event{Kind: bootstrap.GivenUp, Proc: c.id.Procs([]uint32{from})[0], Nonce: c.peerOf(from).life, Reason: b.Reason})
	}
}

// Broke implements bootstrap.EventSource. Who is not of this job hears nothing.
func (c *client) Broke(comm cid.Extended, members []framework.Proc, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ev := wire.EventBody{Kind: uint8(bootstrap.Broken), Rank: c.id.Proc.Rank, Nonce: c.life, Comm: comm.Bytes(), Reason: wire.CutReason(reason)}
	if !c.closed && c.isNew(ev) {
		c.floodBroken(wire.BrokenBody{Event: ev, Members: wire.MakeRuns(c.ours(members))}, nil)
	}
}

// ours returns the processes of this job.
func (c *client) ours(members []framework.Proc) []framework.Proc {
	return slices.DeleteFunc(slices.Clone(members), func(p framework.Proc) bool { return p.Namespace != c.id.Proc.Namespace })
}

// OnEvent implements bootstrap.EventSource.
func (c *client) OnEvent(f func(bootstrap.Event)) { c.events.Set(f) }
