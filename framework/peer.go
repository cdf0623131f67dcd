package framework

import (
	"errors"
	"fmt"
	"slices"
)

// Life names one life of a process: from opening the first session, or starting
// again after a failure, to the end of the last session or of the process. A
// process that closes its last session and opens one again, and one that was
// replaced under its rank, are other lives of the same ProcID. Lives compare with
// ==, and are keys of maps.
type Life struct {
	ID ProcID
	// Nonce is drawn at random when the life begins; it is never 0 and means nothing
	// else. Whoever finds it in a peer's memory or hears it on a socket knows whom he has met.
	Nonce uint64
}

// Peer is what a module needs to know of a process to connect with it.
type Peer struct {
	Life
	Proc Proc
	Blob []byte // what this component's module put into the peer's card; nil: nothing
}

// ErrPeerClosed is wrapped by the error of what can't be done because the other
// process has closed its last session in good order. It is not returned for one
// that died.
var ErrPeerClosed = errors.New("the peer has closed its session")

// ErrCommClosed is wrapped by the error of a synchronous send whose receiver has dropped the
// message, because it closed the communicator. errors.Is finds ErrPeerClosed in it, since nobody
// is left who would receive.
var ErrCommClosed error = commClosed{}

type commClosed struct{}

func (commClosed) Error() string {
	return "the peer has closed the communicator and dropped the message"
}

// Is reports whether target is ErrPeerClosed.
func (commClosed) Is(target error) bool { return target == ErrPeerClosed }

// ErrNotMember is wrapped by the error of what can't be done because the communicator came
// to exist here and not in the other process, where its creation failed.
var ErrNotMember = errors.New("the peer is not in the communicator: creating it failed there")

// ErrGivenUp is wrapped by the error of what can't be done because the other process can't
// exchange anything with this one, and has said so. Both are alive.
var ErrGivenUp = errors.New("the peer has given this process up")

// Address is one component's entry in a business card. Only that component reads
// the bytes.
type Address struct {
	Component string // kind and name, as parameters begin: "btl.shm"
	Blob      []byte
}

// ComponentName is the name of a component in cards: "btl.shm".
func ComponentName(kind Kind, name string) string { return string(kind) + "." + name }

// Card is a process's business card: where each of its components is reached. It
// belongs to one life.
type Card []Address

// NodeEntry is the entry of a card with the id of the node.
const NodeEntry = "node"

// WithNode returns the card of a process that is on the node with that id (progress.Env).
func (c Card) WithNode(id string) Card {
	return append(Card{{Component: NodeEntry, Blob: []byte(id)}}, c...)
}

// Node returns the id of the node on which the process is; empty: not known.
func (c Card) Node() string {
	i := slices.IndexFunc(c, func(a Address) bool { return a.Component == NodeEntry })
	if i < 0 {
		return ""
	}
	return string(c[i].Blob)
}

// OnNode reports whether the process is on the node with that id. An empty id is no
// node's.
func (c Card) OnNode(id string) bool { return id != "" && c.Node() == id }

// Find returns what the component put into the card; nil if it has no entry.
func (c Card) Find(kind Kind, name string) []byte {
	for _, a := range c {
		if a.Component == ComponentName(kind, name) {
			return a.Blob
		}
	}
	return nil
}

// Peer returns what a module of the component needs to connect with the process
// whose card it is, or an error that says that the card has no entry for it.
func (c Card) Peer(life Life, proc Proc, kind Kind, name string) (Peer, error) {
	p := Peer{Life: life, Proc: proc, Blob: c.Find(kind, name)}
	if p.Blob == nil {
		return p, fmt.Errorf("the peer has no address for %s %s: it is not open there", kind, name)
	}
	return p, nil
}
