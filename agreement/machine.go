package agreement

import (
	"fmt"
	"math"
	"slices"

	"github.com/ferrympi/ferry/framework"
)

// memberState is a member's state in the view of a machine. No member becomes alive again.
type memberState uint8

const (
	alive memberState = iota
	failed
	closed
)

// noBallot is the ballot of a member that holds no outcome.
const noBallot = -1

// Envelope is a message for one rank.
type Envelope struct {
	ToRank  int
	Message Message
}

// Machine is one member's part of the agreements of a communicator. It is not safe for
// concurrent use.
type Machine struct {
	selfRank         int
	memberStates     []memberState
	outgoingMessages []Envelope
	// This member has closed the communicator.
	isClosed bool

	// The current instance. All earlier ones are decided.
	instance uint64
	// nil until this member has called.
	ownCall *Call
	// This member's context has ended in Shrink.
	isExcluded bool
	// Of a contribution of this member, or of an Ask.
	highestBallot int
	heldOutcome   *Outcome
	heldBallot    int
	// Kept until Result returns it.
	previousOutcome *Outcome

	// By sender, the latest message of the next instance.
	earlyMessages map[int]Message
	// Senders of probes since the current instance began.
	probers map[int]struct{}

	coordinated
}

// coordinated is the state of a coordinator.
type coordinated struct {
	// Contributions by rank, nil if missing.
	contributions []*Message
	// Acknowledgments of the proposal by rank.
	hasAcked   []bool
	isAsking   bool
	isProposed bool
}

// New returns the machine of rank self in a communicator of size members.
func New(self, size int) *Machine {
	m := &Machine{selfRank: self, memberStates: make([]memberState, size), earlyMessages: map[int]Message{}, heldBallot: noBallot}
	m.contributions = make([]*Message, size)
	m.hasAcked = make([]bool, size)
	return m
}

// Take returns the queued messages in order and removes them.
func (m *Machine) Take() []Envelope {
	out := m.outgoingMessages
	m.outgoingMessages = nil
	return out
}

// Instance returns the number of the current instance, which is the number of decided ones.
func (m *Machine) Instance() uint64 { return m.instance }

// IsPending reports whether this member has called and the instance is not decided.
func (m *Machine) IsPending() bool { return m.ownCall != nil }

// Awaited returns the ranks with a message that a pending call waits for, ascending.
func (m *Machine) Awaited() (ranks []int) {
	switch {
	case m.ownCall == nil || m.highestBallot == 0:
		return nil
	case !m.isCoordinator():
		return []int{m.highestBallot - 1}
	}
	for r, s := range m.memberStates {
		if r != m.selfRank && s == alive && (m.isProposed && !m.hasAcked[r] || !m.isProposed && m.contributions[r] == nil) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// IsAlive reports whether messages of a member are accepted.
func (m *Machine) IsAlive(rank int) bool { return m.memberStates[rank] == alive }

// probeInstance is an instance that no member reaches.
const probeInstance = math.MaxUint64

// Probe queues a message that a member answers once it has closed the communicator. It finds such members
// while this member is in the common case.
func (m *Machine) Probe(rank int) {
	m.outgoingMessages = append(m.outgoingMessages, Envelope{rank, Message{Kind: Ask, Instance: probeInstance, Ballot: m.selfRank + 1}})
}

// Requested reports whether the current instance cannot be decided in the common case, because a member is not alive or a message of the instance has
// arrived.
func (m *Machine) Requested() bool {
	if m.highestBallot > 0 || slices.ContainsFunc(m.contributions, func(c *Message) bool { return c != nil }) {
		return true
	}
	return slices.ContainsFunc(m.memberStates, func(s memberState) bool { return s != alive })
}

// Complete decides the current instance in the common case. It must not be called after Start.
func (m *Machine) Complete() {
	for r, c := range m.contributions {
		if c != nil || r == m.highestBallot-1 {
			m.send(r, Message{Kind: Decided})
		}
	}
	m.next()
}

// Start begins this member's part of the protocol. value is the result of the common case's
// allreduce if that has completed. Start returns ErrPending if the previous call has not been
// decided, and ErrClosed after Close.
func (m *Machine) Start(c Call, value *uint64) error {
	switch {
	case m.isClosed:
		return fmt.Errorf("agreement: %w", framework.ErrClosed)
	case m.ownCall != nil:
		return fmt.Errorf("agreement: %v has not ended: %w", m.ownCall.Operation, framework.ErrPending)
	}
	m.ownCall, m.isExcluded = &c, c.IsExcluded
	m.previousOutcome = nil
	if value != nil {
		m.heldOutcome, m.heldBallot = &Outcome{Operation: c.Operation, Flags: *value}, 0
	}
	m.markFailed(c.FailedRanks)
	m.advance()
	return nil
}

// Exclude leaves this member out of the outcome of its Shrink. It reports false if this member
// holds a proposed outcome, which may include it. A proposal that is on its way may include it too.
func (m *Machine) Exclude() bool {
	if m.ownCall == nil || m.isExcluded {
		return m.heldOutcome == nil
	}
	m.isExcluded = true
	switch {
	case !m.isCoordinator():
		m.contribute()
	case m.isAsking && !m.isProposed:
		m.contributions[m.selfRank] = m.contribution()
	}
	return m.heldOutcome == nil
}

// Result returns the outcome of the latest call once it is decided, and once only.
func (m *Machine) Result() (Outcome, bool) {
	if m.previousOutcome == nil {
		return Outcome{}, false
	}
	o := *m.previousOutcome
	m.previousOutcome = nil
	return o, true
}

// Failed records the report of the failures of ranks.
func (m *Machine) Failed(ranks ...int) {
	m.markFailed(ranks)
	m.advance()
}

// Left records that a member has left and sends no further message.
func (m *Machine) Left(rank int) { m.markClosed(rank) }

// Close ends the machine. It queues Closed for the members that wait for this one, and answers it to later
// messages.
func (m *Machine) Close() {
	m.isClosed = true
	m.ownCall = nil
	m.outgoingMessages = nil
	for r := range m.memberStates {
		if m.IsAwaitedBy(r) {
			m.send(r, Message{Kind: Closed})
		}
	}
	clear(m.earlyMessages)
}

// IsAwaitedBy reports whether another live member has sent a message of the current or the next instance, or a probe
// since the current one began.
func (m *Machine) IsAwaitedBy(rank int) bool {
	_, isEarly := m.earlyMessages[rank]
	_, hasProbed := m.probers[rank]
	return m.memberStates[rank] == alive && rank != m.selfRank && (isEarly || hasProbed || m.contributions[rank] != nil || rank == m.highestBallot-1)
}

// Tick repeats the messages without a reply.
func (m *Machine) Tick() {
	switch {
	case m.ownCall == nil:
	case m.isCoordinator():
		m.repeat()
	case m.heldBallot == m.highestBallot: // Acknowledged.
		m.send(m.highestBallot-1, Message{Kind: Ack, Ballot: m.highestBallot})
	default:
		m.contribute()
	}
}

// Receive processes a message of a member. Messages that are late, repeated, or of a member
// that is not alive are dropped.
func (m *Machine) Receive(from int, msg Message) {
	switch {
	case from == m.selfRank || m.memberStates[from] != alive:
	case m.isClosed:
		m.answer(from, msg, Closed)
	case msg.Kind == Closed:
		m.markClosed(from)
	case msg.Instance < m.instance:
		m.answer(from, msg, Decided)
	case msg.Instance == m.instance:
		m.receive(from, msg)
	case msg.Instance == m.instance+1 && m.heldOutcome != nil: // The sender has decided the current instance.
		m.decide()
		m.receive(from, msg)
	case msg.Instance == m.instance+1:
		m.earlyMessages[from] = msg
	case msg.Instance == probeInstance:
		m.addProber(from)
	}
}

func (m *Machine) addProber(rank int) {
	if m.probers == nil {
		m.probers = map[int]struct{}{}
	}
	m.probers[rank] = struct{}{}
}

// receive processes a message of the current instance.
func (m *Machine) receive(from int, msg Message) {
	switch msg.Kind {
	case Ask:
		if msg.Ballot != from+1 || msg.Ballot < m.highestBallot {
			return
		}
		m.highestBallot = msg.Ballot
		if m.ownCall != nil {
			m.contribute()
		}
	case Contribute:
		m.receiveContribution(from, msg)
	case Propose:
		if msg.Ballot != from+1 || msg.Ballot < m.highestBallot || m.ownCall == nil {
			return
		}
		m.highestBallot = msg.Ballot
		m.heldOutcome, m.heldBallot = msg.Outcome, msg.Ballot
		m.send(from, Message{Kind: Ack, Ballot: msg.Ballot})
		m.markFailed(msg.Outcome.FailedRanks)
	case Ack:
		if m.isProposed && msg.Ballot == m.selfRank+1 {
			m.hasAcked[from] = true
			m.tryDecide()
		}
	case Decided:
		if m.heldOutcome != nil {
			m.decide()
		}
	}
}

// answer answers a message of another instance or to a closed communicator. Answers are not
// answered.
func (m *Machine) answer(to int, msg Message, k Kind) {
	if msg.Kind != Decided && msg.Kind != Closed {
		m.outgoingMessages = append(m.outgoingMessages, Envelope{to, Message{Kind: k, Instance: msg.Instance}})
	}
}

// send queues a message of the current instance.
func (m *Machine) send(to int, msg Message) {
	msg.Instance = m.instance
	m.outgoingMessages = append(m.outgoingMessages, Envelope{to, msg})
}

// contribute sends this member's contribution to the coordinator.
func (m *Machine) contribute() { m.send(m.highestBallot-1, *m.contribution()) }

// contribution returns this member's contribution to the coordinator of m.highestBallot.
func (m *Machine) contribution() *Message {
	c := &Contribution{
		Operation: m.ownCall.Operation, Flags: m.ownCall.Flags, FailedRanks: m.failedRanks(),
		AckedRanks: m.ownCall.AckedRanks, WireUp: m.ownCall.WireUp, IsExcluded: m.isExcluded,
	}
	msg := &Message{Kind: Contribute, Instance: m.instance, Ballot: m.highestBallot, Contribution: c, Outcome: m.heldOutcome}
	if m.heldOutcome != nil { // A coordinator proposes a held outcome in place of a new one.
		msg.HeldBallot = m.heldBallot
		c.FailedRanks, c.AckedRanks = c.FailedRanks.without(m.heldOutcome.FailedRanks), nil
	}
	return msg
}

// failedRanks returns the failed ranks.
func (m *Machine) failedRanks() Ranks {
	var ranks Ranks
	for r, s := range m.memberStates {
		if s == failed {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

func (m *Machine) markFailed(ranks []int) {
	for _, r := range ranks {
		if r != m.selfRank { // A member that is reported failed is isolated by the bootstrap.
			m.memberStates[r] = failed
		}
	}
}

func (m *Machine) markClosed(rank int) {
	if rank != m.selfRank && m.memberStates[rank] == alive {
		m.memberStates[rank] = closed
		m.advance()
	}
}

// decide ends the current instance with the held outcome.
func (m *Machine) decide() {
	m.previousOutcome = m.heldOutcome
	m.next()
}

// next begins the next instance.
func (m *Machine) next() {
	m.instance++
	m.ownCall, m.isExcluded = nil, false
	m.highestBallot = 0
	m.heldOutcome, m.heldBallot = nil, noBallot
	clear(m.contributions)
	clear(m.hasAcked)
	m.isAsking, m.isProposed = false, false
	clear(m.probers)
	if len(m.earlyMessages) == 0 {
		return
	}
	for r := range m.memberStates {
		if msg, ok := m.earlyMessages[r]; ok {
			delete(m.earlyMessages, r)
			m.Receive(r, msg)
		}
	}
}
