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

// framesPerPoll bounds the time that one ring takes in a Poll.
const framesPerPoll = 32

// inbound is the path from one peer: a ring in this process's inbox.
type inbound struct {
	consumer *ring.Consumer // nil when the path has ended
	up       btl.Inbound
	bell     progress.RemoteBell // the sender's

	m      *module
	peer   framework.Life
	index  int // of the slot
	far    *remote
	memory ringMemory // of the ring
	cells  *segment.Mapping
	shares [shmlayout.Shares]share
}

// Poll hands up the frames that have come. Cost when there is none: one load of
// a cache line that is in this core's cache.
func (p *inbound) Poll() (n int) {
	for n < framesPerPoll && p.poll() {
		n++
	}
	return n
}

// single is an inbound that is polled for one frame at a time: by a receive that
// waits for a message from this peer, and is done with the first one as a rule.
type single inbound

// Poll hands up one frame.
func (p *single) Poll() int {
	if (*inbound)(p).poll() {
		return 1
	}
	return 0
}

// Peek implements btl.Peeker.
func (p *single) Peek(looks int) []byte {
	if p.consumer == nil {
		return nil
	}
	return p.consumer.Peek(looks)
}

// Drop implements btl.Peeker.
func (p *single) Drop() {
	if p.consumer.Release() {
		p.bell.Ring()
	}
}

// poll hands up a frame, if there is one.
func (p *inbound) poll() bool {
	c := p.consumer
	if c == nil {
		return false
	}
	frame, err := c.Next()
	if err == nil {
		if frame == nil {
			return false
		}
		err = p.up.Frame(frame)
	}
	if err != nil {
		p.fail(err)
		return true
	}
	// If the path ended while the frame was handled, its ring is unmapped.
	if p.consumer != nil && c.Release() {
		p.bell.Ring()
	}
	return true
}

// stands reports whether the sender has not ended the path.
func (p *inbound) stands() bool { return p.m.box.Slot(p.index).State() == shmlayout.Granted }

// fail ends the path because of what came.
func (p *inbound) fail(err error) {
	// The sender must not wait for a reader that is gone.
	p.m.box.Slot(p.index).Transition(shmlayout.Granted, shmlayout.Refused)
	p.ring()
	p.m.drop(p)
	p.m.broken[p.index] = p.memory
	p.m.env.Ended("btl shm", p.peer, "receive", err)
}

// endpoint is the path to one peer: a ring in that peer's inbox.
type endpoint struct {
	producer *ring.Producer      // nil until the ring is granted, and after Close
	bell     progress.RemoteBell // the receiver's

	m    *module
	peer framework.Life
	far  *remote // nil after Close
	slot shmlayout.Slot
	// Of slot in the peer's inbox.
	slotIndex int
	cells     *segment.Mapping
	how       shmlayout.RingFlags // the ring was made
	listed    bool                // in m.waiting
}

// Reserve costs a comparison unless the ring was full when it last looked.
func (e *endpoint) Reserve(n int) []byte {
	if e.producer == nil {
		return nil
	}
	if b := e.producer.Reserve(n); b != nil {
		return b
	}
	return e.await(n)
}

// ReserveWide implements btl.WideReserver.
func (e *endpoint) ReserveWide(n int) []byte {
	if e.producer == nil {
		return nil
	}
	if b := e.producer.ReserveWide(n); b != nil {
		return b
	}
	return e.await(n)
}

// await is Reserve where there was no room. The receiver rings when it gives cells back.
func (e *endpoint) await(n int) []byte {
	if !e.producer.Wait(n) {
		return e.producer.Reserve(n)
	}
	e.wait()
	return nil
}

// wait has Poll look what becomes of the path.
func (e *endpoint) wait() {
	if !e.listed {
		e.listed = true
		e.m.waiting = append(e.m.waiting, e)
	}
}

// Commit costs one release store, and a load of the receiver's bell.
func (e *endpoint) Commit(n int) {
	e.producer.Commit(n)
	e.bell.Ring()
}

// SendShort implements btl.ShortSender. It costs what Commit does unless the ring is full.
func (e *endpoint) SendShort(h btl.ShortHeader, payload []byte) bool {
	if e.producer != nil && e.producer.Put(h.First, h.Second, h.Third, payload) {
		e.bell.Ring()
		return true
	}
	return btl.SendShort(e, h, payload)
}

// Idle: committed frames lie in the receiver's memory, and no longer need us.
func (e *endpoint) Idle() bool { return true }

// check looks what has become of a path that waits for its ring, or for cells, and
// reports whether that is anything.
func (e *endpoint) check() bool {
	if e.producer == nil {
		return e.checkRequest()
	}
	switch {
	case e.far.box.Closed():
		e.peerGone("send")
	case e.slot.State() == shmlayout.Refused:
		e.down("send", errors.New("the peer closed the path: it could not make sense of what it received"))
	default: // it is listed again if it still finds no room
		return false
	}
	return true
}

// checkRequest is check for a path that waits for its ring.
func (e *endpoint) checkRequest() bool {
	answered := true
	err := guarded(func() error {
		switch state := e.slot.State(); {
		case state == shmlayout.Granted:
			return e.attachRing()
		case e.far.box.Closed():
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
		e.peerGone(op)
	case err != nil:
		e.down(op, fmt.Errorf("%w: %w", btl.ErrNeverOpened, err))
	case !answered:
		e.wait()
		return false
	}
	return true
}

func (e *endpoint) attachRing() error {
	offset, cells, how := e.slot.Granted()
	if cells < ring.MinCells || cells&(cells-1) != 0 || cells > 1<<24 {
		return fmt.Errorf("the peer granted a ring of %d cells", cells)
	}
	from := e.far.segment
	if how&shmlayout.Overflow != 0 {
		beside, err := e.m.space.Open(e.m.overflowPath(e.far.name))
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
	e.cells, e.how = mapped, how
	if limit := ring.FrameLimit(cells); limit < e.m.frameLimit {
		e.m.env.Upcall.Limits(e.peer, min(e.m.eagerLimit, limit), limit)
	}
	e.producer = ring.NewProducer(e.slot.Ring(), mapped.Bytes)
	return nil
}

// down ends the path because of the peer.
func (e *endpoint) down(op string, err error) {
	e.Close()
	e.m.env.Ended("btl shm", e.peer, op, err)
}

// peerGone ends the path because the peer has closed its inbox. What it had sent
// before is in its ring here.
func (e *endpoint) peerGone(op string) {
	if p := e.m.in[e.peer]; p != nil {
		for p.Poll() > 0 {
		}
	}
	e.down(op, framework.ErrPeerClosed)
}

// Close tells the peer that nothing more comes.
func (e *endpoint) Close() {
	if e.far == nil {
		return
	}
	e.producer = nil
	_ = guarded(func() error {
		// The receiver may answer the request at this moment: then the second or the
		// third change succeeds.
		if e.slot.Transition(shmlayout.Requested, shmlayout.Left) || e.slot.Transition(shmlayout.Granted, shmlayout.Left) {
			e.far.box.Request()
		} else {
			e.slot.Transition(shmlayout.Refused, shmlayout.Free)
		}
		return nil
	})
	if e.cells != nil {
		e.cells.Close()
	}
	e.far.Close()
	e.far = nil
	if e.m.out[e.peer] == e {
		delete(e.m.out, e.peer)
	}
	e.m.unmapPeer(e.peer)
}
