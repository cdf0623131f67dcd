package tcp

import "slices"

// path is the state of the frames between two processes while links come and go. It has no
// socket and no clock, so that scripts test it. Links are named by their slots.
//
// A frame gets its number when it is committed, and stays until the peer has acked it. It leaves
// on the link with the fewest unacked bytes. Frames of a lost link are retransmitted first.
type path struct {
	sendWindow
	recvWindow
}

// maxLinks is the largest number of links with a peer.
const maxLinks = 16

// push assigns the next number to a frame, and fills number and ack into its header.
func (p *path) push(f frame) uint64 {
	if n := p.nextNumber - p.firstUnacked; n == uint64(len(p.frameRing)) {
		p.growRing(max(4, 2*int(n)))
	}
	number := p.nextNumber
	p.nextNumber++
	le.PutUint64(f.copiedBytes[8:], number)
	setAck(f.copiedBytes, p.nextExpected)
	f.linkSlot = -1
	p.bytesUsed += f.cost()
	p.bytesUnassigned += f.size()
	*p.frameAt(number) = f
	return number
}

// linkUp adds a link. The peer has received all frames before ackedUpTo.
func (p *path) linkUp(link int, ackedUpTo uint64) error {
	if err := p.recordAck(ackedUpTo); err != nil {
		return err
	}
	for link >= len(p.queuesBySlot) {
		p.queuesBySlot = append(p.queuesBySlot, linkQueue{})
	}
	p.queuesBySlot[link] = linkQueue{isUp: true}
	return nil
}

// linkDown removes a link, and queues its frames for retransmission.
func (p *path) linkDown(link int) {
	if !p.isUp(link) {
		return
	}
	p.queuesBySlot[link] = linkQueue{}
	for n := p.firstUnacked; n < p.firstUnassigned; n++ {
		if f := p.frameAt(n); int(f.linkSlot) == link {
			f.linkSlot = -1
			p.retransmitQueue = append(p.retransmitQueue, n)
		}
	}
	slices.Sort(p.retransmitQueue)
	// The link may have carried acks too.
	p.lastAckSent, p.ackRequestedUpTo = 0, max(p.ackRequestedUpTo, p.nextExpected)
}

// maxPieces is the number of pieces of one system call.
const maxPieces = 64

// appendPieces appends the memory that a link must write. Adjacent frames are one piece. The last frame
// gets the current ack, and requests one if its payload is borrowed.
func (p *path) appendPieces(link int, into [][]byte) [][]byte {
	q := &p.queuesBySlot[link]
	if len(q.pendingAck) > 0 {
		into = append(into, q.pendingAck)
	}
	// Chunk of the last piece, which ends at end.
	var mem *chunk
	var from, end int
	skip := q.firstFrameWritten
	for i, number := range q.queuedFrames {
		f := p.frameAt(number)
		if i == len(q.queuedFrames)-1 && skip == 0 {
			p.addAck(f)
		}
		if len(f.borrowedPayload) == 0 && skip == 0 && mem != nil && f.chunk == mem && f.chunkOffset == end {
			end += len(f.copiedBytes)
			into[len(into)-1] = mem.bytes[from:end]
			continue
		}
		mem = nil
		head := f.copiedBytes[min(skip, len(f.copiedBytes)):]
		if len(head) > 0 {
			into = append(into, head)
		}
		if f.borrowedPayload != nil {
			into = append(into, f.borrowedPayload[max(0, skip-len(f.copiedBytes)):])
		} else if len(head) > 0 {
			mem, end = f.chunk, f.chunkOffset+len(f.copiedBytes)
			from = end - len(head)
		}
		skip = 0
		if len(into) >= maxPieces {
			break
		}
	}
	return into
}

// addAck writes the current ack into the header of a frame.
func (p *path) addAck(f *frame) {
	setAck(f.copiedBytes, p.nextExpected)
	p.lastAckSent, p.bytesSinceAck = p.nextExpected, 0
	if f.completion != nil && !p.hasUnassigned() {
		setFlags(f.copiedBytes, flagAckRequest)
	}
}

// queueAck queues an ack on a link that is between two frames. It reports false if there is none.
func (p *path) queueAck(requestAck bool) bool {
	best := -1
	for i := range p.queuesBySlot {
		q := &p.queuesBySlot[i]
		if q.isUp && !q.isSocketFull && q.firstFrameWritten == 0 && len(q.pendingAck) == 0 && (best < 0 || q.bytesUnacked < p.queuesBySlot[best].bytesUnacked) {
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
	p.queuesBySlot[best].pendingAck = note
	p.lastAckSent, p.bytesSinceAck = p.nextExpected, 0
	return true
}
