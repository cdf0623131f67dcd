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

// How a process leaves.
//
// A network does not report that a process has closed its last session, and retries
// messages to it for ever. Flush therefore sends a goodbye to every process with which
// anything was exchanged over the network. It does so after all messages are in the
// network, or after its context has ended. A goodbye is not acknowledged.
//
// Later sends to the process fail with framework.ErrPeerClosed. Sends in progress fail
// some milliseconds later, because the goodbye may overtake the acknowledgment of a
// message that was received.
//
// A goodbye may also overtake messages, and carries their number. Receives continue until
// all of these messages were received or pulled out of the network (pull.go), from any
// communicator. After that, receives from the process fail. They also fail if a number
// of searches in a row finds no message, because messages to a communicator that was
// never created here cannot be found.
//
// The card of a newer incarnation also ends the older one, without a number.

// maxPlanesPerSearch bounds the planes that one call of searchPlanes covers.
const maxPlanesPerSearch = 64

// maxFruitlessSearches is the number of searches in a row, base.LastGap apart, that may
// find none of the missing messages. It amounts to five seconds. A message is milliseconds
// later than a goodbye, unless the network retransmits it. Tests change it.
var maxFruitlessSearches = 20

// goodbyePatience bounds the wait of Flush until the goodbyes have left. A goodbye to a
// peer that has ended may never leave.
const goodbyePatience = 200 * time.Millisecond

// Flush implements pml.Module. It sends goodbyes even if messages have not left in time.
// Those messages count, because they may still arrive.
func (m *Module) Flush(ctx context.Context) error {
	err := pml.Until(ctx, m.engine, m.idle)
	m.engine.Lock()
	m.sendGoodbyes()
	m.engine.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyePatience)
	defer cancel()
	_ = pml.Until(ctx, m.engine, m.idle) // Peers that miss the goodbye have ended.
	return err
}

// idle reports whether the network needs no further polls of this process to deliver its
// messages. Lock held.
func (m *Module) idle() bool { return m.pendingSends == 0 && m.mtl.Idle() }

// sendGoodbyes sends a goodbye to each process with which anything was exchanged. Lock held.
func (m *Module) sendGoodbyes() {
	sent := map[*proc]uint64{}
	for _, c := range m.comms.ByID {
		for _, p := range c.peersByRank.All() {
			sent[p.proc] += p.sentAll()
		}
	}
	for _, p := range m.procs.Incarnations {
		n := p.sentOnClosed + sent[p]
		if p.Incarnation == m.env.Self || p.Err != nil || !p.hasContact && n+p.Received+p.Claimed == 0 {
			continue
		}
		p.sendControl(control{typ: controlGoodbye, senderRank: anyRank, sent: cid.Counts{n}}, nil)
	}
}

// sentAll returns the number of messages sent to a member, on all planes.
func (p *peer) sentAll() (n uint64) {
	for _, k := range p.messageTally.Sent {
		n += k
	}
	return n
}

// leaver is a process that leaves, until all of its messages are accounted for.
type leaver struct {
	*proc
	nextStepAt time.Time
	// commPlaneCursor and rankCursor are the position of a search that is in progress.
	// commPlaneCursor is a communicator's index times pml.Planes plus the plane, and rankCursor
	// an index among the ranks of the process there.
	commPlaneCursor, rankCursor int
}

// startLeaving fails the sends to a process that has sent total messages to this one and
// sends no more. patience is that of base.Exit. Lock held.
func (p *proc) startLeaving(total uint64, patience int) {
	closed := &framework.TransportError{Component: "pml cm", Peer: p.String(), Op: "goodbye", Err: framework.ErrPeerClosed}
	if p.PeerState() == framework.Alive && !p.isConnected && p.connectMTL() != nil { // No receive from it can match.
		p.Fail(closed)
		return
	}
	if p.Goodbye(total, patience)&base.FailSends == 0 {
		return
	}
	p.failSends(closed)
	p.m.leavingProcs = append(p.m.leavingProcs, &leaver{proc: p})
	p.m.engine.Nudge()
}

// handleLeft handles the bootstrap's report that the process has left. Its goodbye may
// still come, unless nothing was exchanged with it.
func (p *proc) handleLeft() {
	patience := maxFruitlessSearches
	if !p.hasContact && p.sentOnClosed+p.Received+p.Claimed == 0 {
		patience = 1
	}
	p.startLeaving(base.Unknown, patience)
}

// handleGoodbye handles the goodbye of p. A nil p is an unknown peer. Lock held.
func (m *Module) handleGoodbye(p *proc, f *control) {
	switch {
	case p == nil:
		m.queueEarly(f)
	case p.Incarnation == m.env.Self || p.HasEnded():
	default:
		m.env.Event(pml.Event{Kind: pml.EventControl, Peer: p.Incarnation, Note: controlNames[f.typ]})
		p.startLeaving(f.sent[0], maxFruitlessSearches)
	}
}

// advanceLeavers fails the receives from processes that have left, once all of their
// messages are accounted for. Lock held.
func (m *Module) advanceLeavers() {
	now := time.Now()
	m.leavingProcs = slices.DeleteFunc(m.leavingProcs, func(l *leaver) bool {
		return l.HasEnded() || now.After(l.nextStepAt) && l.advance(now)
	})
}

// leaverInterval returns the time until the next call of advanceLeavers. Lock held.
func (m *Module) leaverInterval() time.Duration {
	gap := base.LastGap
	for _, l := range m.leavingProcs {
		if gap = min(gap, l.StepInterval()); l.commPlaneCursor > 0 {
			return base.FirstGap
		}
	}
	return gap
}

// advance performs the actions of the process's Exit, or continues a search. It reports
// whether no further message can come. Lock held.
func (l *leaver) advance(now time.Time) bool {
	act := l.NextStep()
	if act&base.AbortSends != 0 {
		l.forgetEndpoint()
	}
	if act&base.EndReceives != 0 {
		l.Fail(l.Err)
		return true
	}
	if act&base.SearchMessages != 0 {
		if !l.searchPlanes() {
			return false
		}
		l.FinishSearch()
	}
	l.nextStepAt = now.Add(l.StepInterval())
	return false
}

// searchPlanes pulls the process's messages on some planes of all communicators, and
// reports whether it has covered all. Lock held.
func (l *leaver) searchPlanes() bool {
	m := l.m
	for range maxPlanesPerSearch {
		i, plane := l.commPlaneCursor/pml.Planes, pml.Plane(l.commPlaneCursor%pml.Planes)
		if i >= len(m.comms.ByIndex) {
			l.commPlaneCursor = 0
			return true
		}
		if c := m.comms.ByIndex[i]; c != nil && !c.IsClosed() { // The reaper covers closed ones.
			ranks := c.Ranks(l.proc)
			if l.rankCursor < len(ranks) && !c.Spec.IsElsewhere(ranks[l.rankCursor]) {
				if m.activePulls >= maxPulls || c.pullsByPlane[plane].remainingMessages > 0 {
					return false // Another pull must end first.
				}
				c.startPull(plane, c.peer(ranks[l.rankCursor]))
			}
			if l.rankCursor++; l.rankCursor < len(ranks) {
				continue
			}
		}
		l.commPlaneCursor, l.rankCursor = l.commPlaneCursor+1, 0
	}
	return false
}
