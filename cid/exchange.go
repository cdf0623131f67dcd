package cid

// Style says how a PML carries out the exchange.
type Style uint8

const (
	// Inline is ob1's: data flows at once. Every message carries the extended id
	// and the sender's own local id until the peer's local id is known; the
	// receiver answers the first of them with a reply that carries its own.
	Inline Style = iota
	// Held is cm's (paper 001 section 3): a message can't be sent before the
	// peer's local id is known, because that id is part of the tag. The first
	// send triggers a request on the control channel, and sends are held, with
	// no caller waiting, until the peer's id comes.
	Held
)

// Action is a set of things that the PML does after an event. When several are
// set it does Reply first.
type Action uint16

const (
	// SendCompact: send this message with the peer's local id, see Remote.
	SendCompact Action = 1 << iota
	// SendExtended: send this message with the communicator's extended id and
	// this process's own local id.
	SendExtended
	// SendRequest: send a control request with the extended id and this
	// process's own local id.
	SendRequest
	// Hold: append this message to the sends that are held for this peer.
	Hold
	// Reply: send this process's own local id to the peer.
	Reply
	// Drain: the peer's id is known now, and sends are held. Send them in their
	// order, as SendCompact, over as many calls as it takes, and call Drained
	// when none is left. If Closed, they are dropped instead.
	Drain
	// Conflict: the peer named an id that can't be: another one than before, or
	// none. Nothing changed. The PML reports a TransportError, for this peer's
	// messages can't be trusted.
	Conflict
	// Drop: the peer has closed the communicator. The message is counted and goes
	// nowhere, and its send is complete.
	Drop

	// Tell the member that the communicator is closed here, see Rest.
	Tell
	// Answer: tell it that its word has come that the communicator is closed there, and
	// that nothing more is sent to it.
	Answer
	// Rested: the index may be used again.
	Rested
	// Quiet: the index may be used again when others rest for the same reason: only
	// strangers may still send.
	Quiet
)

// Exchange is how one process learns the local id that one peer has for one
// communicator, and tells its own: a pure state machine. Events go in by its
// methods, actions come out, and the PML carries them out.
//
// It is a small value without pointers, to be embedded per (communicator,
// peer); no method allocates. The zero Exchange is an inline one that knows
// nothing. The caller serialises the events of one Exchange together with the
// actions on the held sends, under one lock: a send that is put among the held
// ones after Drain was carried out would stay there (facts/openmpi.md, fault 5).
//
// No event waits for the peer (fault 1). A receiver needs no event before a
// message comes: receives from any source, and peers that both send first,
// need nothing more.
//
// Duplicates do nothing: a second extended message or request is not answered
// again, a second reply changes nothing. An extended message on a preset
// Exchange is answered once, for the peer does not know what it should. Reordering does no harm: any of the
// peer's messages teaches the same id. A reply that was not asked for teaches
// the id, as any other message would.
type Exchange struct {
	remote  Local
	style   Style
	replied bool // the peer was answered
	holding bool // held style: the request is out, and what is held is not drained yet
	closed  bool // the peer takes nothing more
}

// NewExchange returns an exchange that knows nothing yet.
func NewExchange(style Style) Exchange { return Exchange{style: style} }

// Known reports whether the peer's local id is known.
func (x *Exchange) Known() bool { return x.remote.Valid() }

// Remote returns the peer's local id, NoLocal while it is not known.
func (x *Exchange) Remote() Local { return x.remote }

// Closed reports whether the peer has closed the communicator.
func (x *Exchange) Closed() bool { return x.closed }

// Preset says that the peer's local id is known from the construct, under
// PolicyAgree and PolicyGather: no exchange will be needed. The action is that
// of a reply with this id: none for a fresh Exchange.
func (x *Exchange) Preset(peer Local) Action { return x.learn(peer) }

// Send says that the program sends a message to the peer. The result is one of
// SendCompact, SendExtended, Hold, SendRequest|Hold and Drop.
func (x *Exchange) Send() Action {
	switch {
	case x.holding:
		// Also while Drain is carried out: this message must not overtake.
		return Hold
	case x.closed:
		return Drop
	case x.Known():
		return SendCompact
	case x.style == Inline:
		return SendExtended
	}
	x.holding = true
	return SendRequest | Hold
}

// RecvExtended says that a message with an extended header, or a request, came
// from the peer, which calls the communicator peer. The result has Reply for
// the first of them, and Drain if that ends the holding of sends; or it is
// Conflict.
//
// The reply is sent even if this process has itself sent an extended message
// or a request: then it is one message too many, but the peer never depends on
// a send that may still be withdrawn.
func (x *Exchange) RecvExtended(peer Local) Action {
	a := x.learn(peer)
	if a&Conflict == 0 && !x.replied {
		x.replied = true
		a |= Reply
	}
	return a
}

// RecvReply says that the peer's reply came: it calls the communicator peer.
// The result is Drain if that ends the holding of sends, or Conflict, or
// nothing.
func (x *Exchange) RecvReply(peer Local) Action { return x.learn(peer) }

// RecvClosed says that the peer has closed the communicator, and will receive
// nothing more on it. The result is Drain if sends are held, which are dropped
// then, or nothing. It may come before a reply that was sent earlier; that one
// teaches nothing that matters any more.
func (x *Exchange) RecvClosed() Action {
	first := !x.closed
	x.closed = true
	if first && x.holding && !x.Known() { // otherwise they are being drained already
		return Drain
	}
	return 0
}

// Drained says that no send is held any more: the next one goes out at once.
// It is called once after each Drain, under the lock of the held sends, and also
// if all of them were withdrawn meanwhile. While the peer's id is not known it
// does nothing, so that the request is not repeated.
func (x *Exchange) Drained() {
	if x.Known() || x.closed {
		x.holding = false
	}
}

func (x *Exchange) learn(peer Local) Action {
	if !peer.Valid() || x.Known() && x.remote != peer {
		return Conflict
	}
	first := !x.Known()
	x.remote = peer
	if first && x.holding && !x.closed {
		return Drain
	}
	return 0
}
