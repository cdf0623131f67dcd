package tcp

import (
	"encoding/binary"
	"fmt"

	"github.com/ferrympi/ferry/btl"
)

var le = binary.LittleEndian

// kind says what a link carries behind a header.
type kind uint8

const (
	kindOpen   kind = iota + 1 // a path to the reader begins; u64 its number
	kindFrame                  // a frame of that path
	kindLeave                  // the path ends: its sender has closed it
	kindRefuse                 // the reader of a path from here to there reads no more; u64 its number, and why
	kindBye                    // the writer closes in good order; nothing follows
	kindAck                    // nothing but what is confirmed; it has no number of its own
)

// Flags of a header.
const flagAckRequest = 1 // the writer waits for the confirmation of all before header.number

// headerSize is what stands before each frame, little-endian: u32 size of what follows,
// u8 kind, u8 flags, u16 how much of it Gather was given as a header, u64 number, u64 up to
// which number the writer has received all.
const headerSize = 24

type header struct {
	bodySize   int
	kind       kind
	flags      uint8
	gatherSize int // bytes; 0: the frame was built in place
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

// setFlags and putConfirmed change a header that is there.
func setFlags(b []byte, flags uint8) { b[5] = flags }
func setAck(b []byte, upTo uint64)   { le.PutUint64(b[16:], upTo) }

// maxReasonSize is the most that is said of why a path is not read any more, in bytes.
const maxReasonSize = 200

// readHeader reads what a peer has written: headerSize bytes. limit is what its frames may
// have.
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
		return h, fmt.Errorf("%w: kind %d with %d bytes, %d of them gathered, flags %#x", errDamaged, h.kind, size, h.gatherSize, h.flags)
	}
	h.bodySize = int(size)
	return h, nil
}
