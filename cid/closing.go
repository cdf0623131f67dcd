package cid

// How the index of a closed communicator becomes free.
//
// A member that closes a communicator sends no more messages there. Once it has no pending
// operations, it notifies all members with which it has exchanged any message. Its index is
// quarantined until each of those has closed too, and all of their messages were received or
// dropped.
//
// With style Inline, the transport keeps the order of everything that goes to a process, so
// that the notification is the last message of a member. With style Held it may overtake
// messages, and carries their number for each plane, see Tally.
//
// A member with which nothing was exchanged gets no notification. If it knows the index from
// the creation of the communicator, it is an unknown sender. It may send until it closes the
// communicator itself. A network keeps such a message for the next receive with the same id.
// Therefore the index of a communicator with unknown senders is quiet, and remains
// quarantined until the PML needs it. With style Inline, the generation of the index is
// enough to recognize such a message.

// PeerClose is the state of the close of one communicator between this process and one other
// member. Like an Exchange it is a small value without pointers, one for each pair of
// communicator and peer. Its events are the methods of CommClose, and the caller serializes them.
// The zero PeerClose is that of an open communicator.
type PeerClose struct {
	// isNotified is set if the member knows, or cannot be notified, that this process
	// receives no more.
	isNotified bool
	phase      peerPhase
	// isAwaited is set while CommClose.awaitedMembers counts the member.
	isAwaited bool
}

// peerPhase is the progress of a member's own close.
type peerPhase uint8

const (
	// maySend means that the member has not closed.
	maySend peerPhase = iota
	// finalCounted means that it sends no more, and some of its messages are outstanding.
	finalCounted
	// allConsumed means that no message of it is outstanding.
	allConsumed
)

// IsFinal reports whether the member sends no more messages.
func (m *PeerClose) IsFinal() bool { return m.phase != maySend }

// Stage is the progress of a communicator's close at this process.
type Stage uint8

const (
	StageOpen Stage = iota
	// StageEnding is closed by the user, with pending operations.
	StageEnding
	// StageNotified has no pending operations. Members are notified, and more messages may come.
	StageNotified
	// StageQuiet means that only unknown senders may still send.
	StageQuiet
	// StageFinished means that the index may be reused.
	StageFinished
)

// CommClose is the close of a communicator at one process, over all members. It is a pure state
// machine. Methods for an event of one member take that member's PeerClose. Their parameter all
// is true if all messages that the member has counted were consumed. It is Tally.IsComplete with
// style Held, and always true with style Inline. No method allocates.
//
// The zero CommClose is that of an open communicator with style Inline and without unknown
// senders.
type CommClose struct {
	style Style
	stage Stage
	// awaitedMembers counts the members of which more messages or a notification may come.
	awaitedMembers int32
	unknownSenders int32
}

// NewCommClose returns the CommClose of an open communicator. unknownSenders is the number of other members
// that know this process's index from the creation of the communicator. It is 0 with style
// Inline.
func NewCommClose(style Style, unknownSenders int) CommClose {
	return CommClose{style: style, unknownSenders: int32(unknownSenders)}
}

// Stage returns the progress of the close.
func (r *CommClose) Stage() Stage { return r.stage }

// Close handles the user's close. It returns false if the communicator was closed before.
func (r *CommClose) Close() bool {
	if r.stage != StageOpen {
		return false
	}
	r.stage = StageEnding
	return true
}

// NotifyPeer notifies one member at the end of the pending operations. It is called for each member
// for which the PML has state, before StageNotified. met is set if a message was exchanged with the
// member. The result is SendClosed or 0.
func (r *CommClose) NotifyPeer(m *PeerClose, met, all bool) (act Action) {
	if !m.isNotified && (met || m.phase != maySend) {
		r.markNotified(m)
		act = SendClosed
	}
	r.updatePhase(m, all)
	return act
}

// NotifySelf is NotifyPeer for this process as a member. all is set if it has received all
// messages to itself.
func (r *CommClose) NotifySelf(m *PeerClose, all bool) {
	m.isNotified, m.phase = true, finalCounted
	r.updatePhase(m, all)
}

// FinishNotify follows the calls of NotifyPeer and NotifySelf. Like every later event it may return
// FreeIndex or MarkQuiet.
func (r *CommClose) FinishNotify() Action {
	r.stage = StageNotified
	return r.advance()
}

// RecvClosed handles a member's notification that it has closed the communicator, or, with
// answer, its acknowledgment of the close here. In both cases the member sends no more.
//
// A notification is acknowledged unless the member was notified. With style Inline, an open
// communicator does not acknowledge it, because its user may still send. Its own close
// notifies the member.
func (r *CommClose) RecvClosed(m *PeerClose, answer, all bool) (act Action) {
	if !answer && !m.isNotified && (r.style == Held || r.stage != StageOpen) {
		r.markNotified(m)
		act = SendClosedAck
	}
	r.markFinal(m, all)
	return act | r.advance()
}

// RecvRequest handles a request for this process's local id (Held). It returns SendClosedAck if the
// communicator is closed here, otherwise 0. A member that was not notified before has sent
// nothing, and will not. One that was may have sent messages since it learned the id. Its own
// acknowledgment has their number.
func (r *CommClose) RecvRequest(m *PeerClose, t *Tally) Action {
	if r.stage < StageNotified {
		return 0
	}
	if !m.isNotified {
		r.markNotified(m)
		t.SetFinal(Counts{})
		r.markFinal(m, t.IsComplete())
	}
	return SendClosedAck | r.advance()
}

// RecvReply handles a member's local id. If the member was notified of the close before, it
// may have lost the notification, and the result is SendClosedAck.
func (r *CommClose) RecvReply(m *PeerClose) Action {
	if r.stage < StageNotified || !m.isNotified {
		return 0
	}
	return SendClosedAck
}

// RecvLate handles a message that comes after StageNotified. A member that was not notified is
// notified now.
func (r *CommClose) RecvLate(m *PeerClose, all bool) (act Action) {
	if r.stage >= StageNotified && !m.isNotified {
		r.markNotified(m)
		act = SendClosed
	}
	r.updatePhase(m, all)
	return act | r.advance()
}

// MemberEnded handles the end of a member, or that it cannot be reached. No more messages come from
// it, and none can be sent to it.
func (r *CommClose) MemberEnded(m *PeerClose) Action {
	r.markNotified(m)
	r.markFinal(m, true)
	return r.advance()
}

// EndQuarantine ends the quarantine of a quiet communicator, whose index is needed.
func (r *CommClose) EndQuarantine() { r.stage = StageFinished }

func (r *CommClose) markNotified(m *PeerClose) {
	r.makeKnown(m)
	m.isNotified = true
	r.updateAwaited(m)
}

func (r *CommClose) markFinal(m *PeerClose, all bool) {
	r.makeKnown(m)
	if m.phase == maySend {
		m.phase = finalCounted
	}
	r.updatePhase(m, all)
}

// makeKnown removes a member that was notified, or has notified, from the unknown senders.
func (r *CommClose) makeKnown(m *PeerClose) {
	if !m.isNotified && m.phase == maySend && r.unknownSenders > 0 {
		r.unknownSenders--
	}
}

func (r *CommClose) updatePhase(m *PeerClose, all bool) {
	if m.phase == finalCounted && all {
		m.phase = allConsumed
	}
	r.updateAwaited(m)
}

func (r *CommClose) updateAwaited(m *PeerClose) {
	more := m.phase == finalCounted || m.phase == maySend && m.isNotified
	switch {
	case more && !m.isAwaited:
		r.awaitedMembers++
	case !more && m.isAwaited:
		r.awaitedMembers--
	}
	m.isAwaited = more
}

func (r *CommClose) advance() Action {
	switch {
	case r.stage != StageNotified || r.awaitedMembers > 0:
		return 0
	case r.unknownSenders > 0:
		r.stage = StageQuiet
		return MarkQuiet
	}
	r.stage = StageFinished
	return FreeIndex
}

// Counts are numbers of messages from one process to another on one communicator, by
// plane.
type Counts [3]uint64

// Tally counts the messages between this process and one member of a communicator, for
// transports whose control messages overtake them.
type Tally struct {
	// Sent counts messages to the member.
	Sent Counts
	// Consumed counts messages of the member that were received or dropped.
	Consumed    Counts
	finalCounts Counts
	isFinal     bool
}

// HasMessages reports whether any message was exchanged.
func (t *Tally) HasMessages() bool { return t.Sent != Counts{} || t.Consumed != Counts{} }

// SetFinal sets the number of messages that the member has sent. Later calls have no effect.
func (t *Tally) SetFinal(last Counts) {
	if !t.isFinal {
		t.finalCounts, t.isFinal = last, true
	}
}

// IsComplete reports whether the number of the member's messages is known, and all of them were
// consumed.
func (t *Tally) IsComplete() bool {
	for plane, n := range t.finalCounts {
		if t.Consumed[plane] < n {
			return false
		}
	}
	return t.isFinal
}
