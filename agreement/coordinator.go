package agreement

import "slices"

// isCoordinator reports whether this member coordinates the current instance in its own view.
func (m *Machine) isCoordinator() bool { return m.ballot == m.self+1 }

// advance begins the next step of this member's part after its call, or after a change of the
// members' states.
func (m *Machine) advance() {
	if m.call == nil {
		return
	}
	lowest := max(slices.Index(m.members, alive), m.ballot-1)
	for lowest < len(m.members) && m.members[lowest] != alive {
		lowest++
	}
	switch {
	case lowest == len(m.members):
		// A higher coordinator has asked, for which this member has failed. It is isolated soon.
	case lowest != m.self:
		m.ballot = lowest + 1
		m.contribute()
	case !m.isAsking:
		m.ballot = m.self + 1
		m.isAsking = true
		m.received[m.self] = m.contribution()
		m.repeat()
		m.tryPropose()
	default:
		m.tryPropose()
		m.tryDecide()
	}
}

// receiveContribution stores a contribution. Its sender sees this member as the coordinator,
// which this member may not be in its own view yet.
func (m *Machine) receiveContribution(from int, msg Message) {
	if msg.Ballot != m.self+1 {
		return
	}
	if m.isProposed {
		m.send(from, m.proposal())
		return
	}
	if m.received[from] == nil || msg.Contribution.Excluded { // Repetitions differ in Excluded and Failed only.
		m.received[from] = &msg
	}
	m.markFailed(msg.Contribution.Failed)
	if msg.Outcome != nil {
		m.markFailed(msg.Outcome.Failed)
	}
	m.advance()
}

// repeat sends Ask or Propose to all members without a reply.
func (m *Machine) repeat() {
	for r, s := range m.members {
		switch {
		case r == m.self || s != alive:
		case m.isProposed && !m.acked[r]:
			m.send(r, m.proposal())
		case !m.isProposed && m.received[r] == nil:
			m.send(r, Message{Kind: Ask, Ballot: m.ballot})
		}
	}
}

func (m *Machine) proposal() Message {
	return Message{Kind: Propose, Ballot: m.ballot, Outcome: m.held}
}

// tryPropose proposes an outcome once all live members have contributed.
func (m *Machine) tryPropose() {
	if !m.isAsking || m.isProposed {
		return
	}
	for r, s := range m.members {
		if s == alive && m.received[r] == nil {
			return
		}
	}
	if o := m.heldByAny(); o != nil {
		m.held = o
	} else {
		m.held = m.newOutcome()
	}
	m.heldBallot = m.ballot
	m.isProposed = true
	m.markFailed(m.held.Failed)
	m.repeat()
	m.tryDecide()
}

// heldByAny returns the held outcome of the highest ballot among the live members, or nil.
func (m *Machine) heldByAny() *Outcome {
	var held *Outcome
	ballot := noBallot
	for r, c := range m.received {
		if c != nil && m.members[r] == alive && c.Outcome != nil && c.HeldBallot > ballot {
			held, ballot = c.Outcome, c.HeldBallot
		}
	}
	return held
}

// newOutcome returns the outcome of the contributions of the live members.
func (m *Machine) newOutcome() *Outcome {
	o := &Outcome{Operation: m.call.Operation, Flags: ^uint64(0), Failed: m.failedRanks(), ID: m.call.ID}
	other := -1
	hasAcked := false
	for r, c := range m.received {
		if m.members[r] == closed {
			o.Excluded = append(o.Excluded, r)
		}
		if m.members[r] != alive {
			continue
		}
		k := c.Contribution
		if k.Operation != o.Operation && other < 0 {
			other = r
		}
		if k.Excluded {
			o.Excluded = append(o.Excluded, r)
		}
		o.Flags &= k.Flags
		o.WireUp = o.WireUp || k.WireUp
		if hasAcked {
			o.Acked = intersect(o.Acked, k.Acked)
		} else {
			o.Acked, hasAcked = k.Acked, true
		}
	}
	if other >= 0 {
		o.Mixed = mixed(o.Operation, m.self, other)
	}
	return o
}

// mixed returns the rank that called Agree before the one that called Shrink.
func mixed(own Operation, self, other int) []int {
	if own == Agree {
		return []int{self, other}
	}
	return []int{other, self}
}

// tryDecide decides once all live members have acknowledged the proposal.
func (m *Machine) tryDecide() {
	if !m.isProposed {
		return
	}
	for r, s := range m.members {
		if s == alive && r != m.self && !m.acked[r] {
			return
		}
	}
	for r, s := range m.members {
		if s == alive && r != m.self {
			m.send(r, Message{Kind: Decided})
		}
	}
	m.decide()
}
