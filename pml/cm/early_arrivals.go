package cm

import "github.com/ferrympi/ferry/cid"

// early is what one process has said too soon: for communicators that are not here yet,
// or, as a goodbye, before its card came. It goes with its process.
type early struct {
	kept map[earlyKey]control
	lost bool // some of it may have been dropped
}

// earlyKey is what an endpoint of a process says once only. A goodbye has no communicator.
type earlyKey struct {
	to   cid.EndpointID
	from uint16
	typ  byte
}

// mostEarly is how many control messages of a process are kept, and of all those
// together whose card has not come (about 100 bytes each): there are programs that make
// 40,000 communicators at once.
const mostEarly = 1 << 16

// unknownPeers are processes that have sent something before their card has come.
type unknownPeers struct {
	early map[uint64]*early // by nonce
	n     int               // messages kept
	lost  bool              // some of one was dropped
}

// keepEarly keeps a control message that came too early, once. One of a process that has
// left or failed is of no use. Lock held.
func (m *Module) keepEarly(f *control) {
	p := m.procs.ByNonce(f.from)
	var e *early
	if p != nil {
		if p.Err != nil {
			return
		}
		e = &p.early
		m.earlySenders[p] = struct{}{}
	} else if e = m.unknownPeers.early[f.from]; e == nil {
		e = new(early)
	}
	key := earlyKey{f.id, f.endpoint, f.typ}
	if _, again := e.kept[key]; again {
		return
	}
	n, lost := len(e.kept), &e.lost
	if p == nil {
		n, lost = m.unknownPeers.n, &m.unknownPeers.lost
	}
	if n >= mostEarly {
		if !*lost {
			m.env.Logger.Warn("pml cm: control messages for communicators that are not here yet are dropped: too many; the ids are told again when they are made", "kept", mostEarly)
		}
		*lost = true
		if p != nil {
			p.Stats.Dropped++
		}
		return
	}
	if e.kept == nil {
		e.kept = map[earlyKey]control{}
	}
	e.kept[key] = *f
	if p == nil {
		m.unknownPeers.early[f.from] = e
		m.unknownPeers.n++
	}
}

// meet gives a process whose card has come what it had said before. Lock held.
func (m *Module) meet(p *proc) {
	s := &m.unknownPeers
	if e := s.early[p.Life.Nonce]; e != nil {
		p.early = *e
		s.n -= len(e.kept)
		delete(s.early, p.Life.Nonce)
	}
	if p.early.lost = s.lost; p.Err != nil {
		p.early = early{}
	}
	if len(p.early.kept) > 0 || p.early.lost {
		m.earlySenders[p] = struct{}{}
	}
	if f, ok := p.early.kept[earlyKey{typ: controlGoodbye}]; ok {
		m.goodbye(p, &f)
	}
}

// dropEarly drops the messages that are kept of a process.
func (p *proc) dropEarly() {
	p.early = early{}
	delete(p.m.earlySenders, p)
}

// takeEarly takes what the members have said of a new communicator. Its id is told to those
// whose request for it may have been dropped; who has closed there already answers. Lock
// held.
func (c *comm) takeEarly() {
	m := c.m
	if m.unknownPeers.lost { // Requests of any member may have been dropped.
		for rank := range c.Len() {
			c.Proc(rank)
		}
	}
	for p := range m.earlySenders {
		for _, rank := range c.Ranks(p) {
			c.takeEarlyOf(p, rank)
		}
		if len(p.early.kept) == 0 && !p.early.lost {
			delete(m.earlySenders, p)
		}
	}
}

// takeEarlyOf is takeEarly for one member.
func (c *comm) takeEarlyOf(p *proc, rank int) {
	for _, typ := range [...]byte{controlRequest, controlClosed} {
		if len(p.early.kept) == 0 {
			break
		}
		key := earlyKey{c.ID(), c.EndpointOf(rank), typ}
		if f, ok := p.early.kept[key]; ok {
			delete(p.early.kept, key)
			c.m.takeControl(&f)
		}
	}
	if p.early.lost && rank != c.Spec.Rank && !c.Spec.IsElsewhere(rank) {
		c.peer(rank).tell(controlReply)
	}
}

// countEarly returns the number of control messages that are kept. Lock held.
func (m *Module) countEarly() int {
	n := m.unknownPeers.n
	for _, p := range m.procs.Lives {
		n += len(p.early.kept)
	}
	return n
}
