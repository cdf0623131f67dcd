package btl

import (
	"encoding/binary"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/progress"
)

// What a module may do beyond the contract. A protocol asks for each ability once, by
// framework.As: when the module is open, or when a path opens; a module asks the
// Inbound that Accept returned. What is said of the engine's lock holds here, too.

// ShortHeader is the header of a short frame. A protocol's bytes in the order of the
// frame are the words' bytes in little-endian order.
type ShortHeader struct{ First, Second, Third uint64 }

// ShortHeaderSize is the size of a ShortHeader in bytes.
const ShortHeaderSize = 24

// Put writes ShortHeaderSize bytes.
func (h ShortHeader) Put(b []byte) {
	_ = b[ShortHeaderSize-1]
	binary.LittleEndian.PutUint64(b[0:], h.First)
	binary.LittleEndian.PutUint64(b[8:], h.Second)
	binary.LittleEndian.PutUint64(b[16:], h.Third)
}

// ShortSender is an optional ability of an Endpoint: one call sends a frame, which costs
// less than Reserve and Commit.
type ShortSender interface {
	// SendShort sends one frame: a header, and behind it a payload, which is copied and
	// the caller's again. It reports false, and nothing has happened, if it would block.
	// The frame is not larger than FrameLimit. A reservation is dropped.
	SendShort(h ShortHeader, payload []byte) bool
}

// SendShort is ShortSender.SendShort by Reserve and Commit.
func SendShort(e Endpoint, h ShortHeader, payload []byte) bool {
	n := ShortHeaderSize + len(payload)
	b := e.Reserve(n)
	if b == nil {
		return false
	}
	h.Put(b)
	copy(b[ShortHeaderSize:], payload)
	e.Commit(n)
	return true
}

// Short returns the ability of an endpoint, or one that is made of Reserve and Commit.
func Short(e Endpoint) ShortSender {
	if s, ok := framework.As[ShortSender](e); ok {
		return s
	}
	return byReserve{e}
}

type byReserve struct{ Endpoint }

func (e byReserve) SendShort(h ShortHeader, payload []byte) bool {
	return SendShort(e.Endpoint, h, payload)
}

// WideReserver is an optional ability of an Endpoint whose frames lie in memory that both
// processes map. Reserve puts large frames into little of it, which the caches of both cores
// hold, as long as the peer keeps up. That is fast where cores take lines out of each other's
// caches quickly.
type WideReserver interface {
	// ReserveWide is Reserve in all of the memory by turns: in lines that have left both
	// caches since they were used last.
	ReserveWide(n int) []byte
}

// GatherHeader is the most that Gather takes as a header, in bytes.
const GatherHeader = 64

// Gatherer is an optional ability of an Endpoint: the payload of a frame is sent from
// where it lies.
type Gatherer interface {
	// Gather sends one frame: a header of 1 to GatherHeader bytes, which is copied, and
	// behind it a payload of at least one byte, together not more than FrameLimit. It
	// reports false, and nothing has happened, if it would block. Otherwise the module
	// reads the payload, which stays as it is, until it calls c, once. That may be
	// before Gather returns. A reservation is dropped.
	//
	// When PathDown or PeerGone is called, and when Close of the endpoint returns, no
	// payload is read any more, and all calls have been made: a frame that was not out
	// is dropped, with those behind it. Idle is false while a call is to come.
	Gather(header, payload []byte, c LocalCompletion) bool
}

// LocalCompletion is told that a payload is its owner's again.
type LocalCompletion interface {
	// LocallyComplete is called with the engine's lock held, from Gather, Close of the
	// endpoint, or Poll. It does not call the endpoint.
	LocallyComplete()
}

// Placer is an optional ability of an Inbound: the payload of a frame goes straight to
// where it belongs.
type Placer interface {
	// Place returns where the payload of a frame belongs that Gather has sent: size
	// bytes. header is what Gather was given, as a peer has sent it, and the module's
	// again when Place returns. nil: there is no such place, and the module hands the
	// frame up by Frame.
	//
	// The bytes are the module's until its Poll returns. If the payload is not complete
	// by then, it asks again in a later Poll, with the same header and size, and goes on
	// where it stopped. nil then: what the payload was for has ended. The module drops
	// the frame and goes on with the next one.
	Place(header []byte, size int) []byte

	// Placed says, in the Poll of the last Place, that all of the payload is there. The
	// error is as that of Frame.
	Placed(header []byte, size int) error
}

// Forgetter is an optional ability of a Module: a peer is dead for certain, and
// what the module keeps for it can go. Frames that have come were polled before.
type Forgetter interface {
	Forget(peer framework.Life)
}

// Renewer is an optional ability of a Module: this process and a peer, which is alive, begin
// afresh, because one has given the other up. What the module keeps of their paths of before
// can go, and nothing more is said of these. Neither end opens another path to the other one
// until both have been called.
type Renewer interface {
	Renew(peer framework.Life)
}

// Looker is an optional ability of a Module whose Poll does not always look at everything,
// because that costs.
type Looker interface {
	// Look is a Poll that does: 0 says that nothing has come.
	Look() int
}

// Describer is an optional ability of a Module: what carries the frames of one peer, for
// people.
type Describer interface {
	// Describe says how the module reaches peer, or would. It sends nothing.
	Describe(peer framework.Peer) Description
}

// Description is how a module reaches one peer.
type Description struct {
	Device     string                // in place of Caps.Device: what is of both ends; may be empty
	Notes      []string              // connections and their state
	Unused     []framework.Rejection // addresses of both ends that carry nothing now, and why
	Reconnects uint64                // connections that were made again after one was lost
	Resent     uint64                // frames that went again
}

// LinkWatcher is an optional ability of a Receiver: it hears of what goes on beneath a path
// that goes on.
type LinkWatcher interface {
	// Link says that a connection to peer came or went, in words. Called as the others.
	Link(peer framework.Life, note string)
}

// CardHolder is an optional ability of a Receiver: it knows processes to which there is no
// path yet.
type CardHolder interface {
	// Card returns what Connect would be given to connect with peer, or false if the
	// peer's card has not come, or has no entry of the module's. Called as the others.
	Card(peer framework.Life) (framework.Peer, bool)
}

// PeerPoller is an optional ability of a Module: polling one peer's path costs
// less than Poll. A blocking receive from a known source asks for it.
type PeerPoller interface {
	// PeerSource returns a source that polls only the path from peer, or nil
	// while there is none. It stays valid until the module closes.
	PeerSource(peer framework.Life) progress.Source
}

// Peeker is an optional ability of what PeerSource returns: who waits for one
// frame can look at it where it lies, instead of having it handed up.
type Peeker interface {
	// Peek returns the next frame of the path, or nil if looking that many times
	// found none. A look is some 25 ns, a load and a pause: a module whose looks take longer, such as
	// system calls, looks as many times less. The frame is the module's and valid until the next
	// call of Drop or Poll; without Drop a Poll hands it up. Something else may lie before
	// it, which only a Poll takes: Peek finds nothing until then.
	Peek(looks int) []byte

	// Drop is done with the frame that Peek has just returned.
	Drop()
}

// Sharer is an optional ability of a Module: processes of one node share memory that
// several of them write to, and wake each other. Its methods are called without the engine's
// lock.
type Sharer interface {
	// NewArea makes an area of size bytes, zero, which peers may open. Its space is
	// reserved: that there is no room for it is an error here.
	NewArea(size int) (*Area, error)

	// OpenArea opens an area that the peer has made, of that number and size.
	OpenArea(peer framework.Peer, number uint32, size int) (*Area, error)

	// BellOf returns a peer's bell. release is called when it is not used any more.
	BellOf(peer framework.Peer) (bell progress.RemoteBell, release func(), err error)
}

// Area is memory that processes of one node share. Bytes begins at a multiple of the page
// size. What peers write there is their word. An area belongs to the process that opened it, until
// he closes it, also when the module has been closed.
type Area struct {
	Number uint32 // by which peers open it, among those of the process that made it
	Bytes  []byte
	// Hide has nobody open it any more, if this process made it: no file and no descriptor
	// is left of it, and its memory goes with the last one that uses it.
	Hide func()
	// Close hides and unmaps it: Bytes must not be touched any more.
	Close func()
}
