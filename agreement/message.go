package agreement

import (
	"fmt"
	"slices"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/strictcbor"
)

// Operation is the call of an instance.
type Operation uint8

// The operations.
const (
	Agree Operation = iota + 1
	Shrink
)

func (o Operation) String() string {
	switch o {
	case Agree:
		return "Agree"
	case Shrink:
		return "Shrink"
	}
	return fmt.Sprintf("Operation(%d)", uint8(o))
}

// Call is one member's call. The machine keeps the slices and does not change them.
type Call struct {
	Operation Operation
	Flags     uint64
	// Ranks known to have failed, ascending.
	FailedRanks []int
	// A part of FailedRanks, ascending.
	AckedRanks []int
	// Shrink: a path to a survivor is broken.
	WireUp bool
	// Shrink: the context of the caller has ended. See Machine.Exclude.
	IsExcluded bool

	// Shrink: the id of the new communicator if this member proposes.
	ID cid.Extended
}

// Outcome is the result of an instance, the same in all members. Its slices are not to be
// changed.
type Outcome struct {
	_         struct{} `cbor:",toarray"`
	Operation Operation
	// The AND of the flags of the contributing members.
	Flags       uint64
	FailedRanks Ranks
	// Ranks that all contributing members had acknowledged.
	AckedRanks Ranks
	// Other ranks that did not contribute.
	ExcludedRanks Ranks
	// A member has a broken path to a survivor.
	WireUp bool
	// Shrink: the id of the new communicator.
	ID cid.Extended
	// MixedRanks holds one rank that called Agree and one that called Shrink, if members called
	// both. The instance has no other result then.
	MixedRanks []int
}

// Kind is the kind of a message.
type Kind uint8

// The kinds.
const (
	Ask        Kind = iota + 1 // From a coordinator: contribute.
	Contribute                 // To the coordinator, with Contribution, and Outcome if the sender holds one.
	Propose                    // From the coordinator, with Outcome.
	Ack                        // To the coordinator: the sender holds the proposed outcome.
	Decided                    // The sender has decided the instance.
	Closed                     // The sender has closed the communicator.
)

var kindNames = []string{"", "Ask", "Contribute", "Propose", "Ack", "Decided", "Closed"}

func (k Kind) String() string {
	if k >= Ask && k <= Closed {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Contribution is a member's part of a new outcome. If the member holds an outcome, FailedRanks has the other failed ranks, and
// AckedRanks is empty.
type Contribution struct {
	_           struct{} `cbor:",toarray"`
	Operation   Operation
	Flags       uint64
	FailedRanks Ranks
	AckedRanks  Ranks
	WireUp      bool
	// The member's context has ended.
	IsExcluded bool
}

// Message is a message between two members of a communicator. Its contents are not to be
// changed.
type Message struct {
	_        struct{} `cbor:",toarray"`
	Kind     Kind
	Instance uint64
	// The coordinator's rank plus one; 0 in Decided and Closed.
	Ballot       int
	Contribution *Contribution // Contribute.
	// Propose; Contribute.
	Outcome *Outcome
	// Contribute: the ballot of Outcome; 0 is the common case.
	HeldBallot int
}

// Encode returns the encoding of m.
func Encode(m Message) []byte {
	b, err := codec().Marshal(m)
	if err != nil { // Message has no member that cannot be encoded.
		panic(err)
	}
	return b
}

// maxMembers limits the lengths of lists before the machine compares them with the size of
// its communicator.
const maxMembers = 1 << 20

var codec = sync.OnceValue(func() strictcbor.Codec { return strictcbor.New(maxMembers, cbor.UTF8RejectInvalid) })

// Decode is the inverse of Encode for a communicator of size members. It returns an error for
// every message that no correct member sends, with ErrTransport.
func Decode(b []byte, size int) (Message, error) {
	var m Message
	if err := codec().Unmarshal(b, &m); err != nil {
		return Message{}, fmt.Errorf("agreement: message of %d bytes: %w: %v", len(b), framework.ErrTransport, err)
	}
	if err := m.check(size); err != nil {
		return Message{}, fmt.Errorf("agreement: %v message: %w: %v", m.Kind, framework.ErrTransport, err)
	}
	return m, nil
}

// check returns the rule that m violates.
func (m Message) check(size int) error {
	hasBallot := m.Kind != Decided && m.Kind != Closed
	switch {
	case m.Kind < Ask || m.Kind > Closed:
		return fmt.Errorf("unknown kind %d", m.Kind)
	case hasBallot != (m.Ballot != 0) || m.Ballot < 0 || m.Ballot > size:
		return fmt.Errorf("ballot %d in a communicator of %d", m.Ballot, size)
	case (m.Kind == Contribute) != (m.Contribution != nil):
		return fmt.Errorf("the contribution is missing or misplaced")
	case m.Kind == Propose && m.Outcome == nil, m.Outcome != nil && m.Kind != Propose && m.Kind != Contribute:
		return fmt.Errorf("the outcome is missing or misplaced")
	case m.HeldBallot < 0 || m.HeldBallot > m.Ballot, m.HeldBallot != 0 && (m.Outcome == nil || m.Kind != Contribute):
		return fmt.Errorf("outcome of ballot %d in a message of ballot %d", m.HeldBallot, m.Ballot)
	}
	if m.Contribution != nil {
		if err := m.Contribution.check(size); err != nil {
			return err
		}
	}
	if m.Outcome != nil {
		return m.Outcome.check(size)
	}
	return nil
}

func (c *Contribution) check(size int) error {
	if c.Operation != Agree && c.Operation != Shrink {
		return fmt.Errorf("unknown operation %d", c.Operation)
	}
	return checkRanks(size, c.FailedRanks, c.AckedRanks)
}

func (o *Outcome) check(size int) error {
	if o.Operation != Agree && o.Operation != Shrink {
		return fmt.Errorf("unknown operation %d", o.Operation)
	}
	if len(o.MixedRanks) != 0 && (len(o.MixedRanks) != 2 || min(o.MixedRanks[0], o.MixedRanks[1]) < 0 || max(o.MixedRanks[0], o.MixedRanks[1]) >= size) {
		return fmt.Errorf("mixed calls of ranks %d", o.MixedRanks)
	}
	return checkRanks(size, o.FailedRanks, o.AckedRanks, o.ExcludedRanks)
}

// checkRanks requires ascending ranks of a communicator in each list.
func checkRanks(size int, lists ...Ranks) error {
	for _, ranks := range lists {
		for i, r := range ranks {
			if r < 0 || r >= size || i > 0 && r <= ranks[i-1] {
				return fmt.Errorf("list of ranks with %d in a communicator of %d", r, size)
			}
		}
	}
	return nil
}

// intersect returns the ranks that are in both ascending lists.
func intersect(a, b Ranks) Ranks {
	var common Ranks
	for _, r := range a {
		if _, found := slices.BinarySearch(b, r); found {
			common = append(common, r)
		}
	}
	return common
}
