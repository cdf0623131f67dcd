package tcp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
)

// path is the state of the frames between two processes while links come and go. It has no
// socket and no clock, so that scripts test it. Links are named by their slots.
//
// A frame gets its number when it is committed, and stays until the peer has acked it. It leaves
// on the link with the fewest unacked bytes. Frames of a lost link are retransmitted first.
type path struct {
	sendWindow
	recvWindow
}

// sendWindow has the frames to the peer, firstUnacked to nextNumber-1.
type sendWindow struct {
	// Bytes.
	limit        int
	ring         []frame
	firstUnacked uint64
	firstUnsent  uint64
	nextNumber   uint64
	// Frames before it are acked. At most firstUnsent.
	ackedUpTo uint64
	// Ascending.
	retransmitQueue []uint64
	// By slot.
	queues      []linkQueue
	bytesUsed   int
	bytesUnsent int
	// Frames, since the start.
	retransmitted uint64
}

// recvWindow has the numbers of the frames from the peer.
type recvWindow struct {
	nextExpected uint64
	// Frames that the peer may have in flight.
	maxAhead    uint64
	lastAckSent uint64
	// Bytes received since then.
	ackOwedBytes int
	// The peer waits for the ack of all frames before it.
	ackRequestedUpTo uint64
	// Links that ended because of damaged data.
	damagedLinks int
}

// maxLinks is the largest number of links with a peer.
const maxLinks = 16

// frame is a frame that the peer has not acked.
type frame struct {
	// Header and copied bytes.
	bytes []byte
	// Of a gathered frame; its owner's until completion.
	payload []byte
	// nil if none is owed.
	completion btl.LocalCompletion
	// Memory of bytes.
	chunk *chunk
	// Of bytes in chunk.
	offset int
	// Link that carries it, or -1.
	slot int8
	// A socket has taken a part of it.
	wasSent bool
}

func (f *frame) size() int { return len(f.bytes) + len(f.payload) }

// cost returns the bytes that the frame takes of the window.
func (f *frame) cost() int { return f.size() + frameOverhead }

// frameOverhead is the bookkeeping of a frame in bytes.
const frameOverhead = 112

// linkQueue is a link as the path sees it.
type linkQueue struct {
	isUp bool
	// The socket is full.
	isBlocked bool
	// Of the frames that the link carries.
	bytesUnacked int
	// Frames that the socket has not taken, in order.
	frames []uint64
	// Of the first of them.
	bytesWritten int
	bytesQueued  int
	// Goes between two frames.
	pendingAck []byte
}

var (
	errDamaged     = errors.New("damaged data")
	errUnsentAcked = fmt.Errorf("%w: it confirms a frame that was not sent", errDamaged)
	errNumberAhead = fmt.Errorf("%w: a frame number far ahead", errDamaged)
)

func (p *path) frameAt(number uint64) *frame { return &p.ring[number&uint64(len(p.ring)-1)] }

// hasRoom reports whether the window has room for n bytes, header included.
func (p *path) hasRoom(n int) bool { return p.bytesUsed+n+frameOverhead <= p.limit }

// isOverfull reports whether control frames, which ignore the window, exceed it by its own size.
func (p *path) isOverfull() bool { return p.bytesUsed > 2*p.limit }

// maxFramesInFlight returns the number of frames that fit into a window, with a margin for control frames.
func maxFramesInFlight(window int) uint64 { return uint64(2*window/(headerSize+frameOverhead)) + 16 }

// push assigns the next number to a frame, and fills number and ack into its header.
func (p *path) push(f frame) uint64 {
	if n := p.nextNumber - p.firstUnacked; n == uint64(len(p.ring)) {
		p.growRing(max(4, 2*int(n)))
	}
	number := p.nextNumber
	p.nextNumber++
	le.PutUint64(f.bytes[8:], number)
	setAck(f.bytes, p.nextExpected)
	f.slot = -1
	p.bytesUsed += f.cost()
	p.bytesUnsent += f.size()
	*p.frameAt(number) = f
	return number
}

func (p *path) growRing(n int) {
	old, size := p.ring, uint64(len(p.ring))
	p.ring = make([]frame, n)
	for i := p.firstUnacked; i < p.nextNumber; i++ {
		*p.frameAt(i) = old[i&(size-1)]
	}
}

// shrinkRing frees the ring after a burst.
func (p *path) shrinkRing() {
	if p.firstUnacked == p.nextNumber && len(p.ring) > 64 {
		p.ring = nil
	}
}

// hasUnsent reports whether a frame waits for a link.
func (p *path) hasUnsent() bool { return p.firstUnsent != p.nextNumber || len(p.retransmitQueue) > 0 }

// isIdle reports whether all frames are acked.
func (p *path) isIdle() bool { return p.firstUnacked == p.nextNumber }

// linkUp adds a link. The peer has received all frames before ackedUpTo.
func (p *path) linkUp(link int, ackedUpTo uint64) error {
	if err := p.recordAck(ackedUpTo); err != nil {
		return err
	}
	for link >= len(p.queues) {
		p.queues = append(p.queues, linkQueue{})
	}
	p.queues[link] = linkQueue{isUp: true}
	return nil
}

func (p *path) isUp(link int) bool { return link < len(p.queues) && p.queues[link].isUp }

// linkDown removes a link, and queues its frames for retransmission.
func (p *path) linkDown(link int) {
	if !p.isUp(link) {
		return
	}
	p.queues[link] = linkQueue{}
	for n := p.firstUnacked; n < p.firstUnsent; n++ {
		if f := p.frameAt(n); int(f.slot) == link {
			f.slot = -1
			p.retransmitQueue = append(p.retransmitQueue, n)
		}
	}
	slices.Sort(p.retransmitQueue)
	// The link may have carried acks too.
	p.lastAckSent, p.ackRequestedUpTo = 0, max(p.ackRequestedUpTo, p.nextExpected)
}

// countUp returns the number of links.
func (p *path) countUp() (n int) {
	for i := range p.queues {
		if p.queues[i].isUp {
			n++
		}
	}
	return n
}

// recordAck records that the peer has received all frames before upTo. Frames that a link is writing stay
// until popAcked.
func (p *path) recordAck(upTo uint64) error {
	if upTo > p.firstUnsent {
		return errUnsentAcked
	}
	p.ackedUpTo = max(p.ackedUpTo, upTo)
	return nil
}

// popAcked removes the first frame if it is acked and no link is writing it. The caller frees its memory
// and completes its payload.
func (p *path) popAcked() (f frame, ok bool) {
	if p.firstUnacked >= p.ackedUpTo {
		return f, false
	}
	at := p.frameAt(p.firstUnacked)
	if at.slot >= 0 {
		c := &p.queues[at.slot]
		if len(c.frames) > 0 && slices.Contains(c.frames, p.firstUnacked) {
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
func (p *path) assignFrames() int {
	chosen, hasChoice := -1, false
	for i := range p.queues {
		c := &p.queues[i]
		if !c.isUp || c.isBlocked {
			continue
		}
		if len(c.frames) > 0 || len(c.pendingAck) > 0 {
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
	for p.hasUnsent() && c.bytesQueued < limit && len(c.frames) < batchFrames {
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
			p.retransmitted++
		}
		f.slot, f.wasSent = int8(chosen), false
		c.frames = append(c.frames, number)
		c.bytesUnacked += f.cost()
		c.bytesQueued += f.size()
	}
	return chosen
}

// appendPieces appends the memory that a link must write. Adjacent frames are one piece. The last frame
// gets the current ack, and requests one if its payload is borrowed.
func (p *path) appendPieces(link int, into [][]byte) [][]byte {
	c := &p.queues[link]
	if len(c.pendingAck) > 0 {
		into = append(into, c.pendingAck)
	}
	// Chunk of the last piece, which ends at end.
	var mem *chunk
	var from, end int
	skip := c.bytesWritten
	for i, number := range c.frames {
		f := p.frameAt(number)
		if i == len(c.frames)-1 && skip == 0 {
			p.addAck(f)
		}
		if len(f.payload) == 0 && skip == 0 && mem != nil && f.chunk == mem && f.offset == end {
			end += len(f.bytes)
			into[len(into)-1] = mem.bytes[from:end]
			continue
		}
		mem = nil
		head := f.bytes[min(skip, len(f.bytes)):]
		if len(head) > 0 {
			into = append(into, head)
		}
		if f.payload != nil {
			into = append(into, f.payload[max(0, skip-len(f.bytes)):])
		} else if len(head) > 0 {
			mem, end = f.chunk, f.offset+len(f.bytes)
			from = end - len(head)
		}
		skip = 0
		if len(into) >= maxPieces {
			break
		}
	}
	return into
}

// maxPieces is the number of pieces of one system call.
const maxPieces = 64

// addAck writes the current ack into the header of a frame.
func (p *path) addAck(f *frame) {
	setAck(f.bytes, p.nextExpected)
	p.lastAckSent, p.ackOwedBytes = p.nextExpected, 0
	if f.completion != nil && !p.hasUnsent() {
		setFlags(f.bytes, flagAckRequest)
	}
}

// recordWritten records that the socket of a link has taken n bytes of its pieces.
func (p *path) recordWritten(link, n int) {
	c := &p.queues[link]
	k := min(n, len(c.pendingAck))
	if c.pendingAck = c.pendingAck[k:]; len(c.pendingAck) == 0 {
		c.pendingAck = nil
	}
	n -= k
	done := 0
	for n > 0 {
		f := p.frameAt(c.frames[done])
		f.wasSent = true
		rest := f.size() - c.bytesWritten
		if n < rest {
			c.bytesWritten += n
			break
		}
		n -= rest
		c.bytesQueued -= rest + c.bytesWritten
		c.bytesWritten = 0
		done++
	}
	if c.frames = slices.Delete(c.frames, 0, done); len(c.frames) == 0 {
		c.frames = c.frames[:0]
	}
}

// queueAck queues an ack on a link that is between two frames. It reports false if there is none.
func (p *path) queueAck(requestAck bool) bool {
	best := -1
	for i := range p.queues {
		c := &p.queues[i]
		if c.isUp && !c.isBlocked && c.bytesWritten == 0 && len(c.pendingAck) == 0 && (best < 0 || c.bytesUnacked < p.queues[best].bytesUnacked) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	h := header{kind: kindAck, number: p.nextNumber, ackedUpTo: p.nextExpected}
	if requestAck {
		h.flags = flagAckRequest
	}
	note := make([]byte, headerSize)
	h.encode(note)
	p.queues[best].pendingAck = note
	p.lastAckSent, p.ackOwedBytes = p.nextExpected, 0
	return true
}

// bytesQueued returns roughly the bytes that the sockets have not taken.
func (p *path) bytesQueued() int {
	n := p.bytesUnsent + len(p.retransmitQueue)
	for i := range p.queues {
		n += p.queues[i].bytesQueued + len(p.queues[i].pendingAck) - p.queues[i].bytesWritten
	}
	return n
}
