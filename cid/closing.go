package cid

// How the index of a closed communicator comes to be used again.
//
// A member that closes a communicator tells everybody with whom it has exchanged
// anything there, once nothing of its own is pending: it sends nothing more. Its index
// rests until all of those have said the same, and until all that they had sent has
// come, and was received or dropped.
//
// Where a transport keeps the order of all that goes to a process (style Inline), a
// member's word is the last that comes of it. Where it does not (Held), the word
// carries the number of messages, by plane: see Tally.
//
// A member with whom nothing was exchanged hears nothing. If it knows the index from
// the communicator's creation it is a stranger: it may still send, for as long as it
// has not closed. In a network such a message waits for whoever uses the id next, so
// that the index of a communicator with strangers is quiet, and rests on until the PML
// needs it. Where a PML matches, the generation of the index tells such a message.

// Closing is what this process and one other member have told each other of the end of
// a communicator. Like an Exchange it is a small value without pointers, per
// (communicator, peer), whose events and actions the caller serialises; they are
// methods of Rest, which looks at all members. The zero Closing is that of an open
// communicator.
type Closing struct {
	told    bool // it knows that nobody waits here for its messages, or can't be told
	heard   heard
	counted bool // in Rest.awaited
}

// heard is what the member has said.
type heard uint8

const (
	sends heard = iota // nothing: it may send
	final              // it sends nothing more, and some of what it has sent is to come
	ended              // nothing comes any more
)

// Final reports whether the member has said that it sends nothing more.
func (m *Closing) Final() bool { return m.heard != sends }

// Stage is how far a communicator has ended at this process.
type Stage uint8

const (
	Open    Stage = iota
	Ending        // closed by its user, and operations are pending
	Parted        // nothing is pending, members have been told, and more may come of them
	Quieted       // only strangers may still send
	Over          // the index may be used again
)

// Rest is the end of a communicator at one process, over all members: a pure state
// machine, see Closing. Of its events those that concern a member take that member's
// Closing; all says whether what the member has sent by its own word has come: always
// true where the transport keeps order, else Tally.All. No method allocates.
//
// The zero Rest is that of an open communicator, in order, without strangers.
type Rest struct {
	style     Style
	stage     Stage
	awaited   int32 // members of which more is to come
	strangers int32
}

// NewRest returns the Rest of an open communicator. strangers is how many other
// members know this process's index from its creation; Inline: 0.
func NewRest(style Style, strangers int) Rest {
	return Rest{style: style, strangers: int32(strangers)}
}

// Stage returns how far the communicator has ended.
func (r *Rest) Stage() Stage { return r.stage }

// Close says that the user closes the communicator. It reports false if he has before.
func (r *Rest) Close() bool {
	if r.stage != Open {
		return false
	}
	r.stage = Ending
	return true
}

// Part says that nothing is pending any more, for each member of whom the PML has kept
// anything; met: something was exchanged with it. Parted follows. The result is Tell or
// nothing.
func (r *Rest) Part(m *Closing, met, all bool) (act Action) {
	if !m.told && (met || m.heard != sends) {
		r.tell(m)
		act = Tell
	}
	r.came(m, all)
	return act
}

// PartSelf is Part for this process as a member. all: it has received all that it has
// sent itself.
func (r *Rest) PartSelf(m *Closing, all bool) {
	m.told, m.heard = true, final
	r.came(m, all)
}

// Parted says that Part was called for all. The result is Rested, Quiet or nothing, as
// that of every later event may be.
func (r *Rest) Parted() Action {
	r.stage = Parted
	return r.outcome()
}

// RecvClosed says that a member has closed the communicator, or (answer) that it has
// heard that it is closed here: either way it sends nothing more.
//
// A member that says so unasked gets an answer, unless it was told. In style Inline
// that is left to the close of this process as long as the communicator is open here:
// what its user still sends goes out.
func (r *Rest) RecvClosed(m *Closing, answer, all bool) (act Action) {
	if !answer && !m.told && (r.style == Held || r.stage != Open) {
		r.tell(m)
		act = Answer
	}
	r.end(m, all)
	return act | r.outcome()
}

// RecvRequest says that a member asks for this process's local id (Held). Once the
// communicator is closed here it gets an Answer; before, nothing. If it was not told
// before, it has sent nothing yet, and will not. If it was, it may have learnt the id
// meanwhile, and its own answer has the number of its messages.
func (r *Rest) RecvRequest(m *Closing, t *Tally) Action {
	if r.stage < Parted {
		return 0
	}
	if !m.told {
		r.tell(m)
		t.Final(Counts{})
		r.end(m, t.All())
	}
	return Answer | r.outcome()
}

// RecvReply says that a member has told its local id. If it was told before that the
// communicator is closed here, it has forgotten that: Answer.
func (r *Rest) RecvReply(m *Closing) Action {
	if r.stage < Parted || !m.told {
		return 0
	}
	return Answer
}

// Came says that a message of a member came late: once nothing was pending. A stranger is
// told then.
func (r *Rest) Came(m *Closing, all bool) (act Action) {
	if r.stage >= Parted && !m.told {
		r.tell(m)
		act = Tell
	}
	r.came(m, all)
	return act | r.outcome()
}

// Gone says that a member has failed or left, or that it can't be reached: nothing
// comes of it, and nothing can be said to it.
func (r *Rest) Gone(m *Closing) Action {
	r.tell(m)
	r.end(m, true)
	return r.outcome()
}

// Forget says that the index of a quiet communicator is needed.
func (r *Rest) Forget() { r.stage = Over }

func (r *Rest) tell(m *Closing) {
	r.meet(m)
	m.told = true
	r.count(m)
}

func (r *Rest) end(m *Closing, all bool) {
	r.meet(m)
	if m.heard == sends {
		m.heard = final
	}
	r.came(m, all)
}

// meet: a member that was told, or has told, is no stranger any more.
func (r *Rest) meet(m *Closing) {
	if !m.told && m.heard == sends && r.strangers > 0 {
		r.strangers--
	}
}

func (r *Rest) came(m *Closing, all bool) {
	if m.heard == final && all {
		m.heard = ended
	}
	r.count(m)
}

func (r *Rest) count(m *Closing) {
	more := m.heard == final || m.heard == sends && m.told
	switch {
	case more && !m.counted:
		r.awaited++
	case !more && m.counted:
		r.awaited--
	}
	m.counted = more
}

func (r *Rest) outcome() Action {
	switch {
	case r.stage != Parted || r.awaited > 0:
		return 0
	case r.strangers > 0:
		r.stage = Quieted
		return Quiet
	}
	r.stage = Over
	return Rested
}

// Counts are numbers of messages from one process to another on one communicator, by
// plane.
type Counts [3]uint64

// Tally counts the messages between this process and one member of a communicator,
// where control messages overtake them.
type Tally struct {
	Sent  Counts // to the member
	Taken Counts // of the member: received, or dropped
	last  Counts
	final bool
}

// Any reports whether a message went or came.
func (t *Tally) Any() bool { return t.Sent != Counts{} || t.Taken != Counts{} }

// Final takes the member's word on how many messages it has sent. The first one counts.
func (t *Tally) Final(last Counts) {
	if !t.final {
		t.last, t.final = last, true
	}
}

// All reports whether the member has said how many messages it has sent, and they have
// come.
func (t *Tally) All() bool {
	for plane, n := range t.last {
		if t.Taken[plane] < n {
			return false
		}
	}
	return t.final
}
