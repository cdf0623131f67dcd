package mpi

import (
	"encoding/binary"
	"fmt"
	"math"
)

// partitionKind is the kind of a message of partitioned communication.
type partitionKind uint8

const (
	clearToSend     partitionKind = iota + 1 // From the receiver, at each of its starts.
	partitionData                            // Payload behind the header.
	partitionNext                            // Payload in the next message.
	partitionRefuse                          // From the sender, if the lengths differ. It ends the round.
)

// partitionHeader begins each message, except for the payload behind partitionNext.
type partitionHeader struct {
	kind partitionKind
	tag  int
	// Number of earlier initializations with the tag, in that direction between the two ranks.
	initIndex uint64
	// Start of the operation that the message belongs to, from 1.
	round uint64
	// Of the payload. offset is the length of the whole buffer in clearToSend and partitionRefuse, where length
	// is the number of partitions.
	offset, length uint64
}

const (
	partitionHeaderSize  = 40
	partitionMessageSize = 4096 // Longest message with a header.
)

// appendTo appends the encoded header to b.
func (h *partitionHeader) appendTo(b []byte) []byte {
	b = append(b, byte(h.kind), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.tag))
	for _, v := range [...]uint64{h.initIndex, h.round, h.offset, h.length} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// parsePartitionHeader decodes a message, and returns its payload.
func parsePartitionHeader(b []byte) (h partitionHeader, payload []byte, err error) {
	if len(b) < partitionHeaderSize {
		return h, nil, fmt.Errorf("message of %d bytes without a header", len(b))
	}
	tag := binary.LittleEndian.Uint32(b[4:])
	h = partitionHeader{
		kind: partitionKind(b[0]), tag: int(tag), initIndex: binary.LittleEndian.Uint64(b[8:]), round: binary.LittleEndian.Uint64(b[16:]),
		offset: binary.LittleEndian.Uint64(b[24:]), length: binary.LittleEndian.Uint64(b[32:]),
	}
	payload = b[partitionHeaderSize:]
	expected := uint64(0)
	if h.kind == partitionData {
		expected = h.length
	}
	switch {
	case h.kind < clearToSend || h.kind > partitionRefuse || b[1]|b[2]|b[3] != 0 || tag > math.MaxInt32:
		return h, nil, fmt.Errorf("invalid header % x", b[:8])
	case uint64(len(payload)) != expected:
		return h, nil, fmt.Errorf("payload of %d bytes in place of %d", len(payload), expected)
	}
	return h, payload, nil
}
