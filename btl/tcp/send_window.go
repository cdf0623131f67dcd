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
	limit           int // Bytes.
	ring            []frame
	firstUnacked    uint64
	firstUnsent     uint64
	nextNumber      uint64
	ackedUpTo       uint64      // Frames before it are acked. At most firstUnsent.
	retransmitQueue []uint64    // Ascending.
	queues          []linkQueue // By slot.
	bytesUsed       int
	bytesUnsent     int
	retransmitted   uint64 // Frames, since the start.
}

// recvWindow has the numbers of the frames from the peer.
type recvWindow struct {
	nextExpected     uint64
	maxAhead         uint64 // Frames that the peer may have in flight.
	lastAckSent      uint64
	ackOwedBytes     int    // Bytes received since then.
	ackRequestedUpTo uint64 // The peer waits for the ack of all frames before it.
	damagedLinks     int    // Links that ended because of damaged data.
}

// maxLinks is how many links a pair may have.
const maxLinks = 16

// frame is a frame that the peer has not acked.
type frame struct {
	bytes      []byte              // Header and copied bytes.
	payload    []byte              // Of a gathered frame; its owner's until completion.
	completion btl.LocalCompletion // nil if none is owed.
	chunk      *chunk              // Memory of bytes.
	offset     int                 // Of bytes in chunk.
	slot       int8                // Link that carries it, or -1.
	wasSent    bool                // A socket has taken a part of it.
}

func (f *frame) size() int { return len(f.bytes) + len(f.payload) }

// cost is what a frame takes of the window: its bytes, and its record here.
func (f *frame) cost() int { return f.size() + frameOverhead }

// frameOverhead is about what a frame takes in the ring, in bytes.
const frameOverhead = 112

// linkQueue is a link as the path sees it.
type linkQueue struct {
	isUp         bool
	isBlocked    bool     // The socket is full.
	bytesUnacked int      // Of the frames that the link carries.
	frames       []uint64 // Frames that the socket has not taken, in order.
	bytesWritten int      // Of the first of them.
	bytesQueued  int
	pendingAck   []byte // Goes between two frames.
}

var (
	errDamaged     = errors.New("damaged data")
	errUnsentAcked = fmt.Errorf("%w: it confirms a frame that was not sent", errDamaged)
	errNumberAhead = fmt.Errorf("%w: a frame number far ahead", errDamaged)
)

func (p *path) frameAt(number uint64) *frame { return &p.ring[number&uint64(len(p.ring)-1)] }

// hasRoom reports whether the window has room for a frame of n bytes, with its header.
func (p *path) hasRoom(n int) bool { return p.bytesUsed+n+frameOverhead <= p.limit }

// isOverfull reports whether what is sent besides frames, for which there is room always, takes
// as much again.
func (p *path) isOverfull() bool { return p.bytesUsed > 2*p.limit }

// maxFramesInFlight is how many frames a peer with such a window may have under way.
func maxFramesInFlight(window int) uint64 { return uint64(2*window/(headerSize+frameOverhead)) + 16 }

// push gives a frame its number. Its header gets that, and what is confirmed.
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

// shrinkRing gives memory back that a burst has left.
func (p *path) shrinkRing() {
	if p.firstUnacked == p.nextNumber && len(p.ring) > 64 {
		p.ring = nil
	}
}

// hasUnsent reports whether there are frames that no link carries.
func (p *path) hasUnsent() bool { return p.firstUnsent != p.nextNumber || len(p.retransmitQueue) > 0 }

// isIdle reports whether all is confirmed.
func (p *path) isIdle() bool { return p.firstUnacked == p.nextNumber }

// linkUp says that a link is there. The peer has received all frames before heard.
func (p *path) linkUp(link int, heard uint64) error {
	if err := p.recordAck(heard); err != nil {
		return err
	}
	for link >= len(p.queues) {
		p.queues = append(p.queues, linkQueue{})
	}
	p.queues[link] = linkQueue{isUp: true}
	return nil
}

func (p *path) isUp(link int) bool { return link < len(p.queues) && p.queues[link].isUp }

// linkDown says that a link is gone. What it carried goes again.
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
	p.lastAckSent, p.ackRequestedUpTo = 0, max(p.ackRequestedUpTo, p.nextExpected) // it may have carried that, too
}

// countUp counts the links.
func (p *path) countUp() (n int) {
	for i := range p.queues {
		if p.queues[i].isUp {
			n++
		}
	}
	return n
}

// recordAck says that the peer has received all frames before upTo. What a link is writing
// stays nevertheless, until release.
func (p *path) recordAck(upTo uint64) error {
	if upTo > p.firstUnsent {
		return errUnsentAcked
	}
	p.ackedUpTo = max(p.ackedUpTo, upTo)
	return nil
}

// popAcked takes the first frame off that is confirmed and that nobody writes, for its
// memory to be freed and its owner to be told.
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

// batch is what a link gets to write at a time, in bytes: enough that a system call is
// worth it, and not more than the next link could take as well.
const (
	batchBytes  = 256 << 10
	batchFrames = 256
)

// assignFrames gives waiting frames to the link with the most room and returns its place, or
// that of a link that has something to write; -1: there is none.
func (p *path) assignFrames() int {
	best, several := -1, false
	for i := range p.queues {
		c := &p.queues[i]
		if !c.isUp || c.isBlocked {
			continue
		}
		if len(c.frames) > 0 || len(c.pendingAck) > 0 {
			return i
		}
		several = several || best >= 0
		if best < 0 || c.bytesUnacked < p.queues[best].bytesUnacked {
			best = i
		}
	}
	if best < 0 || !p.hasUnsent() {
		return -1
	}
	c, most := &p.queues[best], batchBytes
	if several {
		most = 1 // the link for the next one is chosen then
	}
	for p.hasUnsent() && c.bytesQueued < most && len(c.frames) < batchFrames {
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
		f.slot, f.wasSent = int8(best), false
		c.frames = append(c.frames, number)
		c.bytesUnacked += f.cost()
		c.bytesQueued += f.size()
	}
	return best
}

// appendPieces returns what a link is to write: memory that lies together is one piece. What is
// confirmed now goes with the last frame, and whoever waits for the payload's end says so.
func (p *path) appendPieces(link int, into [][]byte) [][]byte {
	c := &p.queues[link]
	if len(c.pendingAck) > 0 {
		into = append(into, c.pendingAck)
	}
	var mem *chunk // of the last piece
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

// maxPieces is what one system call takes.
const maxPieces = 64

// addAck has a frame that goes out tell what has come.
func (p *path) addAck(f *frame) {
	setAck(f.bytes, p.nextExpected)
	p.lastAckSent, p.ackOwedBytes = p.nextExpected, 0
	if f.completion != nil && !p.hasUnsent() {
		setFlags(f.bytes, flagAckRequest)
	}
}

// recordWritten says that a link's socket has taken n bytes of its pieces.
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

// queueAck has a note go out by itself, on a link that is between two frames. It reports false
// if there is none now.
func (p *path) queueAck(ask bool) bool {
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
	if ask {
		h.flags = flagAckRequest
	}
	note := make([]byte, headerSize)
	h.encode(note)
	p.queues[best].pendingAck = note
	p.lastAckSent, p.ackOwedBytes = p.nextExpected, 0
	return true
}

// bytesQueued returns how many bytes the sockets have not taken, about.
func (p *path) bytesQueued() int {
	n := p.bytesUnsent + len(p.retransmitQueue)
	for i := range p.queues {
		n += p.queues[i].bytesQueued + len(p.queues[i].pendingAck) - p.queues[i].bytesWritten
	}
	return n
}
