package threads

import (
	"math/bits"
	"sync"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// message is a message in an unexpected queue, or on its way there. It is a pooled copy of the payload, the message
// of an offer, or a message that the PML below has. The sender owns it until it publishes the cell, and then the
// receiver.
type message struct {
	matchEntry match.Message[message]
	// Payload, nil for an offer.
	payload []byte
	// nil for an eager message.
	offer *offer
	// Rank that has it in its free lists; nil if messagePools have it.
	homeRank *Rank
	nextFree *message

	// Of a message of another process.
	claimed      pml.Claimed // nil for messages of this process.
	claimedBytes int64

	// Of the receiver, once the message has left the ring.
	c     *comm // nil for an early arrival.
	plane pml.Plane
	// It is in the unexpected queue.
	isQueued    bool
	earlyCommID uint64 // shared.teamCommID of an early arrival

	// Of a message that a watcher has.
	watcherClaim base.Claimed
	unmatched    pml.Unmatched // May be nil.
}

// length is that of the message in bytes.
func (m *message) length() int64 {
	switch {
	case m.offer != nil:
		return m.offer.buf.Len()
	case m.claimed != nil:
		return m.claimedBytes
	}
	return int64(len(m.payload))
}

func (m *message) status() pml.Status {
	return pml.Status{Source: m.matchEntry.Source, Tag: m.matchEntry.Tag, Bytes: int(m.length())}
}

// messageCost is the memory of an unmatched message beside its payload, in bytes.
const messageCost = 256

// cost returns the contribution of an unmatched message to Rank.pressureBytes.
// The PML below bounds the memory of its messages.
func (m *message) cost() int64 {
	if m.claimed != nil {
		return 0
	}
	return messageCost + int64(len(m.payload))
}

const (
	smallestClass = 6 // log2 of the smallest buffer of a pooled message
	classes       = 15
)

// messagePools keep messages with their buffers, by size, that belong to no rank's free lists.
var messagePools [classes]sync.Pool

func classOf(n int) int { return max(0, bits.Len(uint(max(n, 1)-1))-smallestClass) }

// newMessage returns a message with room for n bytes of payload, up to 1 MiB.
func newMessage(n int) *message {
	class := classOf(n)
	m, ok := messagePools[class].Get().(*message)
	if !ok {
		m = &message{payload: make([]byte, 1<<(class+smallestClass))}
		m.matchEntry.Owner = m
	}
	m.payload = m.payload[:n]
	return m
}

// free returns a message that is in no queue to its free list or pool. An offer's goes with the offer.
func (m *message) free() {
	if m.offer != nil {
		return
	}
	m.c, m.unmatched = nil, nil
	if m.homeRank != nil {
		m.homeRank.freeMessages.put(m)
		return
	}
	messagePools[classOf(cap(m.payload))].Put(m)
}
