package framework

import (
	"errors"
	"fmt"
	"slices"
)

// Incarnation identifies one run of a process between its first and last session. It lasts from the opening of the first session to the close of the last one or the end
// of the process. After its last session a process may open one again, and a failed process may be replaced under its rank. Both are
// further incarnations of the same ProcID. The values are comparable.
type Incarnation struct {
	ID ProcID
	// Nonce is a random number of the incarnation, never 0. Transports identify an incarnation in shared memory or on a socket by it.
	Nonce uint64
}

// Peer is the address of a process for a module.
type Peer struct {
	Incarnation
	Proc Proc
	// Blob is the module's entry in the peer's card, or nil if there is none.
	Blob []byte
}

// ErrPeerClosed is wrapped by errors of operations with a process that has closed its last session. It is not returned for a failed process.
var ErrPeerClosed = errors.New("the peer has closed its session")

// ErrCommClosed is wrapped by the error of a synchronous send if the receiver has closed the communicator and dropped the message. It matches
// ErrPeerClosed, because no receiver is left.
var ErrCommClosed error = commClosed{}

type commClosed struct{}

func (commClosed) Error() string {
	return "the peer has closed the communicator and dropped the message"
}

// Is reports whether target is ErrPeerClosed.
func (commClosed) Is(target error) bool { return target == ErrPeerClosed }

// ErrNotMember is wrapped by errors of operations on a communicator that exists here, and whose creation has failed in the peer.
var ErrNotMember = errors.New("the peer is not in the communicator: creating it failed there")

// ErrPeerDisconnected is wrapped by errors of operations with a process that has disconnected this one, because it could not exchange messages with it.
// Both are alive.
var ErrPeerDisconnected = errors.New("the peer has disconnected this process")

// Address is one component's entry in a business card. The bytes are opaque to others.
type Address struct {
	// For example "btl.shm", the beginning of the component's parameters.
	Component string
	Blob      []byte
}

// ComponentName returns the name of a component in cards, for example "btl.shm".
func ComponentName(kind Kind, name string) string { return string(kind) + "." + name }

// Card is the business card of an incarnation, with the addresses of its components.
type Card []Address

// NodeEntry is the entry of a card with the id of the node.
const NodeEntry = "node"

// WithNode returns the card of a process that is on the node with that id (progress.Env).
func (c Card) WithNode(id string) Card {
	return append(Card{{Component: NodeEntry, Blob: []byte(id)}}, c...)
}

// Node returns the id of the process's node, or "" if it is unknown.
func (c Card) Node() string {
	i := slices.IndexFunc(c, func(a Address) bool { return a.Component == NodeEntry })
	if i < 0 {
		return ""
	}
	return string(c[i].Blob)
}

// OnNode reports whether the process is on the node with that id. It is false for an empty id.
func (c Card) OnNode(id string) bool { return id != "" && c.Node() == id }

// Find returns the entry of a component, or nil if there is none.
func (c Card) Find(kind Kind, name string) []byte {
	for _, a := range c {
		if a.Component == ComponentName(kind, name) {
			return a.Blob
		}
	}
	return nil
}

// Peer returns the address of the process for a component, or an error if the card has no entry for the component.
func (c Card) Peer(incarnation Incarnation, proc Proc, kind Kind, name string) (Peer, error) {
	p := Peer{Incarnation: incarnation, Proc: proc, Blob: c.Find(kind, name)}
	if p.Blob == nil {
		return p, fmt.Errorf("the peer has no address for %s %s: it is not open there", kind, name)
	}
	return p, nil
}
