package cm

import "github.com/ferrympi/ferry/cid"

// earlyArrivals holds the control messages of one process for communicators that do not
// exist here yet, and its goodbye if that came before its card. They are dropped when
// the process ends.
type earlyArrivals struct {
	controlsByKey map[earlyKey]control
	// isIncomplete is set if some may have been dropped.
	isIncomplete bool
}

// earlyKey identifies a kind of message of one endpoint. A goodbye has no communicator.
type earlyKey struct {
	receiverHandle cid.EndpointID
	senderEndpoint uint16
	typ            byte
}

// maxEarly bounds the control messages that are queued for one process, and those of all
// unknown peers together (about 100 bytes each). Some programs create 40,000
// communicators at once.
const maxEarly = 1 << 16

// unknownPeers holds the early arrivals of processes whose card has not come.
type unknownPeers struct {
	arrivalsByNonce map[uint64]*earlyArrivals
	arrivalCount    int
	// isIncomplete is set if messages of any unknown peer were dropped.
	isIncomplete bool
}

// queueEarly queues an early control message, unless an equal one is queued or its
// sender has ended. Lock held.
func (m *Module) queueEarly(f *control) {
	p := m.procs.ByNonce(f.senderNonce)
	var e *earlyArrivals
	if p != nil {
		if p.Err != nil {
			return
		}
		e = &p.earlyArrivals
		m.earlySenders[p] = struct{}{}
	} else if e = m.unknownPeers.arrivalsByNonce[f.senderNonce]; e == nil {
		e = new(earlyArrivals)
	}
	key := earlyKey{f.receiverHandle, f.senderEndpoint, f.typ}
	if _, isQueued := e.controlsByKey[key]; isQueued {
		return
	}
	n, lost := len(e.controlsByKey), &e.isIncomplete
	if p == nil {
		n, lost = m.unknownPeers.arrivalCount, &m.unknownPeers.isIncomplete
	}
	if n >= maxEarly {
		if !*lost {
			m.env.Logger.Warn("pml cm: early-arrival queue is full: dropping control messages; their senders get the ids when the communicators are created", "queued", maxEarly)
		}
		*lost = true
		if p != nil {
			p.Stats.Dropped++
		}
		return
	}
	if e.controlsByKey == nil {
		e.controlsByKey = map[earlyKey]control{}
	}
	e.controlsByKey[key] = *f
	if p == nil {
		m.unknownPeers.arrivalsByNonce[f.senderNonce] = e
		m.unknownPeers.arrivalCount++
	}
}

// adoptEarly moves the early arrivals of an unknown peer to p, whose card has come. Lock held.
func (m *Module) adoptEarly(p *proc) {
	s := &m.unknownPeers
	if e := s.arrivalsByNonce[p.Incarnation.Nonce]; e != nil {
		p.earlyArrivals = *e
		s.arrivalCount -= len(e.controlsByKey)
		delete(s.arrivalsByNonce, p.Incarnation.Nonce)
	}
	if p.earlyArrivals.isIncomplete = s.isIncomplete; p.Err != nil {
		p.earlyArrivals = earlyArrivals{}
	}
	if len(p.earlyArrivals.controlsByKey) > 0 || p.earlyArrivals.isIncomplete {
		m.earlySenders[p] = struct{}{}
	}
	if f, ok := p.earlyArrivals.controlsByKey[earlyKey{typ: controlGoodbye}]; ok {
		m.handleGoodbye(p, &f)
	}
}

// dropEarly drops the early arrivals of p.
func (p *proc) dropEarly() {
	p.earlyArrivals = earlyArrivals{}
	delete(p.m.earlySenders, p)
}

// deliverEarly handles the early arrivals for a new communicator. Members of which a
// request may have been dropped get its id unasked. Lock held.
func (c *comm) deliverEarly() {
	m := c.m
	if m.unknownPeers.isIncomplete { // Learn all cards, since any member may have sent a request.
		for rank := range c.Len() {
			c.Proc(rank)
		}
	}
	for p := range m.earlySenders {
		for _, rank := range c.Ranks(p) {
			c.deliverEarlyFrom(p, rank)
		}
		if len(p.earlyArrivals.controlsByKey) == 0 && !p.earlyArrivals.isIncomplete {
			delete(m.earlySenders, p)
		}
	}
}

// deliverEarlyFrom is deliverEarly for one member.
func (c *comm) deliverEarlyFrom(p *proc, rank int) {
	for _, typ := range [...]byte{controlRequest, controlClosed} {
		if len(p.earlyArrivals.controlsByKey) == 0 {
			break
		}
		key := earlyKey{c.ID(), c.EndpointOf(rank), typ}
		if f, ok := p.earlyArrivals.controlsByKey[key]; ok {
			delete(p.earlyArrivals.controlsByKey, key)
			c.m.handleControl(&f)
		}
	}
	if p.earlyArrivals.isIncomplete && rank != c.Spec.Rank && !c.Spec.IsElsewhere(rank) {
		c.peer(rank).notify(controlReply)
	}
}

// countEarly returns the number of queued control messages. Lock held.
func (m *Module) countEarly() int {
	n := m.unknownPeers.arrivalCount
	for _, p := range m.procs.Incarnations {
		n += len(p.earlyArrivals.controlsByKey)
	}
	return n
}
