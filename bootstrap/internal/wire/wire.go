// Package wire is how ferry's processes speak of bootstrap matters: to their launcher
// (bootstrap/local and its server), or among themselves (bootstrap/meet). It is
// frames of a 4-byte big-endian length and one CBOR message, over any stream.
//
// A message is the array [kind, id, body]. Requests have ids of the sender's own
// choice, never 0 and never used again; each is answered once, in any order, by
// Reply or Failure with that id. Put, Life, Disconnect, Broke, Note, Cancel, Keep, Event, Goodbye,
// AliveQuery and AliveAnswer have no Reply, and id 0, but for Cancel.
//
// A launcher's client says Hello first and is answered Welcome or Refused; between
// members a handshake of another form comes before all messages.
//
// What comes in is untrusted: lengths, nesting and array sizes are limited, and
// every error means that the connection is to be closed.
package wire

import (
	"encoding/binary"
	"errors"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"github.com/ferrympi/ferry/internal/strictcbor"
)

// Version is that of the protocol between client and launcher, which must agree exactly, since
// `ferry run` and the program may be built from different sources.
const Version = 7

// Kind says what a message is. All are below 24, so that one is one byte.
type Kind uint8

// The kinds, with the type of their body.
const (
	Hello           Kind = iota + 1 // HelloBody
	Welcome                         // WelcomeBody
	Refused                         // RefusedBody
	Goodbye                         // Empty: the client will close the connection
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
	Reply                           // what the request's line says
	Failure                         // FailureBody
	Event                           // EventBody
	Incarnation                     // IncarnationBody
	Disconnect                      // DisconnectBody
	ReportCommEvent                 // ReportCommEventBody
	Change                          // ChangeBody -> as its operation lists
	Note                            // NoteBody
)

// Messages of a process that checks whether another one runs. They have the kinds of messages that
// only begin a connection.
const (
	AliveQuery  = Hello   // Empty -> AliveAnswer, at once
	AliveAnswer = Refused // Empty
)

// What members say to one another (bootstrap/meet) in place of what only a launcher is told.
const (
	Replicate   = Put             // ReplicateBody
	Relay       = Publish         // RelayBody -> as Fence or Construct
	RepeatReply = Lookup          // Empty: a Reply, whose body is that of the one before on this connection
	GetReplica  = Psets           // GetBody -> ReplicaBody
	CommEvent   = ReportCommEvent // CommEventBody
)

// Message is one frame's content.
type Message struct {
	_    struct{} `cbor:",toarray"`
	Kind Kind
	ID   uint64
	Body cbor.RawMessage
}

// The bodies.
type (
	// Empty is the body of what needs none.
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
	// WelcomeBody accepts a process, whose WORLD is Size ranks from First on. Most is the
	// limit of the job's processes, and Dead lists the deaths so far. Nodes has the nodes of all ranks of
	// WORLD in order, and Divided is bootstrap.Identity's.
	WelcomeBody struct {
		_       struct{} `cbor:",toarray"`
		First   uint32
		Size    uint32
		Most    uint32
		Dead    []EventBody
		Nodes   []NodeRun
		Divided bool
	}
	// RefusedBody says why there is no Welcome.
	RefusedBody struct {
		_      struct{} `cbor:",toarray"`
		Reason string
	}
	// ValuedBody names a value that the sender puts, publishes or reports.
	ValuedBody struct {
		_     struct{} `cbor:",toarray"`
		Name  string
		Value []byte
	}
	// GetBody asks for the value of a rank.
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
	// JoinBody enters a fence or construct. Group is a Runs, left encoded: its
	// bytes, equal in all members, are the key by which the server finds the
	// instance, and only the first member's are decoded.
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
	// CancelBody ends the wait of a request: its deadline passed (Expired), or
	// its caller withdrew. The request is still answered.
	CancelBody struct {
		_       struct{} `cbor:",toarray"`
		Expired bool
	}
	// NameBody names a published value or a process set.
	NameBody struct {
		_    struct{} `cbor:",toarray"`
		Name string
	}
	// LookupBody asks for a published value.
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
		Dynamic bool // It was created after the job started.
	}
	// FailureBody answers a request that failed. Missing and Failed are ranks.
	FailureBody struct {
		_       struct{} `cbor:",toarray"`
		Code    Code
		Text    string
		Missing []uint32
		Failed  []uint32
	}
	// IncarnationBody names the life of the sender that begins; 0: the last one is over in good
	// order.
	IncarnationBody struct {
		_     struct{} `cbor:",toarray"`
		Nonce uint64
	}
	// DisconnectBody says which life of which rank the sender has given up, and why.
	DisconnectBody struct {
		_      struct{} `cbor:",toarray"`
		Rank   uint32
		Nonce  uint64
		Reason string
	}
	// ReportCommEventBody is an event about a communicator for its other members.
	ReportCommEventBody struct {
		_      struct{} `cbor:",toarray"`
		Kind   uint8    // bootstrap.Broken or bootstrap.Revoked
		Comm   [16]byte // cid.Extended.Bytes
		Ranks  []uint32 // of the members
		Reason string
	}
	// NoteBody is a note. Rank is the receiver on the way to a launcher, and the sender on the way
	// to a receiver. From and To are the nonces of the two incarnations; a launcher sets From.
	NoteBody struct {
		_    struct{} `cbor:",toarray"`
		Rank uint32
		From uint64
		To   uint64
		Body []byte
	}
	// ReplicateBody is a value that the sender has put, for the receiver to keep for the time
	// after the sender's. Version counts what the sender has put; with Last, the receiver
	// has all up to there.
	ReplicateBody struct {
		_       struct{} `cbor:",toarray"`
		Version uint64
		Last    bool
		Name    string
		Value   []byte
	}
	// ReplicaBody answers Kept: what is kept of a process, which has all up to Version.
	ReplicaBody struct {
		_       struct{} `cbor:",toarray"`
		Version uint64
		Found   bool
		Value   []byte
	}
	// RelayBody is the JoinBody of another process, Rank, and its Kind.
	RelayBody struct {
		_       struct{} `cbor:",toarray"`
		Rank    uint32
		Kind    Kind
		Tag     string
		Group   cbor.RawMessage
		Payload []byte
	}
	// CommEventBody is an event about a communicator for its members, which all processes pass on. The
	// kind is bootstrap.Broken or bootstrap.Revoked.
	CommEventBody struct {
		_       struct{} `cbor:",toarray"`
		Event   EventBody
		Members Runs
	}
	// EventBody is news. Kind is a bootstrap.EventKind, and Nonce that of the last life of
	// Rank. Life is the receiver's that was given up, Comm a communicator that is broken or revoked.
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

// Code says which error a Failure is.
type Code uint8

// The codes.
const (
	CodeMissing      Code = iota + 1 // deadline passed, or members have ended: Missing, Failed
	CodeWithdrawn                    // a Cancel took effect; Missing says who had not come
	CodeGroup                        // the group is not valid
	CodeRank                         // no such rank
	CodePublished                    // the name is taken
	CodeNotPublished                 // the name is free
	CodePset                         // no such process set
	CodeLimit                        // too large
	CodeNotRelayed                   // a Relay has failed: say it to the leader yourself
	CodePending                      // another change, or the integration of this one, is in progress
)

// codec is made at first use: importing ferry runs nothing. A tag is any Go string.
var codec = sync.OnceValue(func() strictcbor.Codec { return strictcbor.New(MaxElements, cbor.UTF8DecodeInvalid) })

// MaxElements limits every list in a message, and so the size of a job. Context ids have as many ranks.
const MaxElements = 1 << 20

// Decode reads a body. It fails on anything that is not exactly a T within its limits.
func Decode[T any](body cbor.RawMessage) (T, error) {
	var v T
	err := codec().Unmarshal(body, &v)
	if err == nil {
		err = check(v)
	}
	return v, err
}

// DecodeMessage decodes the content of a frame. Body may be part of b.
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

// CBOR of the header of a message.
const (
	arrayOf3      = 0x83
	maxTiny       = 23   // The largest number of one byte.
	uint64Follows = 0x1b // The same length for every id.
)

// EncodeBody encodes a body, which may then go into several frames.
func EncodeBody(body any) []byte {
	b, err := codec().Marshal(body)
	if err != nil {
		panic(err) // bodies are numbers, texts and bytes
	}
	return b
}
