package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/ferrympi/ferry/btl"
)

var le = binary.LittleEndian

// kind is the type of a frame.
type kind uint8

const (
	// A path to the reader begins. u64 number of the path.
	kindOpen kind = iota + 1
	// A frame of that path.
	kindFrame
	// The writer has closed the path.
	kindLeave
	// The writer reads a path no more. u64 number of the path, and the reason.
	kindRefuse
	// The writer closes its session. This is the last frame.
	kindBye
	// Only an ack. It has no number.
	kindAck
)

// flagAckRequest requests an ack of all frames before header.number.
const flagAckRequest = 1

// headerSize is the size of a header, in little-endian: u32 body size, u8 kind, u8 flags, u16 size of the
// gather header, u64 number, u64 ack.
const headerSize = 24

type header struct {
	bodySize int
	kind     kind
	flags    uint8
	// 0 if the frame was built in place.
	gatherSize int
	number     uint64
	ackedUpTo  uint64
}

func (h *header) encode(b []byte) {
	le.PutUint32(b, uint32(h.bodySize))
	b[4], b[5] = byte(h.kind), h.flags
	le.PutUint16(b[6:], uint16(h.gatherSize))
	le.PutUint64(b[8:], h.number)
	le.PutUint64(b[16:], h.ackedUpTo)
}

// setFlags and setAck change an encoded header.
func setFlags(b []byte, flags uint8) { b[5] = flags }
func setAck(b []byte, upTo uint64)   { le.PutUint64(b[16:], upTo) }

// maxReasonSize is the longest reason of kindRefuse in bytes.
const maxReasonSize = 200

// readHeader decodes and checks a header. limit is the frame limit.
func readHeader(b []byte, limit int) (h header, err error) {
	size := le.Uint32(b)
	h = header{kind: kind(b[4]), flags: b[5], gatherSize: int(le.Uint16(b[6:])), number: le.Uint64(b[8:]), ackedUpTo: le.Uint64(b[16:])}
	ok := h.gatherSize == 0
	switch h.kind {
	case kindOpen:
		ok = ok && size == 8
	case kindFrame:
		ok = size >= 1 && int64(size) <= int64(limit) && h.gatherSize <= btl.GatherHeader && (h.gatherSize == 0 || int64(h.gatherSize) < int64(size))
	case kindRefuse:
		ok = ok && size >= 8 && size <= 8+maxReasonSize
	case kindLeave, kindBye, kindAck:
		ok = ok && size == 0
	default:
		ok = false
	}
	if !ok || h.flags&^flagAckRequest != 0 {
		return h, fmt.Errorf("%w: frame kind %d, %d bytes, gather header %d bytes, flags %#x", errDamaged, h.kind, size, h.gatherSize, h.flags)
	}
	h.bodySize = int(size)
	return h, nil
}
