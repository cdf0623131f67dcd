package shm

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/internal/shmlayout"
	"github.com/ferrympi/ferry/progress"
)

// framesPerPoll limits the frames that one ring delivers in a Poll.
const framesPerPoll = 32

// inbound is the path from one peer through a ring in this process's inbox.
type inbound struct {
	// Nil when the path has ended.
	consumer *ring.Consumer
	receiver btl.Inbound
	// Bell of the sender.
	bell progress.RemoteBell

	module    *module
	peer      framework.Incarnation
	slotIndex int
	remote    *remoteInbox
	ring      ringMemory
	cells     *segment.Mapping
	shares    [shmlayout.Shares]share
}

// Poll delivers up to framesPerPoll frames. Without a frame it costs one load of a cache line in
// this core's cache.
func (p *inbound) Poll() (n int) {
	for n < framesPerPoll && p.pollFrame() {
		n++
	}
	return n
}

// singleFrame polls for one frame at a time. A receive that waits for a message from this peer
// usually completes with the first frame.
type singleFrame inbound

// Poll delivers at most one frame.
func (p *singleFrame) Poll() int {
	if (*inbound)(p).pollFrame() {
		return 1
	}
	return 0
}

// Peek implements btl.Peeker.
func (p *singleFrame) Peek(polls int) []byte {
	if p.consumer == nil {
		return nil
	}
	return p.consumer.Peek(polls)
}

// Drop implements btl.Peeker.
func (p *singleFrame) Drop() {
	if p.consumer.Release() {
		p.bell.Ring()
	}
}

// pollFrame delivers the next frame, if any.
func (p *inbound) pollFrame() bool {
	c := p.consumer
	if c == nil {
		return false
	}
	frame, err := c.Next()
	if err == nil {
		if frame == nil {
			return false
		}
		err = p.receiver.Frame(frame)
	}
	if err != nil {
		p.failPath(err)
		return true
	}
	// The handler may have ended the path, which unmaps the ring.
	if p.consumer != nil && c.Release() {
		p.bell.Ring()
	}
	return true
}

// isOpen reports whether the sender has not ended the path.
func (p *inbound) isOpen() bool { return p.module.inbox.Slot(p.slotIndex).State() == shmlayout.Granted }

// failPath ends the path after a malformed frame or an error of its handler.
func (p *inbound) failPath(err error) {
	// The sender must not wait for cells of a path without a reader.
	p.module.inbox.Slot(p.slotIndex).Transition(shmlayout.Granted, shmlayout.Refused)
	p.ringSender()
	p.module.dropPath(p)
	p.module.failedRings[p.slotIndex] = p.ring
	p.module.env.Ended("btl shm", p.peer, "receive", err)
}

// endpoint is the path to one peer through a ring in the peer's inbox.
type endpoint struct {
	// Nil until the ring is granted, and after Close.
	producer *ring.Producer
	// Bell of the receiver.
	bell progress.RemoteBell

	module *module
	peer   framework.Incarnation
	// Nil after Close.
	remote *remoteInbox
	slot   shmlayout.Slot
	// Index of slot in the peer's inbox.
	slotIndex int
	cells     *segment.Mapping
	ringFlags shmlayout.RingFlags
	// Whether the endpoint is in module.waitingEndpoints.
	isWaiting bool
}

// Reserve costs two comparisons unless the ring was full at the last check.
func (e *endpoint) Reserve(n int, placement btl.Placement) []byte {
	if e.producer == nil {
		return nil
	}
	var b []byte
	if placement == btl.FullRing {
		b = e.producer.ReserveWide(n)
	} else {
		b = e.producer.Reserve(n)
	}
	if b != nil {
		return b
	}
	return e.waitForCells(n)
}

// waitForCells retries a failed reservation, or waits. The receiver rings when it returns cells.
func (e *endpoint) waitForCells(n int) []byte {
	if !e.producer.Wait(n) {
		return e.producer.Reserve(n)
	}
	e.enqueueWaiting()
	return nil
}

// enqueueWaiting lets Poll check the state of the path.
func (e *endpoint) enqueueWaiting() {
	if !e.isWaiting {
		e.isWaiting = true
		e.module.waitingEndpoints = append(e.module.waitingEndpoints, e)
	}
}

// Commit costs one release store and a load of the receiver's bell.
func (e *endpoint) Commit(n int) {
	e.producer.Commit(n)
	e.bell.Ring()
}

// SendShort implements btl.ShortSender. It costs as much as Commit unless the ring is full.
func (e *endpoint) SendShort(h btl.ShortHeader, payload []byte) bool {
	if e.producer != nil && e.producer.Put(h.First, h.Second, h.Third, payload) {
		e.bell.Ring()
		return true
	}
	return btl.SendShort(e, h, payload)
}

// Idle reports true, because committed frames are in the receiver's memory and need no further
// progress here.
func (e *endpoint) Idle() bool { return true }

// checkState checks a path that waits for its ring or for cells, and reports whether its state has
// changed.
func (e *endpoint) checkState() bool {
	if e.producer == nil {
		return e.checkRequest()
	}
	switch {
	case e.remote.inbox.Closed():
		e.handlePeerClosed("send")
	case e.slot.State() == shmlayout.Refused:
		e.closeWithError("send", errors.New("the peer closed the path after a malformed frame"))
	default: // A failed reservation enqueues the endpoint again.
		return false
	}
	return true
}

// checkRequest is checkState for a path that waits for its ring.
func (e *endpoint) checkRequest() bool {
	answered := true
	err := guarded(func() error {
		switch state := e.slot.State(); {
		case state == shmlayout.Granted:
			return e.attachRing()
		case e.remote.inbox.Closed():
			return framework.ErrPeerClosed
		case state == shmlayout.Refused:
			return fmt.Errorf("the peer refused: %s", e.slot.Reason())
		}
		answered = false
		return nil
	})
	const op = "connect"
	switch {
	case errors.Is(err, framework.ErrPeerClosed):
		e.handlePeerClosed(op)
	case err != nil:
		e.closeWithError(op, fmt.Errorf("%w: %w", btl.ErrNeverOpened, err))
	case !answered:
		e.enqueueWaiting()
		return false
	}
	return true
}

func (e *endpoint) attachRing() error {
	offset, cells, how := e.slot.Granted()
	if cells < ring.MinCells || cells&(cells-1) != 0 || cells > 1<<24 {
		return fmt.Errorf("the peer granted a ring of %d cells", cells)
	}
	from := e.remote.segment
	if how&shmlayout.Overflow != 0 {
		beside, err := e.module.space.Open(e.module.overflowPath(e.remote.name))
		if err != nil {
			return err
		}
		defer beside.Close()
		from = beside
	}
	mapped, err := from.Map(offset, cells*ring.CellSize)
	if err != nil {
		return err
	}
	mapped.Populate()
	e.cells, e.ringFlags = mapped, how
	if limit := ring.FrameLimit(cells); limit < e.module.frameLimit {
		e.module.env.Upcall.Limits(e.peer, min(e.module.eagerLimit, limit), limit)
	}
	e.producer = ring.NewProducer(e.slot.Ring(), mapped.Bytes)
	return nil
}

// closeWithError ends the path and reports err.
func (e *endpoint) closeWithError(op string, err error) {
	e.Close()
	e.module.env.Ended("btl shm", e.peer, op, err)
}

// handlePeerClosed ends the path after the peer has closed its inbox. It first delivers the
// remaining frames of the peer's ring.
func (e *endpoint) handlePeerClosed(op string) {
	if p := e.module.inboundPaths[e.peer]; p != nil {
		for p.Poll() > 0 {
		}
	}
	e.closeWithError(op, framework.ErrPeerClosed)
}

// Close leaves the slot in the peer's inbox, so that the peer frees the ring after the last frame.
func (e *endpoint) Close() {
	if e.remote == nil {
		return
	}
	e.producer = nil
	_ = guarded(func() error {
		// The receiver may grant or refuse the request at this moment. The second or the third
		// transition succeeds then.
		if e.slot.Transition(shmlayout.Requested, shmlayout.Left) || e.slot.Transition(shmlayout.Granted, shmlayout.Left) {
			e.remote.inbox.Request()
		} else {
			e.slot.Transition(shmlayout.Refused, shmlayout.Free)
		}
		return nil
	})
	if e.cells != nil {
		e.cells.Close()
	}
	e.remote.Close()
	e.remote = nil
	if e.module.endpoints[e.peer] == e {
		delete(e.module.endpoints, e.peer)
	}
	e.module.unmapPeerRegions(e.peer)
}
