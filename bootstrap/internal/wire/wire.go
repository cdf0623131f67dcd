// Package wire has the messages of the bootstrap, between a process and its launcher
// (bootstrap/local and its server) and among the members of a job (bootstrap/mesh). A frame is a
// 4-byte big-endian length and one CBOR message, over any stream.
//
// A message is the array [kind, id, body]. The sender of a request chooses an id that is not 0 and
// was not used before. Each request is answered once by Reply or Failure with that id, in any
// order. Put, Incarnation, Disconnect, ReportCommEvent, Note, Cancel, Replicate, OwnEntry, Event,
// Goodbye, AliveQuery and AliveAnswer have no Reply, and id 0 except for Cancel.
//
// A client of a launcher sends Hello first, and receives Welcome or Refused. Between members a
// different handshake precedes all messages.
//
// Input is untrusted. Lengths, nesting and array sizes are limited, and the connection is closed
// after every error.
package wire

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/ferrympi/ferry/internal/strictcbor"
)

// Version is the version of the protocol between client and launcher. Both must have the same,
// because `ferry run` and the program may be built from different sources.
const Version = 7

// Kind is the kind of a message. All kinds are below 24, so that each takes one byte.
type Kind uint8

// The kinds, with the types of the request's body and the reply's.
const (
	Hello           Kind = iota + 1 // HelloBody
	Welcome                         // WelcomeBody
	Refused                         // RefusedBody
	Goodbye                         // Empty; the client closes the connection next
	Put                             // ValuedBody
	Get                             // GetBody -> ValueBody
	Fence                           // JoinBody -> Empty
	Construct                       // JoinBody -> ConstructedBody
	Cancel                          // CancelBody; id is that of the request
	Publish                         // ValuedBody -> Empty
	Unpublish                       // NameBody -> Empty
	Lookup                          // LookupBody -> ValueBody
	Psets                           // Empty -> NamesBody
	Pset                            // NameBody -> PsetBody
	Report                          // ValuedBody -> Empty
	Reply                           // body as in the line of the request
	Failure                         // FailureBody
	Event                           // EventBody
	Incarnation                     // IncarnationBody
	Disconnect                      // DisconnectBody
	ReportCommEvent                 // ReportCommEventBody
	Change                          // ChangeBody -> as in the line of its operation
	Note                            // NoteBody
)

// Messages that check whether a process runs. They reuse kinds that otherwise occur at the start of
// a connection only.
const (
	AliveQuery  = Hello   // Empty -> AliveAnswer at once
	AliveAnswer = Refused // Empty
)

// Messages among members (bootstrap/mesh), which reuse kinds for launchers only.
const (
	Replicate   = Put             // ReplicateBody
	Relay       = Publish         // RelayBody -> as Fence or Construct
	RepeatReply = Lookup          // Empty; a Reply with the body of the last Reply on this connection
	GetReplica  = Psets           // GetBody -> ReplicaBody
	CommEvent   = ReportCommEvent // CommEventBody
	OwnEntry    = Unpublish       // EntryBody
)

// Message is the content of a frame.
type Message struct {
	_    struct{} `cbor:",toarray"`
	Kind Kind
	ID   uint64
	Body cbor.RawMessage
}

// Bodies.
type (
	// Empty is the body without content.
	Empty struct {
		_ struct{} `cbor:",toarray"`
	}
	// HelloBody proves that the sender belongs to the job.
	HelloBody struct {
		_         struct{} `cbor:",toarray"`
		Version   uint32
		Token     string
		Namespace string
		Rank      uint32
	}
	// WelcomeBody accepts a process whose WORLD is Size ranks from First. Most is the limit of the
	// job's processes, and Dead has the failures so far. Nodes has the nodes of all ranks of WORLD
	// in order, and Divided is bootstrap.Identity.IsDivided.
	WelcomeBody struct {
		_       struct{} `cbor:",toarray"`
		First   uint32
		Size    uint32
		Most    uint32
		Dead    []EventBody
		Nodes   []NodeRun
		Divided bool
	}
	// RefusedBody has the reason for a refused Hello.
	RefusedBody struct {
		_      struct{} `cbor:",toarray"`
		Reason string
	}
	// ValuedBody has a value to put, publish or report.
	ValuedBody struct {
		_     struct{} `cbor:",toarray"`
		Name  string
		Value []byte
	}
	// GetBody requests a value of a rank.
	GetBody struct {
		_    struct{} `cbor:",toarray"`
		Rank uint32
		Key  string
	}
	// ValueBody answers Get and Lookup.
	ValueBody struct {
		_     struct{} `cbor:",toarray"`
		Found bool
		Value []byte
	}
	// JoinBody enters a fence or construct. Group is an encoded Runs. The server finds the instance
	// by these bytes, which are equal in all members, and decodes those of the first member only.
	JoinBody struct {
		_       struct{} `cbor:",toarray"`
		Tag     string
		Group   cbor.RawMessage
		Payload []byte
	}
	// ConstructedBody answers Construct. It is encoded once for all members.
	ConstructedBody struct {
		_         struct{} `cbor:",toarray"`
		ContextID uint64
		Payloads  [][]byte
	}
	// CancelBody withdraws a request, because its deadline has passed (Expired) or its caller has
	// withdrawn. The request is still answered.
	CancelBody struct {
		_       struct{} `cbor:",toarray"`
		Expired bool
	}
	// NameBody names a published value or a process set.
	NameBody struct {
		_    struct{} `cbor:",toarray"`
		Name string
	}
	// LookupBody requests a published value.
	LookupBody struct {
		_    struct{} `cbor:",toarray"`
		Name string
		Wait bool
	}
	// NamesBody lists process sets.
	NamesBody struct {
		_     struct{} `cbor:",toarray"`
		Names []string
	}
	// PsetBody describes a process set.
	PsetBody struct {
		_       struct{} `cbor:",toarray"`
		Name    string
		Ranks   []uint32
		Dynamic bool
	}
	// FailureBody answers a request that has failed. Missing and Failed are ranks.
	FailureBody struct {
		_       struct{} `cbor:",toarray"`
		Code    Code
		Text    string
		Missing []uint32
		Failed  []uint32
	}
	// IncarnationBody has the nonce of the sender's new incarnation, or 0 if the last one has left.
	IncarnationBody struct {
		_     struct{} `cbor:",toarray"`
		Nonce uint64
	}
	// DisconnectBody reports that the sender has disconnected from an incarnation of Rank.
	DisconnectBody struct {
		_      struct{} `cbor:",toarray"`
		Rank   uint32
		Nonce  uint64
		Reason string
	}
	// ReportCommEventBody reports an event about a communicator to its other members.
	ReportCommEventBody struct {
		_      struct{} `cbor:",toarray"`
		Kind   uint8    // bootstrap.CommBroken or bootstrap.CommRevoked
		Comm   [16]byte // cid.Extended.Bytes
		Ranks  []uint32 // ranks of the members
		Reason string
	}
	// NoteBody is a note. Rank is the receiver on the way to a launcher, and the sender on the way
	// to a receiver. From and To are the nonces of the two incarnations. A launcher sets From.
	NoteBody struct {
		_    struct{} `cbor:",toarray"`
		Rank uint32
		From uint64
		To   uint64
		Body []byte
	}
	// ReplicateBody is a value of the sender for the receiver to keep. Version counts the sender's
	// values. Last means that the receiver now has all up to Version.
	ReplicateBody struct {
		_       struct{} `cbor:",toarray"`
		Version uint64
		Last    bool
		Name    string
		Value   []byte
	}
	// ReplicaBody answers GetReplica. The replica is complete up to Version.
	ReplicaBody struct {
		_       struct{} `cbor:",toarray"`
		Version uint64
		Found   bool
		Value   []byte
	}
	// EntryBody has the entry of the sender, which is an added process, for rank 0.
	EntryBody struct {
		_     struct{} `cbor:",toarray"`
		Entry []byte
	}
	// RelayBody is the JoinBody of process Rank, with its Kind.
	RelayBody struct {
		_       struct{} `cbor:",toarray"`
		Rank    uint32
		Kind    Kind
		Tag     string
		Group   cbor.RawMessage
		Payload []byte
	}
	// CommEventBody is an event about a communicator for its members, which all processes forward.
	// Its kind is bootstrap.CommBroken or bootstrap.CommRevoked.
	CommEventBody struct {
		_       struct{} `cbor:",toarray"`
		Event   EventBody
		Members Runs
	}
	// EventBody is an event. Kind is a bootstrap.EventKind, and Nonce that of the last incarnation
	// of Rank. TargetNonce is the receiver's incarnation that Rank has disconnected from. Comm is a
	// broken or revoked communicator.
	EventBody struct {
		_           struct{} `cbor:",toarray"`
		Kind        uint8
		Rank        uint32
		Nonce       uint64
		TargetNonce uint64
		Comm        [16]byte
		Reason      string
	}
)

// Code is the error class of a Failure.
type Code uint8

// The codes.
const (
	CodeMissing      Code = iota + 1 // deadline passed or members ended, see Missing and Failed
	CodeWithdrawn                    // Cancel took effect, see Missing
	CodeGroup                        // invalid group
	CodeRank                         // no such rank
	CodePublished                    // name in use
	CodeNotPublished                 // name not in use
	CodePset                         // no such process set
	CodeLimit                        // over a limit
	CodeNotRelayed                   // Relay failed, send the join to the coordinator
	CodePending                      // other change or integration in progress
)

// codec is created at first use, so that importing ferry runs nothing. Tags are arbitrary Go
// strings.
var codec = sync.OnceValue(func() strictcbor.Codec { return strictcbor.New(MaxElements, cbor.UTF8DecodeInvalid) })

// MaxElements limits every list in a message, the size of a job, and the ranks in context ids.
const MaxElements = 1 << 20

// Decode decodes a body. It returns an error for everything but a T within its limits.
func Decode[T any](body cbor.RawMessage) (T, error) {
	var v T
	err := codec().Unmarshal(body, &v)
	if err == nil {
		err = check(v)
	}
	return v, err
}

// DecodeMessage decodes the content of a frame. The body may share the memory of b.
func DecodeMessage(b []byte) (Message, error) {
	m, err := Message{}, error(nil)
	if head := HeaderSize - 4; len(b) > head && b[0] == arrayOf3 && b[1] <= maxTiny && b[2] == uint64Follows && codec().Wellformed(b[head:]) == nil {
		m.Kind, m.ID, m.Body = Kind(b[1]), binary.BigEndian.Uint64(b[3:]), b[head:] // As Header writes it, without a copy of the body.
	} else {
		m, err = Decode[Message](b)
	}
	if err == nil && (m.Kind < Hello || m.Kind > Note) {
		return Message{}, errors.New("unknown kind of message")
	}
	return m, err
}

// CBOR encoding of a message header.
const (
	arrayOf3      = 0x83
	maxTiny       = 23   // The largest number of one byte.
	uint64Follows = 0x1b // The same length for every id.
)

// EncodeBody encodes a body, which may be sent in several frames.
func EncodeBody(body any) []byte {
	b, err := codec().Marshal(body)
	if err != nil {
		panic(err) // Bodies consist of numbers, texts and bytes.
	}
	return b
}
