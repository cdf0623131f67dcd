package ob1

import (
	"math"
	"math/bits"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/pml/ob1/selector"
)

// The costs of rendezvous protocols that one pair of processes has measured serve all pairs of the
// node. The first process that selects a protocol for a kind of message claims the kind in the node
// table of the transport, and publishes the costs after its warm-up. Other selections of the kind use
// get meanwhile, and start with the published costs. docs/wire.md has the layout.

const (
	// costsVersion is the version of the contents. It changes with the order of protocols, patterns
	// or classes.
	costsVersion = 1
	// costWords is the number of words with the costs of one kind of message, two in each word. The
	// word behind them has the nonce of the process that measures.
	costWords = int(selector.Protocols+1) / 2
	kindWords = costWords + 1
	costKinds = int(btl.Memories) * int(patterns) * classes

	// minCost and maxCost are the limits of a meaningful cost, in ns per byte.
	minCost, maxCost = 1. / 1024, 1 << 20
	// hopelessCost is a ratio to the lowest cost at which selectors skip the warm-up of a protocol.
	hopelessCost = 2.1
	// firstLapCost is the assumed ratio of the cost of the first pass through a ring to that of later
	// ones.
	firstLapCost = 2
	// maxAwaited is the number of messages that a selection waits for costs of another one. A warm-up
	// takes some 100 messages.
	maxAwaited = 128
	// firstRefresh is the number of messages until published costs are refreshed. Later refreshes
	// follow after twice as many, or after a change of the best protocol.
	firstRefresh = 64
)

// nodeCosts is the node table of a transport.
type nodeCosts struct{ btl.NodeTable }

// nodeCosts returns the costs of pairs on this node like this process and p. The table is nil
// without any.
func (p *proc) nodeCosts() nodeCosts {
	if t := p.inTransport; t != nil && t.copier != nil {
		return nodeCosts{t.copier.NodeTable(p.Incarnation, costsVersion, costKinds*kindWords)}
	}
	return nodeCosts{}
}

// firstWord returns the index of the kind's first word in the table.
func (k messageKind) firstWord() int {
	return ((int(k.memory)*int(patterns)+int(k.pattern))*classes + int(k.class)) * kindWords
}

// claim reports whether a process has claimed the kind. Otherwise it claims the kind for the process
// with that nonce. Two processes may claim a kind at the same time, and then both measure.
func (n nodeCosts) claim(k messageKind, nonce uint64) (wasClaimed bool) {
	word := k.firstWord() + costWords
	wasClaimed = n.Load(word) != 0
	if !wasClaimed {
		n.Store(word, nonce)
	}
	return wasClaimed
}

// load returns the published costs of a kind.
func (n nodeCosts) load(k messageKind) (c selector.Costs) {
	for i := range costWords {
		word := n.Load(k.firstWord() + i)
		for half := range 2 {
			cost := math.Float32frombits(uint32(word >> (32 * half)))
			if p := 2*i + half; p < len(c) && cost >= minCost && cost <= maxCost {
				c[p] = cost
			}
		}
	}
	return c
}

// publish publishes costs. A published cost that is unknown in c may be that of another state of the
// machine. It stays hopeless. If that is the cost of the best protocol, publish has no effect, since
// c comes from messages that could not use it.
func (n nodeCosts) publish(k messageKind, c selector.Costs) {
	best, published := bestOf(c), n.load(k)
	publishedBest := bestOf(published)
	if best == selector.Protocols || publishedBest != selector.Protocols && c[publishedBest] == 0 {
		return
	}
	var halves [2 * costWords]uint64
	for p, cost := range c {
		if cost == 0 && published[p] > 0 {
			cost = max(published[p], hopelessCost*c[best])
		}
		halves[p] = uint64(math.Float32bits(cost))
	}
	for i := range costWords {
		n.Store(k.firstWord()+i, halves[2*i]|halves[2*i+1]<<32)
	}
}

// bestOf returns the protocol of the lowest known cost, or Protocols.
func bestOf(c selector.Costs) selector.Protocol {
	return min(selector.Protocol(c.Lowest()), selector.Protocols)
}

// costSource is the origin of a selection's first costs.
type costSource uint8

const (
	// costsAwaited is the state until costs are published, or the selection measures.
	costsAwaited costSource = iota
	// costsMeasured are costs that the selection measures.
	costsMeasured
	// costsPublished are measured costs that the selection has published.
	costsPublished
	// costsAdopted are costs that another selection has published.
	costsAdopted
	// costsPrivate are measured costs that are not published, since there is no table, or the peer
	// selects for both directions.
	costsPrivate
)

// costSharing is the relation of a selection to the published costs of its kind.
type costSharing struct {
	source costSource
	// awaitedFor counts the messages in state costsAwaited.
	awaitedFor int
	// sharedBest is the best protocol of the published costs, as this selection knows them.
	sharedBest selector.Protocol
	// measured counts measured messages. At publishedAt the costs were published last, and at
	// nextRefresh they are published again.
	measured, publishedAt, nextRefresh int
}

// selectProtocol returns the protocol of the next message from p.
func (s *selection) selectProtocol(p *proc, possible selector.Set) selector.Protocol {
	if s.source == costsAwaited && s.await(p, possible) {
		return selector.Get
	}
	protocol, _ := s.Select(possible)
	return protocol
}

// await reports whether the selection still waits for costs that another one measures.
func (s *selection) await(p *proc, possible selector.Set) bool {
	n := p.nodeCosts()
	switch {
	case n.NodeTable == nil || !s.selectsFor(p):
		s.source = costsPrivate
	case s.adopt(p, n):
	case !possible.Has(selector.Get) || bits.OnesCount8(uint8(possible)) < 2 || s.awaitedFor >= maxAwaited:
		s.source = costsMeasured
	case s.awaitedFor == 0 && !n.claim(s.kind, p.m.env.Self.Nonce):
		s.source = costsMeasured
	default:
		s.awaitedFor++
		return true
	}
	return false
}

// selectsFor reports whether this process selects for messages from p, and does not follow p.
func (s *selection) selectsFor(p *proc) bool {
	return s.kind.pattern < sentPatterns || !p.selectsForBoth()
}

// adopt starts the selection with published costs, and reports whether there are any.
func (s *selection) adopt(p *proc, n nodeCosts) bool {
	c := n.load(s.kind)
	if !p.hasLapped() && bestOf(c) != selector.PipelineFull {
		// The first lap is not measured, so that a warm-up of this protocol includes all of it.
		c[selector.PipelineFull] *= firstLapCost
	}
	if s.sharedBest = bestOf(c); s.sharedBest == selector.Protocols {
		return false
	}
	s.Start(c)
	s.source = costsAdopted
	return true
}

// record passes the measured time of a message from p to the selector. It publishes the costs at the
// end of the warm-up, when the best protocol has changed, and at refreshes.
func (s *selection) record(p *proc, protocol selector.Protocol, bytes, ns int64, isClean bool) {
	if s.source == costsAwaited {
		return
	}
	s.Record(protocol, bytes, ns, isClean)
	s.measured++
	if !s.isPublicationDue() || !s.selectsFor(p) {
		return
	}
	c, isWarm := s.Costs()
	if !isWarm {
		return
	}
	s.source, s.sharedBest, s.publishedAt, s.nextRefresh = costsPublished, s.Best(), s.measured, max(2*s.measured, firstRefresh)
	if n := p.nodeCosts(); n.NodeTable != nil {
		n.publish(s.kind, c)
	}
}

// isPublicationDue reports whether to publish the costs as soon as the selector is warm. A best
// protocol that alternates with the possible ones is not published each time.
func (s *selection) isPublicationDue() bool {
	hasChanged := s.Best() != s.sharedBest && s.measured-s.publishedAt >= firstRefresh
	switch s.source {
	case costsMeasured:
		return true
	case costsPublished:
		return hasChanged || s.measured >= s.nextRefresh
	case costsAdopted:
		return hasChanged
	}
	return false
}

// inherit starts the selection with the costs of a neighboring class, and reports false if those are
// not measured. Other processes of the node then wait for this selection.
func (s *selection) inherit(p *proc, n nodeCosts, like *selection) bool {
	if like == nil {
		return false
	}
	if _, isWarm := like.Costs(); !isWarm {
		return false
	}
	s.Inherit(&like.Selector)
	s.source = costsMeasured
	if n.NodeTable != nil && s.selectsFor(p) {
		n.claim(s.kind, p.m.env.Self.Nonce)
	}
	return true
}
