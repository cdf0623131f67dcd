package agreement

import "slices"

// isCoordinator reports whether this member coordinates the current instance in its own view.
func (m *Machine) isCoordinator() bool { return m.highestBallot == m.selfRank+1 }

// advance begins the next step of this member's part after its call, or after a change of the
// members' states.
func (m *Machine) advance() {
	if m.ownCall == nil {
		return
	}
	lowest := max(slices.Index(m.memberStates, alive), m.highestBallot-1)
	for lowest < len(m.memberStates) && m.memberStates[lowest] != alive {
		lowest++
	}
	switch {
	case lowest == len(m.memberStates):
		// A higher coordinator has asked, for which this member has failed. It is isolated soon.
	case lowest != m.selfRank:
		m.highestBallot = lowest + 1
		m.contribute()
	case !m.isAsking:
		m.highestBallot = m.selfRank + 1
		m.isAsking = true
		m.contributions[m.selfRank] = m.contribution()
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
	if msg.Ballot != m.selfRank+1 {
		return
	}
	if m.isProposed {
		m.send(from, m.proposal())
		return
	}
	if m.contributions[from] == nil || msg.Contribution.IsExcluded { // Repetitions differ in IsExcluded and FailedRanks only.
		m.contributions[from] = &msg
	}
	m.markFailed(msg.Contribution.FailedRanks)
	if msg.Outcome != nil {
		m.markFailed(msg.Outcome.FailedRanks)
	}
	m.advance()
}

// repeat sends Ask or Propose to all members without a reply.
func (m *Machine) repeat() {
	for r, s := range m.memberStates {
		switch {
		case r == m.selfRank || s != alive:
		case m.isProposed && !m.hasAcked[r]:
			m.send(r, m.proposal())
		case !m.isProposed && m.contributions[r] == nil:
			m.send(r, Message{Kind: Ask, Ballot: m.highestBallot})
		}
	}
}

func (m *Machine) proposal() Message {
	return Message{Kind: Propose, Ballot: m.highestBallot, Outcome: m.heldOutcome}
}

// tryPropose proposes an outcome once all live members have contributed.
func (m *Machine) tryPropose() {
	if !m.isAsking || m.isProposed {
		return
	}
	for r, s := range m.memberStates {
		if s == alive && m.contributions[r] == nil {
			return
		}
	}
	if o := m.heldByAny(); o != nil {
		m.heldOutcome = o
	} else {
		m.heldOutcome = m.newOutcome()
	}
	m.heldBallot = m.highestBallot
	m.isProposed = true
	m.markFailed(m.heldOutcome.FailedRanks)
	m.repeat()
	m.tryDecide()
}

// heldByAny returns the held outcome of the highest ballot among the live members, or nil.
func (m *Machine) heldByAny() *Outcome {
	var held *Outcome
	ballot := noBallot
	for r, c := range m.contributions {
		if c != nil && m.memberStates[r] == alive && c.Outcome != nil && c.HeldBallot > ballot {
			held, ballot = c.Outcome, c.HeldBallot
		}
	}
	return held
}

// newOutcome returns the outcome of the contributions of the live members.
func (m *Machine) newOutcome() *Outcome {
	o := &Outcome{Operation: m.ownCall.Operation, Flags: ^uint64(0), FailedRanks: m.failedRanks(), ID: m.ownCall.ID}
	other := -1
	hasAcked := false
	for r, c := range m.contributions {
		if m.memberStates[r] == closed {
			o.ExcludedRanks = append(o.ExcludedRanks, r)
		}
		if m.memberStates[r] != alive {
			continue
		}
		k := c.Contribution
		if k.Operation != o.Operation && other < 0 {
			other = r
		}
		if k.IsExcluded {
			o.ExcludedRanks = append(o.ExcludedRanks, r)
		}
		o.Flags &= k.Flags
		o.WireUp = o.WireUp || k.WireUp
		if hasAcked {
			o.AckedRanks = intersect(o.AckedRanks, k.AckedRanks)
		} else {
			o.AckedRanks, hasAcked = k.AckedRanks, true
		}
	}
	if other >= 0 {
		o.MixedRanks = mixed(o.Operation, m.selfRank, other)
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
	for r, s := range m.memberStates {
		if s == alive && r != m.selfRank && !m.hasAcked[r] {
			return
		}
	}
	for r, s := range m.memberStates {
		if s == alive && r != m.selfRank {
			m.send(r, Message{Kind: Decided})
		}
	}
	m.decide()
}
