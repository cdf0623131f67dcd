package tcp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
)

// sendWindow has the frames to the peer, firstUnacked to nextNumber-1.
type sendWindow struct {
	byteLimit    int
	ring         []frame
	firstUnacked uint64
	firstUnsent  uint64
	nextNumber   uint64
	// Frames before it are acked. At most firstUnsent.
	ackedUpTo uint64
	// Ascending.
	retransmitQueue []uint64
	// By slot.
	queues              []linkQueue
	bytesUsed           int
	bytesUnsent         int
	framesRetransmitted uint64
}

// frame is a frame that the peer has not acked.
type frame struct {
	// Header and copied bytes.
	bytes []byte
	// Borrowed from its owner until completion.
	payload     []byte
	completion  btl.LocalCompletion
	chunk       *chunk
	chunkOffset int
	// Link that carries it, or -1.
	slot    int8
	wasSent bool
}

func (f *frame) size() int { return len(f.bytes) + len(f.payload) }

// cost returns the bytes that the frame takes of the window.
func (f *frame) cost() int { return f.size() + frameOverhead }

// frameOverhead is the bookkeeping of a frame in bytes.
const frameOverhead = 112

// linkQueue is a link as the path sees it.
type linkQueue struct {
	isUp              bool
	isSocketFull      bool
	bytesUnacked      int
	queuedFrames      []uint64
	firstFrameWritten int
	bytesQueued       int
	// Goes between two frames.
	pendingAck []byte
}

var (
	errDamaged     = errors.New("damaged data")
	errUnsentAcked = fmt.Errorf("%w: ack of a frame that was not sent", errDamaged)
	errNumberAhead = fmt.Errorf("%w: frame number beyond the window", errDamaged)
)

func (p *sendWindow) frameAt(number uint64) *frame { return &p.ring[number&uint64(len(p.ring)-1)] }

// hasRoom reports whether the window has room for n bytes, header included.
func (p *sendWindow) hasRoom(n int) bool { return p.bytesUsed+n+frameOverhead <= p.byteLimit }

// isOverfull reports whether control frames, which ignore the window, exceed it by its own size.
func (p *sendWindow) isOverfull() bool { return p.bytesUsed > 2*p.byteLimit }

// maxFramesInFlight returns the number of frames that fit into a window, with a margin for control frames.
func maxFramesInFlight(window int) uint64 { return uint64(2*window/(headerSize+frameOverhead)) + 16 }

func (p *sendWindow) growRing(n int) {
	old, size := p.ring, uint64(len(p.ring))
	p.ring = make([]frame, n)
	for i := p.firstUnacked; i < p.nextNumber; i++ {
		*p.frameAt(i) = old[i&(size-1)]
	}
}

// shrinkRing frees the ring after a burst.
func (p *sendWindow) shrinkRing() {
	if p.firstUnacked == p.nextNumber && len(p.ring) > 64 {
		p.ring = nil
	}
}

// hasUnsent reports whether a frame waits for a link.
func (p *sendWindow) hasUnsent() bool {
	return p.firstUnsent != p.nextNumber || len(p.retransmitQueue) > 0
}

// isIdle reports whether all frames are acked.
func (p *sendWindow) isIdle() bool { return p.firstUnacked == p.nextNumber }

func (p *sendWindow) isUp(link int) bool { return link < len(p.queues) && p.queues[link].isUp }

// countUp returns the number of links.
func (p *sendWindow) countUp() (n int) {
	for i := range p.queues {
		if p.queues[i].isUp {
			n++
		}
	}
	return n
}

// recordAck records that the peer has received all frames before upTo. Frames that a link is writing stay
// until popAcked.
func (p *sendWindow) recordAck(upTo uint64) error {
	if upTo > p.firstUnsent {
		return errUnsentAcked
	}
	p.ackedUpTo = max(p.ackedUpTo, upTo)
	return nil
}

// popAcked removes the first frame if it is acked and no link is writing it. The caller frees its memory
// and completes its payload.
func (p *sendWindow) popAcked() (f frame, ok bool) {
	if p.firstUnacked >= p.ackedUpTo {
		return f, false
	}
	at := p.frameAt(p.firstUnacked)
	if at.slot >= 0 {
		c := &p.queues[at.slot]
		if len(c.queuedFrames) > 0 && slices.Contains(c.queuedFrames, p.firstUnacked) {
			return f, false
		}
		c.bytesUnacked -= at.cost()
	} else if len(p.retransmitQueue) > 0 && p.retransmitQueue[0] == p.firstUnacked {
		p.retransmitQueue = slices.Delete(p.retransmitQueue, 0, 1)
	}
	f = *at
	*at = frame{}
	p.firstUnacked++
	p.bytesUsed -= f.cost()
	return f, true
}

// batchBytes makes a system call worthwhile, and leaves frames for the other links.
const (
	batchBytes  = 256 << 10
	batchFrames = 256
)

// assignFrames assigns waiting frames to the link with the fewest unacked bytes. It returns a slot with
// something to write, or -1.
func (p *sendWindow) assignFrames() int {
	chosen, hasChoice := -1, false
	for i := range p.queues {
		c := &p.queues[i]
		if !c.isUp || c.isSocketFull {
			continue
		}
		if len(c.queuedFrames) > 0 || len(c.pendingAck) > 0 {
			return i
		}
		hasChoice = hasChoice || chosen >= 0
		if chosen < 0 || c.bytesUnacked < p.queues[chosen].bytesUnacked {
			chosen = i
		}
	}
	if chosen < 0 || !p.hasUnsent() {
		return -1
	}
	c, limit := &p.queues[chosen], batchBytes
	if hasChoice {
		// The next frame may go to another link.
		limit = 1
	}
	for p.hasUnsent() && c.bytesQueued < limit && len(c.queuedFrames) < batchFrames {
		number := p.firstUnsent
		if len(p.retransmitQueue) > 0 {
			number = p.retransmitQueue[0]
			p.retransmitQueue = slices.Delete(p.retransmitQueue, 0, 1)
		} else {
			p.firstUnsent++
			p.bytesUnsent -= p.frameAt(number).size()
		}
		f := p.frameAt(number)
		if f.wasSent {
			p.framesRetransmitted++
		}
		f.slot, f.wasSent = int8(chosen), false
		c.queuedFrames = append(c.queuedFrames, number)
		c.bytesUnacked += f.cost()
		c.bytesQueued += f.size()
	}
	return chosen
}

// recordWritten records that the socket of a link has taken n bytes of its pieces.
func (p *sendWindow) recordWritten(link, n int) {
	c := &p.queues[link]
	k := min(n, len(c.pendingAck))
	if c.pendingAck = c.pendingAck[k:]; len(c.pendingAck) == 0 {
		c.pendingAck = nil
	}
	n -= k
	done := 0
	for n > 0 {
		f := p.frameAt(c.queuedFrames[done])
		f.wasSent = true
		rest := f.size() - c.firstFrameWritten
		if n < rest {
			c.firstFrameWritten += n
			break
		}
		n -= rest
		c.bytesQueued -= rest + c.firstFrameWritten
		c.firstFrameWritten = 0
		done++
	}
	if c.queuedFrames = slices.Delete(c.queuedFrames, 0, done); len(c.queuedFrames) == 0 {
		c.queuedFrames = c.queuedFrames[:0]
	}
}

// bytesQueued returns roughly the bytes that the sockets have not taken.
func (p *sendWindow) bytesQueued() int {
	n := p.bytesUnsent + len(p.retransmitQueue)
	for i := range p.queues {
		n += p.queues[i].bytesQueued + len(p.queues[i].pendingAck) - p.queues[i].firstFrameWritten
	}
	return n
}
