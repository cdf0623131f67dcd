package ob1

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/cid"
	"github.com/ferrympi/ferry/pml"
)

// Frame types, byte 0 of every frame. docs/wire.md is the reference.
const (
	frameMatch     = 1  // message, eager
	frameRTS       = 2  // message, rendezvous: length and handle instead of payload
	frameCTS       = 3  // the receive has matched: send that much, to this handle
	frameData      = 4  // payload of an accepted message
	frameCID       = 5  // the sender's index of a communicator
	frameWithdraw  = 6  // the sender wants an RTS back
	frameWithdrawn = 7  // it has it
	frameCredit    = 8  // so many bytes of unexpected messages have been received
	frameClosed    = 9  // the sender has closed a communicator, and sends nothing more on it
	frameShare     = 10 // the receive has matched: write a part of the message into its memory
)

// Bits of byte 1 of frameMatch and frameRTS.
const (
	flagPlane    = 0x03 // pml.Plane
	flagExtended = 0x04 // the extended id follows the header
	flagRemote   = 0x08 // of an RTS: where the message lies follows length and handle
	flagWriter   = 0x10 // of an RTS: the sender can write into the receiver's memory
	flagMore     = 0x20 // of an RTS: another of the sender's large messages to this process is under way, or was with its last one
)

const flagsOfRTS = flagRemote | flagWriter | flagMore

// cidInquiry in byte 1 of a frameCID: it asks whether the receiver is in the communicator,
// which answers by a frameClosed if it is not, and will not be.
const cidInquiry = 1

// ctsDropped in byte 1 of a frameCTS: the receiver has dropped the message.
const ctsDropped = 0x80

// closedReply in byte 1 of a frameClosed: it answers one, and needs no answer.
const closedReply = 1

// closedRefused beside it: the sender is not in the communicator, nor will be.
const closedRefused = 2

const (
	matchSize    = 24 // header of frameMatch and frameRTS
	extendedSize = 24 // extended id and the sender's index, behind the header
	rtsSize      = 32 // length, handle and the size of the first part, behind that
	remoteSize   = 32 // a btl.Remote, behind that
	ctsSize      = 32
	dataSize     = 56 // so that payload begins at a cache line
	cidSize      = 32
	withdrawSize = 16
	creditSize   = 16
	shareSize    = 64
)

var le = binary.LittleEndian

// putAddress writes ob1's own entry in a business card: how many bytes of messages
// for which it has no receive yet the process takes from each peer.
func putAddress(credit int64) []byte { return le.AppendUint64(nil, uint64(credit)) }

// parseAddress is the inverse of putAddress.
func parseAddress(b []byte) (credit int64, err error) {
	if len(b) != 8 || le.Uint64(b) > math.MaxInt64 {
		return 0, fmt.Errorf("pml ob1: a business card whose part of %d bytes grants no credit", len(b))
	}
	return int64(le.Uint64(b)), nil
}

// header is the part that all messages have.
type header struct {
	flags  byte
	ctx    cid.Local // the receiver's index; not used with flagExtended
	tag    int32
	source uint32 // rank of the sender in the communicator
	seq    uint32 // of the sender's messages to this receiver on this communicator
	// With flagExtended, the endpoints of their processes that receiver and sender are.
	to, from uint16
}

// putHeader writes a header of matchSize bytes. Bytes 2 and 3 are the destination's
// endpoint, 20 and 21 the source's: 0 without flagExtended, and between whole processes.
func putHeader(b []byte, typ byte, h header) {
	_ = b[matchSize-1]
	le.PutUint32(b[0:], uint32(typ)|uint32(h.flags)<<8|uint32(h.to)<<16)
	le.PutUint32(b[4:], uint32(h.ctx))
	le.PutUint32(b[8:], uint32(h.tag))
	le.PutUint32(b[12:], h.source)
	le.PutUint64(b[16:], uint64(h.seq)|uint64(h.from)<<32)
}

func getHeader(b []byte) header {
	_ = b[matchSize-1]
	return header{
		flags:  b[1],
		ctx:    cid.Local(le.Uint32(b[4:])),
		tag:    int32(le.Uint32(b[8:])),
		source: le.Uint32(b[12:]),
		seq:    le.Uint32(b[16:]),
		to:     le.Uint16(b[2:]),
		from:   le.Uint16(b[20:]),
	}
}

func (h header) depth() uint8 {
	if h.flags&flagMore != 0 {
		return window
	}
	return alone
}

func (h header) plane() pml.Plane { return pml.Plane(h.flags & flagPlane) }

// putExtended writes extendedSize bytes.
func putExtended(b []byte, id cid.Extended, local cid.Local) {
	le.PutUint64(b[0:], id.Base)
	le.PutUint64(b[8:], id.Sub)
	le.PutUint64(b[16:], uint64(local))
}

func getExtended(b []byte) (cid.Extended, cid.Local) {
	return cid.Extended{Base: le.Uint64(b[0:]), Sub: le.Uint64(b[8:])}, cid.Local(le.Uint32(b[16:]))
}

// putRTS writes rtsSize bytes. part is how much of the message follows, and took how long
// the sender was busy with that.
func putRTS(b []byte, length int64, handle uint64, part int64, took time.Duration) {
	le.PutUint64(b[0:], uint64(length))
	le.PutUint64(b[8:], handle)
	le.PutUint64(b[16:], uint64(part))
	le.PutUint64(b[24:], uint64(took))
}

// inMessage is a decoded frameMatch or frameRTS.
type inMessage struct {
	header
	id      cid.Extended // with flagExtended
	local   cid.Local    // the sender's index, with flagExtended
	rts     bool
	took    uint32     // ns in which the sender packed the beginning, of an RTS
	length  int64      // of the whole message
	handle  uint64     // the sender's, of an RTS
	remote  btl.Remote // empty: it can't be read
	payload []byte     // of an eager message; the beginning, of an RTS. The BTL's

	withdrawn bool // see earlyFrame
}

// parseMessage decodes a frameMatch or frameRTS with all that may follow the
// header. It reads each byte once.
func parseMessage(f []byte) (m inMessage, err error) {
	if len(f) < matchSize {
		return m, errShort(f)
	}
	m.rts = f[0] == frameRTS
	m.header = getHeader(f)
	if m.flags&^(flagPlane|flagExtended|flagsOfRTS) != 0 || int(m.plane()) >= pml.Planes || m.flags&flagsOfRTS != 0 && !m.rts {
		return m, fmt.Errorf("message with flags %#x", m.flags)
	}
	f = f[matchSize:]
	if m.flags&flagExtended != 0 {
		if len(f) < extendedSize {
			return m, errShort(f)
		}
		m.id, m.local = getExtended(f)
		f = f[extendedSize:]
	}
	if !m.rts {
		m.payload, m.length = f, int64(len(f))
		return m, nil
	}
	if len(f) < rtsSize {
		return m, errShort(f)
	}
	m.length, m.handle = int64(le.Uint64(f)), le.Uint64(f[8:])
	m.took = uint32(min(le.Uint64(f[24:]), mostTook))
	if m.flags&flagRemote != 0 {
		if len(f) < rtsSize+remoteSize {
			return m, errShort(f)
		}
		copy(m.remote[:], f[rtsSize:])
		m.payload = f[rtsSize+remoteSize:]
	} else {
		m.payload = f[rtsSize:]
	}
	if part := le.Uint64(f[16:]); m.length < 0 || part > uint64(m.length) || part != uint64(len(m.payload)) {
		return m, fmt.Errorf("RTS of %d bytes with a part of %d in %d", m.length, part, len(m.payload))
	}
	return m, nil
}

// mostTook bounds what a sender says that it took.
const mostTook = uint64(time.Second)

// offer is an RTS that has matched.
type offer struct {
	length int64
	handle uint64
	whole  bool // described: it lies in one piece
	remote btl.Remote
	took   time.Duration
	late   bool // it was here before the receive
	depth  uint8
	part   []byte
}

func errShort(f []byte) error { return fmt.Errorf("frame ends after %d bytes", len(f)) }

// control is a frame without payload of a message, small enough to be kept by
// value while the path is blocked.
type control struct {
	size int
	b    [shareSize]byte
}

func ctsFrame(sender, receiver uint64, limit int64) (c control) {
	c.size = ctsSize
	c.b[0] = frameCTS
	le.PutUint64(c.b[8:], sender)
	le.PutUint64(c.b[16:], receiver)
	le.PutUint64(c.b[24:], uint64(limit))
	return c
}

// droppedFrame is the CTS of a message that nobody receives.
func droppedFrame(sender uint64) (c control) {
	c = ctsFrame(sender, 0, 0)
	c.b[1] = ctsDropped
	return c
}

// shareFrame asks for the bytes from from to limit, to be written as d describes.
func shareFrame(sender uint64, limit, from int64, d btl.Remote) (c control) {
	c.size = shareSize
	c.b[0] = frameShare
	le.PutUint64(c.b[8:], sender)
	le.PutUint64(c.b[16:], uint64(limit))
	le.PutUint64(c.b[24:], uint64(from))
	copy(c.b[32:], d[:])
	return c
}

// cidFrame is a frameCID, or a frameClosed, which has the same fields: for the handle to,
// from an endpoint of this process, which is rank and has local as its index.
func cidFrame(typ byte, to cid.EndpointID, from uint16, rank int, local cid.Local) (c control) {
	id := to.Extended
	c.size = cidSize
	c.b[0] = typ
	le.PutUint16(c.b[2:], to.Endpoint)
	le.PutUint32(c.b[4:], uint32(rank))
	le.PutUint32(c.b[8:], uint32(local))
	le.PutUint16(c.b[12:], from)
	le.PutUint64(c.b[16:], id.Base)
	le.PutUint64(c.b[24:], id.Sub)
	return c
}

// getCIDFrame returns the handle that a frameCID or frameClosed is for, and the endpoint of the
// sender's process that it is from.
func getCIDFrame(f []byte) (to cid.EndpointID, from uint16) {
	id := cid.Extended{Base: le.Uint64(f[16:]), Sub: le.Uint64(f[24:])}
	return cid.EndpointID{Extended: id, Endpoint: le.Uint16(f[2:])}, le.Uint16(f[12:])
}

func withdrawFrame(typ byte, handle uint64) (c control) {
	c.size = withdrawSize
	c.b[0] = typ
	le.PutUint64(c.b[8:], handle)
	return c
}

func creditFrame(bytes int64) (c control) {
	c.size = creditSize
	c.b[0] = frameCredit
	le.PutUint64(c.b[8:], uint64(bytes))
	return c
}

func putData(b []byte, handle uint64, offset int64) {
	_ = b[dataSize-1]
	le.PutUint64(b[0:], frameData)
	le.PutUint64(b[8:], handle)
	le.PutUint64(b[16:], uint64(offset))
	clear(b[24:dataSize])
}
