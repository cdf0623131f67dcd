package cm

import (
	"context"
	"slices"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// message is a message in the network that a probe is for, or has found. If the probe has
// claimed it, op refers to it, and only the owner of this value can receive it.
type message struct {
	queueNode  match.Message[message]
	op         mtl.Op
	completion progress.Completion
	// isReceiving is set while the contents are received, for matchedRequest or to be dropped.
	isReceiving bool
	purpose     purpose
	// failureCount is Module.failureCount at the start of a reaper's probe.
	failureCount uint32
	// from is the sender of a claimed message, nil if its rank is invalid.
	from           *peer
	c              *comm
	plane          pml.Plane
	matchedRequest *request
	nextFree       *message

	// isSettled is set if the sender was notified that the message is dropped, see
	// unreceived.go.
	isSettled bool

	// State of a claimed message that has the length of an RTS, see rendezvous.go. receiveErr
	// replaces the contents.
	isInspecting, isInspected, isRTS bool

	probeResult mtl.Result
	contents    [rtsSize]byte
	rts         rts
	receiveErr  error
}

// purpose is the owner of a probe.
type purpose uint8

const (
	// forCaller is a probe of package mpi, which waits for message.completion.
	forCaller purpose = iota
	forReaper
	forPuller
)

// newMessage returns a message for a new probe. Lock held.
func (m *Module) newMessage(c *comm, plane pml.Plane) *message {
	msg := m.freeMessages
	if msg == nil {
		msg = new(message)
		msg.queueNode.Owner = msg
		msg.op.Owner = msg
	} else {
		m.freeMessages, msg.nextFree = msg.nextFree, nil
	}
	msg.c, msg.plane = c, plane
	msg.completion.Reset()
	c.pendingProbes++
	return msg
}

func (m *Module) freeMessage(msg *message) {
	c := msg.c
	msg.c, msg.matchedRequest, msg.from, msg.isReceiving, msg.purpose = nil, nil, nil, false, forCaller
	msg.isInspected, msg.isRTS, msg.isSettled, msg.receiveErr = false, false, false, nil
	msg.nextFree = m.freeMessages
	m.freeMessages = msg
	c.pendingProbes--
	c.releaseIndex()
}

// Done implements mtl.Owner.
func (msg *message) Done(*mtl.Op) {
	m := msg.c.m
	was := msg.isInspecting
	if was {
		msg.inspected()
	}
	switch {
	case msg.purpose == forReaper && was:
		msg.discard()
	case msg.purpose == forReaper:
		m.reapProbeDone(msg)
	case msg.purpose == forPuller && was:
		msg.deliverPulled()
	case msg.purpose == forPuller:
		msg.pullProbeDone()
	case !msg.isReceiving:
		m.engine.Complete(&msg.completion)
	case msg.matchedRequest != nil:
		r, res := msg.matchedRequest, msg.op.Result
		m.freeMessage(msg)
		r.receivedClaimed(&res)
	default:
		msg.c.countDropped(msg)
		m.freeMessage(msg)
	}
}

func (msg *message) status() pml.Status {
	return pml.Status{Source: int(msg.op.Source), Tag: int(msg.op.Tag), Bytes: int(msg.op.Bytes)}
}

// deliverTo delivers a claimed message to a receive. Lock held.
func (msg *message) deliverTo(r *request) {
	r.state = receiving
	r.Resume()
	r.p, msg.matchedRequest = msg.from, r
	if msg.isInspected {
		msg.deliverInspected()
	} else {
		msg.fetch(r.target())
	}
}

// fetch receives a claimed message into buf, or drops it if buf is nil.
func (msg *message) fetch(buf []byte) {
	msg.isReceiving, msg.purpose = true, forCaller
	if err := msg.c.m.mtl.RecvClaimed(&msg.op, buf); err != nil {
		msg.op.Result = mtl.Result{Err: err}
		msg.Done(&msg.op)
	}
}

// discard drops a claimed message. Lock held.
func (msg *message) discard() {
	if msg.isInspected {
		msg.dropInspected()
	} else {
		msg.fetch(nil)
	}
}

// probeOnce probes the network once, and returns nil if there is no message. With claim
// the caller owns the message. Lock held, and released while the network answers.
func (c *comm) probeOnce(src, tag int, plane pml.Plane, claim bool) (*message, error) {
	m := c.m
	var p *peer
	var from mtl.Endpoint
	if src != pml.AnySource {
		p = c.peer(src)
		if p.proc.connect() != nil && !p.proc.isConnected {
			return nil, nil // Nothing can have come from there.
		}
		from = p.proc.mtlEndpoint
	}
	msg := m.newMessage(c, plane)
	err := m.mtl.Probe(&msg.op, from, c.from(p, tag, uint32(plane)), claim)
	if err == nil {
		m.engine.Wait(nil, &msg.completion, nil) // Polls all sources, so that a loop of probes makes progress.
		if err = msg.op.Err; err == nil && msg.op.Found {
			if !claim {
				_, err = c.senderOf(&msg.op.Result)
			} else if msg.from, err = c.countClaimed(&msg.op.Result); err != nil {
				msg.discard()
				return nil, err
			}
			if err == nil && claim && msg.mustInspect() {
				msg.completion.Reset()
				if msg.inspect(); !msg.isInspected {
					m.engine.Wait(nil, &msg.completion, nil)
				}
			}
			if err == nil {
				return msg, nil
			}
		}
	}
	m.freeMessage(msg)
	return nil, err
}

// find returns a message that a receive would match now, or nil. With claim the message is
// removed from matching. Otherwise it has only a status, and the caller frees it at once. An
// error means that no message can come, or that ctx has ended. Lock held, and released
// during waits.
func (c *comm) find(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (*message, error) {
	if err := c.repeatMissed(src, tag, plane); err != nil {
		return nil, err
	}
	if err := c.Aborted[plane]; err != nil && plane == pml.PointToPoint {
		return nil, err // The unexpected queue may hold earlier messages.
	}
	for {
		if c.isSwept(src, plane) {
			return c.findSwept(ctx, src, tag, plane, claim)
		}
		if c.IsClosed() {
			return nil, framework.ErrClosed // Another communicator may get its id.
		}
		if msg := c.findUnexpected(src, tag, plane, claim); msg != nil {
			return msg, nil
		}
		if c.pullsByPlane[plane].remainingMessages > 0 {
			if err := c.m.awaitPull(ctx); err != nil {
				return nil, err
			}
			continue
		}
		msg, err := c.probeOnce(src, tag, plane, claim)
		if msg == nil && err == nil {
			break
		}
		if err != nil || claim || !c.m.hasMessageLimit || msg.op.Bytes != rtsSize {
			return msg, err
		}
		from := c.peer(int(msg.op.Source)) // The message may be an RTS.
		c.m.freeMessage(msg)
		if c.startPull(plane, from); c.pullsByPlane[plane].remainingMessages == 0 && !c.isSwept(src, plane) {
			break
		}
	}
	if msg := c.findUnexpected(src, tag, plane, claim); msg != nil { // It was pulled meanwhile.
		return msg, nil
	}
	if c.IsClosed() {
		return nil, framework.ErrClosed
	}
	return nil, c.probeFailure(src, tag, plane)
}

// findSwept is find on a plane with a sweeper.
func (c *comm) findSwept(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (msg *message, err error) {
	s := c.sweeper(plane)
	s.waitingProbes++
	last := s.startedSweeps + 1
	s.restart()
	for err == nil {
		if err = c.StartError(plane); err != nil {
			break
		} else if msg = c.findUnexpected(src, tag, plane, claim); msg != nil || s.finishedSweeps >= last {
			break
		} else {
			err = c.m.waitForPoll(ctx, time.Time{})
		}
	}
	s.waitingProbes--
	if !s.isNeeded() {
		s.start() // It removes the sweeper.
	}
	if msg == nil && err == nil {
		err = c.probeFailure(src, tag, plane)
	}
	return msg, err
}

// probeFailure returns the reason why a probe that has found nothing must not wait, or nil.
func (c *comm) probeFailure(src, tag int, plane pml.Plane) error {
	err := c.recvFailure(src, plane)
	switch {
	case src == pml.AnySource && err == nil:
		err = c.Suspended[plane]
	case src != pml.AnySource && err != nil:
		c.peer(src).recordMissed(plane, tag)
	}
	return err
}

// findUnexpected is find in the unexpected queue.
func (c *comm) findUnexpected(src, tag int, plane pml.Plane, claim bool) *message {
	if c.m.unexpectedCount == 0 {
		return nil
	}
	found := c.matchQueues[plane].Find(c.matchPeer(src, plane), src, tag)
	if found == nil {
		return nil
	}
	if claim {
		return c.takeUnexpected(found, plane)
	}
	copied := c.m.newMessage(c, plane)
	copied.op.Result = found.Owner.op.Result
	return copied
}

// Find implements base.Prober.
func (c *comm) Find(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (base.Found, error) {
	msg, err := c.find(ctx, src, tag, plane, claim)
	if msg == nil {
		return base.Found{}, err
	}
	f := base.Found{Status: msg.status(), OK: true}
	if claim {
		c.Pending++
		f.Message = msg
	} else {
		c.m.freeMessage(msg)
	}
	return f, nil
}

// Drop implements base.Message.
func (msg *message) Drop() {
	c := msg.c
	c.Pending--
	msg.reject()
	c.advanceClose()
}

// Receive implements base.Message.
func (msg *message) Receive(buf pml.Buffer) *pml.Request {
	c := msg.c
	r := c.m.newRequest(c)
	c.Pending-- // The request is counted instead.
	r.isSend, r.plane, r.userBuf, r.tag = false, msg.plane, buf, int(msg.op.Tag)
	msg.deliverTo(r)
	return &r.Request
}

// blockedProbe is a probe that waits for its next attempt.
type blockedProbe struct {
	wake      progress.Completion
	notBefore time.Time
	// isWoken is set once it is removed from Module.blockedProbes.
	isWoken bool
}

// A network does not report messages without a posted receive. A blocked probe therefore
// repeats, after eagerProbeRounds attempts only every probeInterval.
const (
	eagerProbeRounds = 200
	probeInterval    = 100 * time.Microsecond
)

// Pause implements base.Prober.
func (c *comm) Pause(ctx context.Context, rounds int) error {
	var due time.Time
	if rounds > eagerProbeRounds {
		due = time.Now().Add(probeInterval)
	}
	return c.m.waitForPoll(ctx, due)
}

// waitForPoll waits for a poll at or after due. Lock held, and released during the wait.
func (m *Module) waitForPoll(ctx context.Context, due time.Time) error {
	if ctx != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p := &blockedProbe{notBefore: due}
	m.blockedProbes = append(m.blockedProbes, p)
	err := m.engine.Wait(ctx, &p.wake, nil)
	if !p.isWoken { // ctx has ended.
		i := slices.Index(m.blockedProbes, p)
		m.blockedProbes = slices.Delete(m.blockedProbes, i, i+1)
	}
	return err
}

// wakeDueProbes wakes the blocked probes that are due.
func (m *Module) wakeDueProbes() {
	var now time.Time
	m.blockedProbes = slices.DeleteFunc(m.blockedProbes, func(p *blockedProbe) bool {
		if !p.notBefore.IsZero() {
			if now.IsZero() {
				now = time.Now()
			}
			if now.Before(p.notBefore) {
				return false
			}
		}
		p.isWoken = true
		m.engine.Complete(&p.wake)
		return true
	})
}

// wakeProbes makes all blocked probes due. Lock held.
func (m *Module) wakeProbes() {
	for _, p := range m.blockedProbes {
		p.notBefore = time.Time{}
	}
	m.engine.Nudge()
}
