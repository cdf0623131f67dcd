package threads

import (
	"context"

	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
)

// Send implements pml.Comm.
//
// A small message acquires no lock. It costs a load of the communicator's state, one
// compare-and-swap that claims a cell, header and payload into one cache line, one store that
// publishes it, and loads of the receiver's words.
func (c *comm) Send(ctx context.Context, buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) error {
	if c.shared.ranks[dst] == nil {
		return c.below.commBelow.Send(ctx, buf, dst, tag, plane, mode)
	}
	if c.sendDirect(buf, dst, tag, plane, mode, false) {
		return nil
	}
	e := c.rank.engine
	e.Lock()
	s, err := c.startSend(buf, dst, tag, plane, mode)
	if err == nil {
		_, err = s.Conclude(ctx)
	}
	e.Release()
	return err
}

// Isend implements pml.Comm.
func (c *comm) Isend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	if c.shared.ranks[dst] == nil {
		return c.below.commBelow.Isend(buf, dst, tag, plane, mode)
	}
	sent := c.sendDirect(buf, dst, tag, plane, mode, false)
	r := c.rank
	r.engine.Lock()
	defer r.engine.Release()
	if sent {
		return &r.completeSend().Request, nil
	}
	return c.request(c.startSend(buf, dst, tag, plane, mode))
}

// StartSend implements pml.Comm.
func (c *comm) StartSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*pml.Request, error) {
	if c.shared.ranks[dst] == nil {
		return c.below.commBelow.StartSend(buf, dst, tag, plane, mode)
	}
	if c.sendDirect(buf, dst, tag, plane, mode, true) {
		return &c.rank.completeSend().Request, nil
	}
	r, err := c.request(c.startSend(buf, dst, tag, plane, mode))
	c.rank.announceNotify()
	return r, err
}

func (c *comm) request(s *send, err error) (*pml.Request, error) {
	if err != nil {
		return nil, err
	}
	return &s.Request, nil
}

// sendDirect sends a message that is copied, if that is possible at once. locked is set if the
// caller holds the lock.
func (c *comm) sendDirect(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode, locked bool) bool {
	n := len(buf.Bytes)
	to := c.shared.ranks[dst]
	if mode == pml.Synchronous || buf.Form != nil && buf.Form.Layout != nil || c.noSends.Load()&(1<<plane|hooked) != 0 || n > c.rank.eagerLimit || to.isLoaded() {
		return false
	}
	if n <= inlineMax {
		h := makeHeader(kindInline, int(plane), n)
		if !to.put(h, c.shared.teamCommID, int32(c.Spec.Rank), int32(tag), buf.Bytes, nil) {
			to.putSlow(h, c.shared.teamCommID, int32(c.Spec.Rank), int32(tag), buf.Bytes, nil, locked)
		}
	} else {
		m := c.rank.newMessage(n)
		copy(m.payload, buf.Bytes)
		c.putEager(to, m, tag, plane, locked)
	}
	if to.needsDelivery() {
		if locked {
			c.rank.deliverLater(to)
		} else {
			to.deliver(nil)
		}
	}
	return true
}

// putEager publishes a pooled message.
func (c *comm) putEager(to *Rank, m *message, tag int, plane pml.Plane, locked bool) {
	h := makeHeader(kindEager, int(plane), 0)
	if !to.put(h, c.shared.teamCommID, int32(c.Spec.Rank), int32(tag), nil, m) {
		to.putSlow(h, c.shared.teamCommID, int32(c.Spec.Rank), int32(tag), nil, m, locked)
	}
}

// isLoaded reports whether the rank has no room for further messages that are copied.
func (r *Rank) isLoaded() bool { return r.pressureBytes.Load() > r.unexpectedLimit }

// putSlow publishes a cell when the ring was full. It drains the ring, or appends to the overflow
// list if the lock stays busy and a poll of its holder makes no room. locked is whether the caller
// holds a rank's lock.
func (r *Rank) putSlow(h header, comm uint64, source, tag int32, payload []byte, large *message, locked bool) {
	for attempt := 0; attempt < lockAttempts && !locked; attempt++ {
		if r.engine.TryLock() {
			r.drain()
			r.engine.Release()
		}
		if r.put(h, comm, source, tag, payload, large) {
			return
		}
		cpu.Pause()
	}
	r.spillFor(h, comm, source, tag, payload, large)
}

// spillFor appends a cell to the overflow list.
func (r *Rank) spillFor(h header, comm uint64, source, tag int32, payload []byte, large *message) {
	r.pressureBytes.Add(messageCost)
	r.spill(h, comm, source, tag, payload, large)
}

// startSend sends a message that sendDirect does not send. Its cell is an offer, or a copy of the
// parts that a layout selects. Lock held.
func (c *comm) startSend(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (*send, error) {
	if err := c.StartError(plane); err != nil {
		return nil, err
	}
	r, to := c.rank, c.shared.ranks[dst]
	length := buf.Len()
	c.event(pml.EventSend, tag, length, plane)
	if mode != pml.Synchronous && length <= int64(r.eagerLimit) && !to.isLoaded() {
		m := r.newMessage(int(length))
		copyRange(pml.Buffer{Bytes: m.payload}, buf, 0, length)
		c.putEager(to, m, tag, plane, true)
		r.deliverLater(to)
		return r.completeSend(), nil
	}
	s := r.freeSend()
	s.Start()
	s.Status = pml.NoMessage()
	o := newOffer()
	s.c, s.plane, s.dst, s.tag, s.bytes, s.offer = c, plane, dst, tag, length, o
	s.isSynchronous, s.isReturning = mode == pml.Synchronous, false
	o.buf, o.senderRank, o.send, o.source, o.tag = buf, r, s, int32(c.Spec.Rank), int32(tag)
	o.userCount.Store(1)
	o.state.Store(offerInRing)
	r.offeredSends.push(s)
	c.startOperation()
	h := makeHeader(kindOffer, int(plane), 0)
	if !to.put(h, c.shared.teamCommID, o.source, o.tag, nil, &o.msg) {
		to.spillFor(h, c.shared.teamCommID, o.source, o.tag, nil, &o.msg)
	}
	// The receiver may have closed the communicator, or may never poll again.
	if !to.pollWord.Polled() {
		r.engine.Defer((*delivery)(to))
	}
	return s, nil
}
