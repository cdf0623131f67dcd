package tcp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ferrympi/ferry/btl"
)

// sendWindow has the frames to the peer, firstUnacked to nextNumber-1. Each of them is in one place:
//
//   - unassigned (from firstUnassigned on, without a link)
//   - in retransmitQueue (without a link)
//   - in the queuedFrames of its link
//   - written to its link, in none of the queues
//
// The loss of a link moves its frames of the last two to retransmitQueue (path.linkDown).
type sendWindow struct {
	byteLimit       int
	frameRing       []frame
	firstUnacked    uint64
	firstUnassigned uint64
	nextNumber      uint64
	// Frames before it are acked. At most firstUnassigned.
	ackedUpTo uint64
	// Frames of lost links in ascending order. Some of them were never written.
	retransmitQueue     []uint64
	queuesBySlot        []linkQueue
	bytesUsed           int
	bytesUnassigned     int
	framesRetransmitted uint64
}

// frame is a frame that the peer has not acked.
type frame struct {
	// Header and copied bytes.
	copiedBytes []byte
	// Borrowed from its owner until completion.
	borrowedPayload []byte
	completion      btl.LocalCompletion
	chunk           *chunk
	chunkOffset     int
	// -1 if it is assigned to no link.
	linkSlot int8
	// The socket of its link has taken some of it. It serves framesRetransmitted only.
	wasWritten bool
}

func (f *frame) size() int { return len(f.copiedBytes) + len(f.borrowedPayload) }

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

func (w *sendWindow) frameAt(number uint64) *frame {
	return &w.frameRing[number&uint64(len(w.frameRing)-1)]
}

// hasRoom reports whether the window has room for n bytes, header included.
func (w *sendWindow) hasRoom(n int) bool { return w.bytesUsed+n+frameOverhead <= w.byteLimit }

// isOverfull reports whether control frames, which ignore the window, exceed it by its own size.
func (w *sendWindow) isOverfull() bool { return w.bytesUsed > 2*w.byteLimit }

// maxFramesInFlight returns the number of frames that fit into a window, with a margin for control frames.
func maxFramesInFlight(window int) uint64 { return uint64(2*window/(headerSize+frameOverhead)) + 16 }

func (w *sendWindow) growRing(n int) {
	old, size := w.frameRing, uint64(len(w.frameRing))
	w.frameRing = make([]frame, n)
	for i := w.firstUnacked; i < w.nextNumber; i++ {
		*w.frameAt(i) = old[i&(size-1)]
	}
}

// shrinkRing frees the ring after a burst.
func (w *sendWindow) shrinkRing() {
	if w.firstUnacked == w.nextNumber && len(w.frameRing) > 64 {
		w.frameRing = nil
	}
}

// hasUnassigned reports whether a frame waits for a link.
func (w *sendWindow) hasUnassigned() bool {
	return w.firstUnassigned != w.nextNumber || len(w.retransmitQueue) > 0
}

// isIdle reports whether all frames are acked.
func (w *sendWindow) isIdle() bool { return w.firstUnacked == w.nextNumber }

func (w *sendWindow) isUp(link int) bool {
	return link < len(w.queuesBySlot) && w.queuesBySlot[link].isUp
}

// countUp returns the number of links.
func (w *sendWindow) countUp() (n int) {
	for i := range w.queuesBySlot {
		if w.queuesBySlot[i].isUp {
			n++
		}
	}
	return n
}

// recordAck records that the peer has received all frames before upTo. Frames that a link is writing stay
// until popAcked.
func (w *sendWindow) recordAck(upTo uint64) error {
	if upTo > w.firstUnassigned {
		return errUnsentAcked
	}
	w.ackedUpTo = max(w.ackedUpTo, upTo)
	return nil
}

// popAcked removes the first frame if it is acked and no link is writing it. The caller frees its memory
// and completes its payload.
func (w *sendWindow) popAcked() (f frame, ok bool) {
	if w.firstUnacked >= w.ackedUpTo {
		return f, false
	}
	first := w.frameAt(w.firstUnacked)
	if first.linkSlot >= 0 {
		q := &w.queuesBySlot[first.linkSlot]
		if len(q.queuedFrames) > 0 && slices.Contains(q.queuedFrames, w.firstUnacked) {
			return f, false
		}
		q.bytesUnacked -= first.cost()
	} else if len(w.retransmitQueue) > 0 && w.retransmitQueue[0] == w.firstUnacked {
		w.retransmitQueue = slices.Delete(w.retransmitQueue, 0, 1)
	}
	f = *first
	*first = frame{}
	w.firstUnacked++
	w.bytesUsed -= f.cost()
	return f, true
}

// batchBytes makes a system call worthwhile, and leaves frames for the other links.
const (
	batchBytes  = 256 << 10
	batchFrames = 256
)

// assignFrames assigns waiting frames to the link with the fewest unacked bytes. It returns a slot with
// something to write, or -1.
func (w *sendWindow) assignFrames() int {
	chosen, hasChoice := -1, false
	for i := range w.queuesBySlot {
		q := &w.queuesBySlot[i]
		if !q.isUp || q.isSocketFull {
			continue
		}
		if len(q.queuedFrames) > 0 || len(q.pendingAck) > 0 {
			return i
		}
		hasChoice = hasChoice || chosen >= 0
		if chosen < 0 || q.bytesUnacked < w.queuesBySlot[chosen].bytesUnacked {
			chosen = i
		}
	}
	if chosen < 0 || !w.hasUnassigned() {
		return -1
	}
	q, limit := &w.queuesBySlot[chosen], batchBytes
	if hasChoice {
		// The next frame may go to another link.
		limit = 1
	}
	for w.hasUnassigned() && q.bytesQueued < limit && len(q.queuedFrames) < batchFrames {
		number := w.firstUnassigned
		if len(w.retransmitQueue) > 0 {
			number = w.retransmitQueue[0]
			w.retransmitQueue = slices.Delete(w.retransmitQueue, 0, 1)
		} else {
			w.firstUnassigned++
			w.bytesUnassigned -= w.frameAt(number).size()
		}
		f := w.frameAt(number)
		if f.wasWritten {
			w.framesRetransmitted++
		}
		f.linkSlot, f.wasWritten = int8(chosen), false
		q.queuedFrames = append(q.queuedFrames, number)
		q.bytesUnacked += f.cost()
		q.bytesQueued += f.size()
	}
	return chosen
}

// recordWritten records that the socket of a link has taken n bytes of its pieces.
func (w *sendWindow) recordWritten(link, n int) {
	q := &w.queuesBySlot[link]
	k := min(n, len(q.pendingAck))
	if q.pendingAck = q.pendingAck[k:]; len(q.pendingAck) == 0 {
		q.pendingAck = nil
	}
	n -= k
	finished := 0
	for n > 0 {
		f := w.frameAt(q.queuedFrames[finished])
		f.wasWritten = true
		rest := f.size() - q.firstFrameWritten
		if n < rest {
			q.firstFrameWritten += n
			break
		}
		n -= rest
		q.bytesQueued -= rest + q.firstFrameWritten
		q.firstFrameWritten = 0
		finished++
	}
	q.queuedFrames = slices.Delete(q.queuedFrames, 0, finished)
}

// bytesQueued returns roughly the bytes that the sockets have not taken.
func (w *sendWindow) bytesQueued() int {
	n := w.bytesUnassigned + len(w.retransmitQueue)
	for i := range w.queuesBySlot {
		n += w.queuesBySlot[i].bytesQueued + len(w.queuesBySlot[i].pendingAck) - w.queuesBySlot[i].firstFrameWritten
	}
	return n
}
