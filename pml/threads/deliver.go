package threads

import (
	"runtime"
	"slices"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
)

// Delivery moves messages from a rank's ring to its queues, under the rank's lock.

// drain takes cells out of the ring and the overflow list, and returns their number. After
// ringCells cells it returns, so that it ends however fast the producers are.
func (r *Rank) drain() (n int) {
	if r.isDraining {
		return 0
	}
	r.isDraining = true
	for n < ringCells {
		if c := r.peek(); c != nil {
			r.consume(c)
			n++
			continue
		}
		list := r.takeSpilled()
		if list == nil {
			break
		}
		for i := range list {
			r.pressureBytes.Add(-messageCost)
			r.take(&list[i].cell, list[i].large)
		}
		n += len(list)
		r.recycle(list)
	}
	r.release()
	r.isDraining = false
	return n
}

// drainTo drains until the backlog is consumed or the next cell is not published.
func (r *Rank) drainTo(b backlog) (n int) {
	for !r.isConsumed(b) {
		k := r.drain()
		if k == 0 {
			break
		}
		n += k
	}
	return n
}

// drainAll drains until all cells that were claimed before the call are consumed. It waits for
// the producers of claimed cells.
func (r *Rank) drainAll() (n int) {
	for b := r.backlog(); !r.isDraining; runtime.Gosched() {
		n += r.drainTo(b)
		if r.isConsumed(b) {
			break
		}
	}
	return n
}

// consume takes the cell that peek has returned.
func (r *Rank) consume(c *cell) {
	var large *message
	if c.header().kind() != kindInline {
		large = r.pointer()
	}
	r.take(c, large)
	r.advance()
}

// take processes a cell.
func (r *Rank) take(c *cell, large *message) {
	h := c.header()
	switch h.kind() {
	case kindInline, kindEager, kindOffer:
		in := arrival{plane: pml.Plane(h.plane()), source: int(c.source), tag: int(c.tag), largeMessage: large}
		switch {
		case large == nil:
			in.payload = c.payload[:h.length()]
		case large.offer == nil:
			in.payload = large.payload
		}
		r.route(c.teamCommID, &in)
	case kindWithdrawn:
		r.forget(large)
	case kindAssist:
		r.engine.Defer((*fromBack)(large.offer))
	case kindReceived:
		o := large.offer
		receive := o.receive
		delete(r.activeTransfers, o)
		o.drop()
		receive.finish()
	case kindReturn:
		r.returnOffer(large)
	case kindSent, kindDropped, kindReturned:
		o := large.offer
		s := o.send
		o.drop()
		switch {
		case h.kind() == kindReturned, h.kind() == kindDropped && s.isReturning:
			s.Status = s.c.WithdrawnStatus(s.plane)
		case h.kind() == kindDropped && s.isSynchronous:
			s.Status.Err = s.c.OperationError(s.plane, s.droppedError())
		}
		s.sent()
	}
}

// arrival is a message that leaves the ring or the early arrivals.
type arrival struct {
	plane        pml.Plane
	source, tag  int
	payload      []byte   // unless it is an offer
	largeMessage *message // eager message or offer
}

// eager reports whether the payload has come with the message.
func (in *arrival) eager() bool { return in.largeMessage == nil || in.largeMessage.offer == nil }

// route delivers a message to its communicator.
func (r *Rank) route(id uint64, in *arrival) {
	c := r.lastComm
	if c == nil || c.shared.teamCommID != id {
		if c = r.commByID[id]; c == nil {
			r.keepEarly(id, in)
			return
		}
		r.lastComm = c
	}
	c.arrive(in)
}

// arrive delivers a message to the receive that it matches, or queues it.
func (c *comm) arrive(in *arrival) {
	p := c.peers.get(in.source)
	if !in.eager() {
		c.arriveOffer(p, in)
		return
	}
	if node := c.queues[in.plane].Arrive(&p.match[in.plane], in.tag); node != nil {
		node.Owner.deliver(in.source, in.tag, in.payload)
		if in.largeMessage != nil {
			in.largeMessage.free()
		}
		return
	}
	c.keep(p, in)
}

// arriveOffer is arrive for an offer, which may be withdrawn meanwhile.
func (c *comm) arriveOffer(p *peer, in *arrival) {
	o := in.largeMessage.offer
	if !o.take(offerHeld) {
		return
	}
	node := c.queues[in.plane].Arrive(&p.match[in.plane], in.tag)
	if node != nil {
		o.state.Store(offerMatched)
		node.Owner.accept(o)
		return
	}
	in.largeMessage.plane = in.plane
	if c.watchers[in.plane] == nil && !c.IsClosed() {
		o.state.Store(offerUnmatched)
	}
	c.keep(p, in)
}

// keep stores a message that has matched no receive.
func (c *comm) keep(p *peer, in *arrival) {
	r := c.rank
	w := c.watchers[in.plane]
	if c.IsClosed() && w == nil {
		r.dropArrival(in)
		return
	}
	if w != nil && in.eager() && w.Eager(in.source, in.tag, in.payload) {
		if in.largeMessage != nil {
			in.largeMessage.free()
		}
		return
	}
	m := in.message()
	m.c, m.plane = c, in.plane
	r.stats.Unexpected++
	if w != nil {
		c.passToWatcher(m, w)
		return
	}
	r.pressureBytes.Add(m.cost())
	m.isQueued = true
	c.queues[in.plane].AddUnexpected(&p.match[in.plane], &m.matchEntry)
	if len(c.blockedProbes) > 0 {
		c.wakeProbes()
	}
}

// message returns the arrival as a separate message.
func (in *arrival) message() *message {
	m := in.largeMessage
	if m == nil {
		m = newMessage(len(in.payload))
		copy(m.payload, in.payload)
	}
	m.matchEntry.Source, m.matchEntry.Tag = in.source, in.tag
	return m
}

// unqueue takes a message out of the unexpected queue.
func (c *comm) unqueue(m *message) {
	c.queues[m.plane].RemoveUnexpected(&m.matchEntry)
	c.unqueued(m)
}

// unqueued accounts for a message that match has taken out of the queue.
func (c *comm) unqueued(m *message) {
	c.rank.pressureBytes.Add(-m.cost())
	m.isQueued = false
}

// discard drops a message that is in no queue. The send of an offer completes, with an error if
// it is synchronous.
func (r *Rank) discard(m *message) {
	if m.offer != nil && !m.offer.take(offerMatched) {
		return // It was withdrawn, and another cell of the sender follows.
	}
	if m.claimed == nil {
		r.stats.Dropped++
	}
	r.dispose(m, kindDropped)
}

// dispose frees a message whose payload is not needed anymore. The PML below drops its own. An offer has matched. Its sender
// gets a cell of kind end, which is kindSent, kindDropped or kindReturned.
func (r *Rank) dispose(m *message, end kind) {
	switch {
	case m.claimed != nil:
		r.engine.Defer((*dropBelow)(m))
		return
	case m.offer == nil:
		m.free()
		return
	}
	from := m.offer.senderRank
	from.notify(end, m)
	r.deliverLater(from)
}

func (r *Rank) dropArrival(in *arrival) {
	if in.largeMessage == nil {
		r.stats.Dropped++
		return
	}
	r.discard(in.largeMessage)
}

// forget removes an offer that its sender has withdrawn.
func (r *Rank) forget(m *message) {
	if m.isQueued {
		m.c.unqueue(m)
	} else if i := slices.Index(r.earlyArrivals, m); i >= 0 {
		r.earlyArrivals = slices.Delete(r.earlyArrivals, i, i+1)
		r.pressureBytes.Add(-m.cost())
	}
	m.offer.drop()
}

// keepEarly queues an early arrival.
func (r *Rank) keepEarly(id uint64, in *arrival) {
	if !r.team.mayOpen(r, id) {
		r.dropArrival(in)
		return
	}
	m := in.message()
	m.earlyCommID, m.plane = id, in.plane
	r.pressureBytes.Add(m.cost())
	r.earlyArrivals = append(r.earlyArrivals, m)
}

// deliverEarly delivers the early arrivals of a communicator that was added.
func (r *Rank) deliverEarly(c *comm) {
	r.earlyArrivals = slices.DeleteFunc(r.earlyArrivals, func(m *message) bool {
		if m.earlyCommID != c.shared.teamCommID {
			return false
		}
		r.pressureBytes.Add(-m.cost())
		in := arrival{plane: m.plane, source: m.matchEntry.Source, tag: m.matchEntry.Tag, largeMessage: m}
		if m.offer == nil {
			in.payload = m.payload
		}
		c.arrive(&in)
		return true
	})
}

// find returns the message that a receive would get now, without those that were withdrawn.
func (c *comm) find(src, tag int, plane pml.Plane) *message {
	var mp *match.Peer[receive, message]
	if src != pml.AnySource {
		mp = &c.peers.get(src).match[plane]
	}
	for {
		found := c.queues[plane].Find(mp, src, tag)
		if found == nil {
			return nil
		}
		m := found.Owner
		if m.offer == nil || !m.offer.isWithdrawn() {
			return m
		}
		c.unqueue(m)
	}
}
