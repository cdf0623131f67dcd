package cid

// Style is a PML's variant of the exchange.
type Style uint8

const (
	// Inline is the style of ob1. Messages flow at once. They carry the extended id and
	// the sender's own local id until the peer's local id is known. The receiver answers
	// the first of them with a reply that carries its own local id.
	Inline Style = iota
	// Held is the style of cm (paper 001 section 3). The peer's local id is part of the
	// tag, so that no message can be sent before it is known. The first send triggers a
	// request on the control channel. Sends are held until the peer's id comes, without
	// blocking their callers.
	Held
)

// Action is a set of actions that the PML performs after an event. A set with Reply starts
// with it.
type Action uint16

const (
	// SendCompact sends this message with the peer's local id, see Remote.
	SendCompact Action = 1 << iota
	// SendExtended sends this message with the communicator's extended id and this
	// process's own local id.
	SendExtended
	// SendRequest sends a control request with the extended id and this process's own
	// local id.
	SendRequest
	// Hold appends this message to the sends that are held for this peer.
	Hold
	// Reply sends this process's own local id to the peer.
	Reply
	// Drain sends the held messages in order, as SendCompact, in any number of calls, and
	// then calls Drained. If Closed, they are dropped instead.
	Drain
	// Conflict reports that the peer has sent an invalid id, or a second one. The state is
	// unchanged. The PML reports a TransportError, because messages of this peer cannot
	// be attributed.
	Conflict
	// Drop counts the message and completes its send, because the peer has closed the
	// communicator.
	Drop

	// SendClosed notifies the member that the communicator is closed here, see CommClose.
	SendClosed
	// SendClosedAck acknowledges the member's close. No more messages are sent to it.
	SendClosedAck
	// FreeIndex frees the index.
	FreeIndex
	// MarkQuiet marks the index as free to be reclaimed, because only unknown senders may
	// still send.
	MarkQuiet
)

// Exchange exchanges the local ids of one communicator between this process and one peer. It
// is a pure state machine. Its methods are events, and return the actions that the PML
// performs.
//
// It is a small value without pointers, one for each pair of communicator and peer, and no
// method allocates. The zero Exchange has style Inline and knows no id. The caller serializes
// the events of one Exchange and the actions on the held sends under one lock. Otherwise a
// send that is held after Drain would remain (facts/openmpi.md, fault 5).
//
// No event waits for the peer (fault 1). A receiver needs no event before the first message.
// Receives from any source, and peers that both send first, need no further messages.
//
// Duplicates have no effect. A second extended message or request is not answered again, and
// a second reply changes nothing. An extended message on a preset Exchange is answered once,
// because its sender lacks the id. Reordering is harmless, because each message of the peer
// carries the same id. An unsolicited reply sets the id like any other message.
type Exchange struct {
	remoteID Local
	style    Style
	// hasReplied is set once the peer was answered.
	hasReplied bool
	// isHolding is set from the request until Drained (Held).
	isHolding bool
	// isClosed is set once the peer receives no more.
	isClosed bool
}

// NewExchange returns an exchange without the peer's id.
func NewExchange(style Style) Exchange { return Exchange{style: style} }

// Known reports whether the peer's local id is known.
func (x *Exchange) Known() bool { return x.remoteID.Valid() }

// Remote returns the peer's local id, NoLocal while it is not known.
func (x *Exchange) Remote() Local { return x.remoteID }

// Closed reports whether the peer has closed the communicator.
func (x *Exchange) Closed() bool { return x.isClosed }

// Preset sets the peer's local id from the group construct, under PolicyAgree and
// PolicyGather, so that no exchange is needed. The action is that of a reply with this id,
// and 0 for a new Exchange.
func (x *Exchange) Preset(peer Local) Action { return x.learn(peer) }

// Send handles a send of the program. The result is SendCompact, SendExtended, Hold,
// SendRequest|Hold or Drop.
func (x *Exchange) Send() Action {
	switch {
	case x.isHolding:
		// This message must not overtake those that Drain is sending.
		return Hold
	case x.isClosed:
		return Drop
	case x.Known():
		return SendCompact
	case x.style == Inline:
		return SendExtended
	}
	x.isHolding = true
	return SendRequest | Hold
}

// RecvExtended handles a message with an extended header, or a request, with the peer's local
// id. The result has Reply for the first of them, and Drain if that ends the holding of sends,
// or it is Conflict.
//
// The reply is sent even if this process has sent an extended message or a request itself. It
// is redundant then, but the peer never depends on a send that may be withdrawn.
func (x *Exchange) RecvExtended(peer Local) Action {
	a := x.learn(peer)
	if a&Conflict == 0 && !x.hasReplied {
		x.hasReplied = true
		a |= Reply
	}
	return a
}

// RecvReply handles the peer's reply with its local id. The result is Drain if that ends the
// holding of sends, Conflict, or 0.
func (x *Exchange) RecvReply(peer Local) Action { return x.learn(peer) }

// RecvClosed handles the peer's close. The peer receives no more on the communicator. The
// result is Drain if sends are held, which are dropped then, or 0. An earlier reply may
// follow, and has no effect.
func (x *Exchange) RecvClosed() Action {
	first := !x.isClosed
	x.isClosed = true
	if first && x.isHolding && !x.Known() { // Otherwise Drain is in progress.
		return Drain
	}
	return 0
}

// Drained ends the holding of sends. It is called once after each Drain, under the lock of
// the held sends, even if all of them were withdrawn. It does nothing while the peer's id is
// not known, so that the request is not repeated.
func (x *Exchange) Drained() {
	if x.Known() || x.isClosed {
		x.isHolding = false
	}
}

func (x *Exchange) learn(peer Local) Action {
	if !peer.Valid() || x.Known() && x.remoteID != peer {
		return Conflict
	}
	first := !x.Known()
	x.remoteID = peer
	if first && x.isHolding && !x.isClosed {
		return Drain
	}
	return 0
}
