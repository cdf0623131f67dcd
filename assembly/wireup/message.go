package wireup

import (
	"fmt"
	"slices"
)

// Kind is the kind of a message in the tree. A message is the version, the kind, and a body.
type Kind uint8

const (
	Gather   Kind = iota + 1 // Up: a Part.
	Result                   // Down: a Table.
	Shared                   // Down, on a node: the address for opening the table.
	Unshared                 // Up, on a node: the sender cannot open the table, and needs it as a Result.
	Confirm                  // Up: all members below have accepted the table.
	Commit                   // Down: the communicator is created.
	Abort                    // Up or down: Faults. The communicator is not created.
	Lost                     // Down: Faults. It is not known whether the communicator is created.
	kinds
)

var kindNames = [kinds]string{"", "gather", "result", "shared", "unshared", "confirm", "commit", "abort", "lost"}

func (k Kind) String() string {
	if k < kinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

const messageHeader = 2

func newMessage(k Kind, body []byte) message {
	return append([]byte{Version, byte(k)}, body...)
}

func faultMessage(k Kind, fs Faults) message {
	body, err := codec().Marshal(fs)
	if err != nil { // Unreachable, since the texts are valid UTF-8.
		body = []byte{0x80}
	}
	return newMessage(k, body)
}

// KindOf returns the kind of an encoded message, and 0 if it has none.
func KindOf(b []byte) Kind {
	if len(b) < messageHeader || Kind(b[1]) >= kinds {
		return 0
	}
	return Kind(b[1])
}

// message is a valid message.
type message []byte

func (m message) kind() Kind { return Kind(m[1]) }

func (m message) body() []byte { return m[messageHeader:] }

// decodeMessage returns a message, which is one of some kinds, Abort or Lost. The latter two are returned with their faults.
func decodeMessage(b []byte, want ...Kind) (message, Faults, error) {
	k := KindOf(b)
	switch {
	case k == 0:
		return nil, nil, fmt.Errorf("a message of %d bytes without a kind", len(b))
	case b[0] != Version:
		return nil, nil, fmt.Errorf("message of version %d, and this program speaks %d", b[0], Version)
	case k != Abort && k != Lost && !slices.Contains(want, k):
		return nil, nil, fmt.Errorf("message %v in place of %v", k, want)
	case k != Abort && k != Lost:
		return b, nil, nil
	}
	var fs Faults
	if err := codec().Unmarshal(message(b).body(), &fs); err != nil {
		return nil, nil, err
	}
	if len(fs) == 0 {
		return nil, nil, fmt.Errorf("message %v without a fault", k)
	}
	return b, fs, fs.check()
}
