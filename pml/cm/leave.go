package cm

import (
	"context"
	"slices"
	"time"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// How others hear that a session is over.
//
// A network does not tell that a process has closed its last session: what is sent to
// it afterwards is tried for ever. So a process says goodbye, when all that it has
// sent is on its way or the patience for that has ended, to each with whom it has
// exchanged anything over the network.
// What is sent to it later ends with framework.ErrPeerClosed, and so does, some milliseconds
// after, what is on its way still: it may have been received, and the goodbye have
// overtaken the network's word of that. Nobody answers, and nobody is waited for.
//
// A goodbye may overtake messages, and names their number. Receives go on until that
// many are accounted for: received, or taken out of the network. Those that nobody has
// asked for may lie there under any communicator, and are taken out too (see pull).
// Then receives from the process end with an error. So they do if nothing comes any
// more: what it has sent to a communicator that was never made here can't be found.
//
// The card of a process's next life says that this one is over, too, without a number.

// mostSought is how many planes one search goes through.
const mostSought = 64

// mostVain is how many searches for missing messages, base.LastGap apart, may find nothing
// more in a row: five seconds. Messages are later than a goodbye by milliseconds, unless
// what a network resends counts. Tests change it.
var mostVain = 20

// goodbyePatience is how long a session that closes waits until its goodbyes are on
// their way. There is no room for one to a peer that has left without a word, nor will
// there be.
const goodbyePatience = 200 * time.Millisecond

// Flush implements pml.Module. What did not leave in time keeps nobody from being told
// that the session is over. A message that is on its way still counts: it may arrive.
func (m *Module) Flush(ctx context.Context) error {
	err := pml.Until(ctx, m.engine, m.idle)
	m.engine.Lock()
	m.sayGoodbye()
	m.engine.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyePatience)
	defer cancel()
	_ = pml.Until(ctx, m.engine, m.idle) // who does not get it has left
	return err
}

// idle reports whether nothing is left that only this process can bring on its way.
// Lock held.
func (m *Module) idle() bool { return m.sends == 0 && m.mtl.Idle() }

// sayGoodbye tells all with whom anything was exchanged. Lock held.
func (m *Module) sayGoodbye() {
	sent := map[*proc]uint64{}
	for _, c := range m.comms.ByID {
		for _, p := range c.peers.All() {
			sent[p.proc] += p.sentAll()
		}
	}
	for _, p := range m.procs.Lives {
		n := p.sent + sent[p]
		if p.Life == m.env.Self || p.Err != nil || !p.talked && n+p.Received+p.Aside == 0 {
			continue
		}
		p.control(control{typ: controlGoodbye, rank: anyRank, sent: cid.Counts{n}}, nil)
	}
}

// sentAll is the number of messages to a member, on all planes.
func (p *peer) sentAll() (n uint64) {
	for _, k := range p.tally.Sent {
		n += k
	}
	return n
}

// leaver is a process that is leaving.
type leaver struct {
	*proc
	next time.Time // turn
	// Where a search goes on that is not over: index and plane of a communicator, and which of
	// the process's ranks there.
	at, rank int
}

// leave ends what is to be sent to a process that has sent so many messages here and
// sends no more. patience is base.Exit's. Lock held.
func (p *proc) leave(total uint64, patience int) {
	closed := &framework.TransportError{Component: "pml cm", Peer: p.String(), Op: "goodbye", Err: framework.ErrPeerClosed}
	if p.Presence() == base.Present && !p.connected && p.introduce() != nil { // receives name it still
		p.Fail(closed) // and get nothing
		return
	}
	if p.Goodbye(total, patience)&base.Shut == 0 {
		return
	}
	p.shut(closed)
	p.m.leaving = append(p.m.leaving, &leaver{proc: p})
	p.m.engine.Nudge()
}

// left takes the bootstrap's word that the process has left. Its own, with a number, may be
// on the way. From one with which nothing was exchanged that is not likely.
func (p *proc) left() {
	patience := mostVain
	if !p.talked && p.sent+p.Received+p.Aside == 0 {
		patience = 1
	}
	p.leave(base.Unknown, patience)
}

// goodbye takes the goodbye of p; nil: a process whose card has not come. Lock held.
func (m *Module) goodbye(p *proc, f *control) {
	switch {
	case p == nil:
		m.keepEarly(f)
	case p.Life == m.env.Self || p.Gone():
	default:
		m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Life, Note: controlNames[f.typ]})
		p.leave(f.sent[0], mostVain)
	}
}

// farewell ends what waits for processes that have left, once all of their messages
// are accounted for. Lock held.
func (m *Module) farewell() {
	now := time.Now()
	m.leaving = slices.DeleteFunc(m.leaving, func(l *leaver) bool {
		return l.Gone() || now.After(l.next) && l.over(now)
	})
}

// farewellGap is how long farewell has time. Lock held.
func (m *Module) farewellGap() time.Duration {
	gap := base.LastGap
	for _, l := range m.leaving {
		if gap = min(gap, l.Gap()); l.at > 0 {
			return base.FirstGap
		}
	}
	return gap
}

// over takes a turn, or goes on with a search for the process's messages, and reports
// whether nothing more comes. Lock held.
func (l *leaver) over(now time.Time) bool {
	act := l.Turn()
	if act&base.Forget != 0 {
		l.forget()
	}
	if act&base.End != 0 {
		l.Fail(l.Err)
		return true
	}
	if act&base.Seek != 0 {
		if !l.seek() {
			return false
		}
		l.Sought()
	}
	l.next = now.Add(l.Gap())
	return false
}

// seek looks for the process's messages on all communicators, some planes at a time,
// and reports whether it is through. Lock held.
func (l *leaver) seek() bool {
	m := l.m
	for range mostSought {
		i, plane := l.at/pml.Planes, pml.Plane(l.at%pml.Planes)
		if i >= len(m.comms.ByIndex) {
			l.at = 0
			return true
		}
		if c := m.comms.ByIndex[i]; c != nil && !c.Closed() { // the reaper looks there
			ranks := c.Ranks(l.proc)
			if l.rank < len(ranks) && !c.Spec.IsElsewhere(ranks[l.rank]) {
				if m.pulls >= mostPulls || c.pulling[plane].left > 0 {
					return false // until another pull is over
				}
				c.pull(plane, c.peer(ranks[l.rank]))
			}
			if l.rank++; l.rank < len(ranks) {
				continue
			}
		}
		l.at, l.rank = l.at+1, 0
	}
	return false
}
