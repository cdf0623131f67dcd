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

// The layout of all frames. docs/wire.md is the reference, and only this file knows offsets.
// Parse functions expect a frame of at least its fixed size, and read each byte once, since
// the peer may change it at any time.

// Frame types, byte 0 of every frame.
const (
	// frameMatch is an eager message.
	frameMatch = 1
	// frameRTS announces a message by its length and a handle.
	frameRTS = 2
	// frameCTS answers an RTS with a limit and the handle of the receive.
	frameCTS = 3
	// frameData has a fragment of an accepted message.
	frameData = 4
	// frameCID has the sender's index of a communicator.
	frameCID = 5
	// frameWithdraw asks the receiver to return an RTS, and frameWithdrawn returns it.
	frameWithdraw  = 6
	frameWithdrawn = 7
	// frameCredit returns credit for unexpected messages.
	frameCredit = 8
	// frameClosed is the sender's last frame on a communicator that it has closed.
	frameClosed = 9
	// frameShare answers an RTS with a share of the receive buffer into which the sender may write.
	frameShare = 10
)

var frameNames = [...]string{"", "match", "RTS", "CTS", "data", "cid", "withdraw", "withdrawn", "credit", "closed", "share"}

// frameSizes are the smallest sizes of frames with a fixed layout. Others are checked as they
// are parsed.
var frameSizes = [...]int{
	frameCTS: ctsSize, frameCID: cidSize, frameClosed: cidSize,
	frameWithdraw: withdrawSize, frameWithdrawn: withdrawSize, frameCredit: creditSize, frameShare: shareSize,
}

// Sizes in bytes.
const (
	// matchSize is the header of frameMatch and frameRTS. With flagExtended, extendedSize follows,
	// in an RTS then rtsSize, and with flagRemote then remoteSize.
	matchSize    = 24
	extendedSize = 24
	rtsSize      = 32
	remoteSize   = 32

	ctsSize = 32
	// dataSize is the header of frameData. Behind the first 8 bytes of a ring's cell, it aligns
	// payload to a cache line.
	dataSize     = 56
	cidSize      = 32
	withdrawSize = 16
	creditSize   = 16
	shareSize    = 64
)

// Byte 1 of frameMatch and frameRTS. The flags of an RTS are flagRemote, flagPut and flagWindow.
const (
	// flagPlane has the pml.Plane.
	flagPlane = 0x03
	// flagExtended adds the extended id of the communicator.
	flagExtended = 0x04
	// flagRemote adds a description of the sender's buffer.
	flagRemote = 0x08
	// flagPut is set if the sender can write into the receiver's memory.
	flagPut = 0x10
	// flagWindow is set if another large message from the sender to this process is in flight, or
	// was with the one before.
	flagWindow = 0x20

	flagsRTSOnly = flagRemote | flagPut | flagWindow
)

const (
	// ctsDropped in byte 1 of a CTS reports that the receiver has dropped the message.
	ctsDropped = 0x80
	// cidInquiry in byte 1 of a frameCID asks whether the receiver is a member of the
	// communicator. A process that will not be answers by a frameClosed.
	cidInquiry = 1
	// closedReply in byte 1 of a frameClosed marks an answer, which is not answered in turn.
	closedReply = 1
	// closedRefused marks an answer of a process that will not create the communicator.
	closedRefused = 2
)

var le = binary.LittleEndian

// encodeAddress returns ob1's entry in a business card. credit is the number of bytes of
// unexpected messages that the process accepts from each peer.
func encodeAddress(credit int64) []byte { return le.AppendUint64(nil, uint64(credit)) }

func parseAddress(b []byte) (credit int64, err error) {
	if len(b) != 8 || le.Uint64(b) > math.MaxInt64 {
		return 0, fmt.Errorf("pml ob1: invalid entry of %d bytes in a business card: it has no credit", len(b))
	}
	return int64(le.Uint64(b)), nil
}

// header is the header of frameMatch and frameRTS.
type header struct {
	flags byte
	// ctx is the receiver's index, which flagExtended replaces.
	ctx cid.Local
	tag int32
	// source is the sender's rank in the communicator.
	source uint32
	// seq counts the messages of the sender to this receiver on the communicator.
	seq uint32
	// to and from are the endpoints of receiver and sender, 0 without flagExtended.
	to, from uint16
}

// putHeader writes a header of matchSize bytes.
func putHeader(b []byte, typ byte, h header) {
	_ = b[matchSize-1]
	le.PutUint32(b[0:], uint32(typ)|uint32(h.flags)<<8|uint32(h.to)<<16)
	le.PutUint32(b[4:], uint32(h.ctx))
	le.PutUint32(b[8:], uint32(h.tag))
	le.PutUint32(b[12:], h.source)
	le.PutUint64(b[16:], uint64(h.seq)|uint64(h.from)<<32)
}

func parseHeader(b []byte) header {
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

func (h header) plane() pml.Plane { return pml.Plane(h.flags & flagPlane) }

func (h header) pattern() pattern {
	if h.flags&flagWindow != 0 {
		return windowed
	}
	return single
}

// eagerWord returns the first word of a compact eager header on plane 0, for a receiver with
// that index.
func eagerWord(local cid.Local) uint64 { return frameMatch | uint64(local)<<32 }

// eagerHeader returns the compact eager header of a message. word is the receiver's eagerWord.
func eagerHeader(word uint64, plane pml.Plane, tag, source int, seq uint64) (h btl.ShortHeader) {
	h.First = word | uint64(plane)<<8
	h.Second = uint64(uint32(tag)) | uint64(source)<<32
	h.Third = uint64(uint32(seq))
	return h
}

// parseEager splits a compact eager header into three words. The first is the eagerWord with
// the plane in bits 8 and 9, the second has the source in its upper half and the tag in its lower.
// Bytes 20 to 23 are not read.
func parseEager(b *[matchSize]byte) (word, tagAndSource uint64, seq uint32) {
	return le.Uint64(b[0:]), le.Uint64(b[8:]), le.Uint32(b[16:])
}

// putExtended writes extendedSize bytes. local is the sender's index.
func putExtended(b []byte, id cid.Extended, local cid.Local) {
	le.PutUint64(b[0:], id.Base)
	le.PutUint64(b[8:], id.Sub)
	le.PutUint64(b[16:], uint64(local))
}

func parseExtended(b []byte) (cid.Extended, cid.Local) {
	return cid.Extended{Base: le.Uint64(b[0:]), Sub: le.Uint64(b[8:])}, cid.Local(le.Uint32(b[16:]))
}

// putRTS writes rtsSize bytes. fragment is the size of the fragment in the RTS, and packTime
// the estimated time to pack it.
func putRTS(b []byte, length int64, handle uint64, fragment int64, packTime time.Duration) {
	le.PutUint64(b[0:], uint64(length))
	le.PutUint64(b[8:], handle)
	le.PutUint64(b[16:], uint64(fragment))
	le.PutUint64(b[24:], uint64(packTime))
}

// maxPackTime bounds the packTime of an RTS, in ns.
const maxPackTime = uint64(time.Second)

// parsedMessage is a parsed frameMatch or frameRTS.
type parsedMessage struct {
	header
	// id and local, the sender's index, are set with flagExtended.
	id    cid.Extended
	local cid.Local

	isRTS bool
	// packTime, handle and remote are set for an RTS. packTime is in ns, handle is the sender's,
	// and an empty remote cannot be read.
	packTime uint32
	// length is that of the whole message.
	length int64
	handle uint64
	remote btl.Remote
	// payload is that of an eager message, or the fragment of an RTS. It is memory of the BTL.
	payload []byte

	// isWithdrawn is set for an early arrival that was withdrawn.
	isWithdrawn bool
}

// parseMessage parses a frameMatch or frameRTS of any size.
func parseMessage(f []byte) (m parsedMessage, err error) {
	if len(f) < matchSize {
		return m, shortFrameError(f)
	}
	m.isRTS = f[0] == frameRTS
	m.header = parseHeader(f)
	if m.flags&^(flagPlane|flagExtended|flagsRTSOnly) != 0 || int(m.plane()) >= pml.Planes || m.flags&flagsRTSOnly != 0 && !m.isRTS {
		return m, fmt.Errorf("message with unknown flags %#x", m.flags)
	}
	f = f[matchSize:]
	if m.flags&flagExtended != 0 {
		if len(f) < extendedSize {
			return m, shortFrameError(f)
		}
		m.id, m.local = parseExtended(f)
		f = f[extendedSize:]
	}
	if !m.isRTS {
		m.payload, m.length = f, int64(len(f))
		return m, nil
	}
	if len(f) < rtsSize {
		return m, shortFrameError(f)
	}
	m.length, m.handle = int64(le.Uint64(f)), le.Uint64(f[8:])
	m.packTime = uint32(min(le.Uint64(f[24:]), maxPackTime))
	if m.flags&flagRemote != 0 {
		if len(f) < rtsSize+remoteSize {
			return m, shortFrameError(f)
		}
		copy(m.remote[:], f[rtsSize:])
		m.payload = f[rtsSize+remoteSize:]
	} else {
		m.payload = f[rtsSize:]
	}
	if fragment := le.Uint64(f[16:]); m.length < 0 || fragment > uint64(m.length) || fragment != uint64(len(m.payload)) {
		return m, fmt.Errorf("RTS of %d bytes announces a fragment of %d bytes and has %d", m.length, fragment, len(m.payload))
	}
	return m, nil
}

func shortFrameError(f []byte) error { return fmt.Errorf("frame ends after %d bytes", len(f)) }

// putData writes the header of a frameData, dataSize bytes. handle is the receiver's.
func putData(b []byte, handle uint64, offset int64) {
	_ = b[dataSize-1]
	le.PutUint64(b[0:], frameData)
	le.PutUint64(b[8:], handle)
	le.PutUint64(b[16:], uint64(offset))
	clear(b[24:dataSize])
}

func parseData(b []byte) (handle uint64, offset int64) {
	_ = b[dataSize-1]
	return le.Uint64(b[8:]), int64(le.Uint64(b[16:]))
}

// controlFrame is a frame without payload, which is queued by value while the path is blocked.
type controlFrame struct {
	size  int
	bytes [shareSize]byte
}

// cts is a parsed frameCTS. limit is the number of bytes that the receiver accepts.
type cts struct {
	advice        byte
	isDropped     bool
	send, receive uint64
	limit         int64
}

func newCTS(send, receive uint64, limit int64) (c controlFrame) {
	c.size = ctsSize
	c.bytes[0] = frameCTS
	le.PutUint64(c.bytes[8:], send)
	le.PutUint64(c.bytes[16:], receive)
	le.PutUint64(c.bytes[24:], uint64(limit))
	return c
}

// newDroppedCTS returns the CTS of a dropped message.
func newDroppedCTS(send uint64) (c controlFrame) {
	c = newCTS(send, 0, 0)
	c.bytes[1] = ctsDropped
	return c
}

func parseCTS(f []byte) cts {
	_ = f[ctsSize-1]
	advice := f[1]
	return cts{advice, advice&ctsDropped != 0, le.Uint64(f[8:]), le.Uint64(f[16:]), int64(le.Uint64(f[24:]))}
}

// share is a parsed frameShare. It lets the sender write the bytes from offset to limit, as
// remote describes.
type share struct {
	send          uint64
	offset, limit int64
	remote        btl.Remote
}

func newShare(s share) (c controlFrame) {
	c.size = shareSize
	c.bytes[0] = frameShare
	le.PutUint64(c.bytes[8:], s.send)
	le.PutUint64(c.bytes[16:], uint64(s.limit))
	le.PutUint64(c.bytes[24:], uint64(s.offset))
	copy(c.bytes[32:], s.remote[:])
	return c
}

func parseShare(f []byte) share {
	return share{send: le.Uint64(f[8:]), limit: int64(le.Uint64(f[16:])), offset: int64(le.Uint64(f[24:])), remote: btl.Remote(f[32:shareSize])}
}

// memberFrame is a parsed frameCID or frameClosed, which have the same fields.
type memberFrame struct {
	flags byte
	// to is the receiver's handle, and from the sender's endpoint.
	to   cid.EndpointID
	from uint16
	// rank and local are the sender's rank and index.
	rank  uint32
	local cid.Local
}

func newMemberFrame(typ byte, m memberFrame) (c controlFrame) {
	c.size = cidSize
	c.bytes[0], c.bytes[1] = typ, m.flags
	le.PutUint16(c.bytes[2:], m.to.Endpoint)
	le.PutUint32(c.bytes[4:], m.rank)
	le.PutUint32(c.bytes[8:], uint32(m.local))
	le.PutUint16(c.bytes[12:], m.from)
	le.PutUint64(c.bytes[16:], m.to.Extended.Base)
	le.PutUint64(c.bytes[24:], m.to.Extended.Sub)
	return c
}

func parseMemberFrame(f []byte) memberFrame {
	_ = f[cidSize-1]
	id := cid.Extended{Base: le.Uint64(f[16:]), Sub: le.Uint64(f[24:])}
	return memberFrame{
		flags: f[1],
		to:    cid.EndpointID{Extended: id, Endpoint: le.Uint16(f[2:])},
		from:  le.Uint16(f[12:]),
		rank:  le.Uint32(f[4:]),
		local: cid.Local(le.Uint32(f[8:])),
	}
}

// newWithdraw returns a frameWithdraw or frameWithdrawn for the send with that handle.
func newWithdraw(typ byte, send uint64) (c controlFrame) {
	c.size = withdrawSize
	c.bytes[0] = typ
	le.PutUint64(c.bytes[8:], send)
	return c
}

func parseWithdraw(f []byte) (send uint64) { return le.Uint64(f[8:]) }

func newCredit(bytes int64) (c controlFrame) {
	c.size = creditSize
	c.bytes[0] = frameCredit
	le.PutUint64(c.bytes[8:], uint64(bytes))
	return c
}

func parseCredit(f []byte) (bytes int64) { return int64(le.Uint64(f[8:])) }
