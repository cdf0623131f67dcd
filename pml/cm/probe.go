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

// message is one that waits in the network, as far as a probe knows it. Claimed,
// it belongs to op, and only who has the message receives it.
type message struct {
	node    match.Message[message]
	op      mtl.Op
	asked   progress.Completion // of a probe
	fetches bool                // the contents are being fetched, for r, or for nobody
	purpose purpose             // for whom the probe is
	deaths  uint32              // of one for the reaper: Module.deaths when it began
	from    *peer               // who has sent it, once it is claimed; nil: a rank that isn't there
	c       *comm
	plane   pml.Plane
	r       *request
	next    *message

	isSettled bool // Its sender knows that it is dropped, see unwanted.go.

	// Of one that has the length of a head, see long.go.
	opening, isOpen, isHead bool
	found                   mtl.Result // the probe's
	contents                [headSize]byte
	head                    head
	err                     error // in place of the contents
}

// purpose says for whom a probe is.
type purpose uint8

const (
	forCaller purpose = iota // of package mpi, who waits for asked
	forReaper                // see reap
	forPuller                // see pull
)

// newMessage returns a message for a probe. Lock held.
func (m *Module) newMessage(c *comm, plane pml.Plane) *message {
	msg := m.freeMessages
	if msg == nil {
		msg = new(message)
		msg.node.Owner = msg
		msg.op.Owner = msg
	} else {
		m.freeMessages, msg.next = msg.next, nil
	}
	msg.c, msg.plane = c, plane
	msg.asked.Reset()
	c.probing++
	return msg
}

func (m *Module) freeMessage(msg *message) {
	c := msg.c
	msg.c, msg.r, msg.from, msg.fetches, msg.purpose = nil, nil, nil, false, forCaller
	msg.isOpen, msg.isHead, msg.isSettled, msg.err = false, false, false, nil
	msg.next = m.freeMessages
	m.freeMessages = msg
	c.probing--
	c.giveBack()
}

// Done implements mtl.Owner.
func (msg *message) Done(*mtl.Op) {
	m := msg.c.m
	was := msg.opening
	if was {
		msg.opened()
	}
	switch {
	case msg.purpose == forReaper && was:
		msg.discard()
	case msg.purpose == forReaper:
		m.reapedOne(msg)
	case msg.purpose == forPuller && was:
		msg.place()
	case msg.purpose == forPuller:
		msg.pulled()
	case !msg.fetches:
		m.engine.Complete(&msg.asked)
	case msg.r != nil:
		r, res := msg.r, msg.op.Result
		m.freeMessage(msg)
		r.receivedClaimed(&res)
	default:
		msg.c.dropped(msg)
		m.freeMessage(msg)
	}
}

func (msg *message) status() pml.Status {
	return pml.Status{Source: int(msg.op.Source), Tag: int(msg.op.Tag), Bytes: int(msg.op.Bytes)}
}

// giveTo has a receive get a claimed message. Lock held.
func (msg *message) giveTo(r *request) {
	r.state = receiving
	r.Resume()
	r.p, msg.r = msg.from, r
	if msg.isOpen {
		msg.handOver()
	} else {
		msg.fetch(r.target())
	}
}

// fetch receives a claimed message into buf.
func (msg *message) fetch(buf []byte) {
	msg.fetches, msg.purpose = true, forCaller
	if err := msg.c.m.mtl.RecvClaimed(&msg.op, buf); err != nil {
		msg.op.Result = mtl.Result{Err: err}
		msg.Done(&msg.op)
	}
}

// discard drops a claimed message that nobody will receive. Lock held.
func (msg *message) discard() {
	if msg.isOpen {
		msg.drop()
	} else {
		msg.fetch(nil)
	}
}

// ask probes the network once for a message. nil: there is none. With claim
// the message is the caller's. Lock held, and released while the network answers.
func (c *comm) ask(src, tag int, plane pml.Plane, claim bool) (*message, error) {
	m := c.m
	var p *peer
	var from mtl.Endpoint
	if src != pml.AnySource {
		p = c.peer(src)
		if p.proc.connect() != nil && !p.proc.connected {
			return nil, nil // nothing can have come from there
		}
		from = p.proc.to
	}
	msg := m.newMessage(c, plane)
	err := m.mtl.Probe(&msg.op, from, c.from(p, tag, uint32(plane)), claim)
	if err == nil {
		m.engine.Wait(nil, &msg.asked, nil) // all is polled: who probes in a loop keeps everything going
		if err = msg.op.Err; err == nil && msg.op.Found {
			if !claim {
				_, err = c.sender(&msg.op.Result)
			} else if msg.from, err = c.tookOut(&msg.op.Result); err != nil {
				msg.discard()
				return nil, err
			}
			if err == nil && claim && msg.mustOpen() {
				msg.asked.Reset()
				if msg.open(); !msg.isOpen {
					m.engine.Wait(nil, &msg.asked, nil)
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

// find returns a message that a receive would get now: taken out of matching with
// claim, and otherwise only for its status, to be freed at once. nil: there is none.
// The error says that none can come, or that ctx has ended. Lock held, and released
// meanwhile.
func (c *comm) find(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (*message, error) {
	if err := c.told(src, tag, plane); err != nil {
		return nil, err
	}
	if err := c.Aborted[plane]; err != nil && plane == pml.PointToPoint {
		return nil, err // Earlier messages may be held.
	}
	for {
		if c.isSwept(src, plane) {
			return c.findSwept(ctx, src, tag, plane, claim)
		}
		if c.Closed() {
			return nil, framework.ErrClosed // its id may be another communicator's soon
		}
		if msg := c.findKept(src, tag, plane, claim); msg != nil {
			return msg, nil
		}
		if c.pulling[plane].left > 0 {
			if err := c.m.awaitPull(ctx); err != nil {
				return nil, err
			}
			continue
		}
		msg, err := c.ask(src, tag, plane, claim)
		if msg == nil && err == nil {
			break
		}
		if err != nil || claim || !c.m.cuts || msg.op.Bytes != headSize {
			return msg, err
		}
		from := c.peer(int(msg.op.Source)) // it may be longer than it looks
		c.m.freeMessage(msg)
		if c.pull(plane, from); c.pulling[plane].left == 0 && !c.isSwept(src, plane) {
			break
		}
	}
	if msg := c.findKept(src, tag, plane, claim); msg != nil { // it was pulled meanwhile
		return msg, nil
	}
	if c.Closed() {
		return nil, framework.ErrClosed
	}
	return nil, c.notFound(src, tag, plane)
}

// findSwept is find after a sweep.
func (c *comm) findSwept(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (msg *message, err error) {
	s := c.sweeper(plane)
	s.probes++
	last := s.begun + 1
	s.hurry()
	for err == nil {
		if err = c.Over(plane); err != nil {
			break
		} else if msg = c.findKept(src, tag, plane, claim); msg != nil || s.done >= last {
			break
		} else {
			err = c.m.pause(ctx, time.Time{})
		}
	}
	s.probes--
	if !s.wanted() {
		s.begin() // it ends
	}
	if msg == nil && err == nil {
		err = c.notFound(src, tag, plane)
	}
	return msg, err
}

// notFound returns why no message comes for a probe that has found none, or why a probe from any source does not wait.
func (c *comm) notFound(src, tag int, plane pml.Plane) error {
	err := c.cannotCome(src, plane)
	switch {
	case src == pml.AnySource && err == nil:
		err = c.Suspended[plane]
	case src != pml.AnySource && err != nil:
		c.peer(src).miss(plane, tag)
	}
	return err
}

// findKept is find in the unexpected queue.
func (c *comm) findKept(src, tag int, plane pml.Plane, claim bool) *message {
	if c.m.kept == 0 {
		return nil
	}
	found := c.queues[plane].Find(c.matchPeer(src, plane), src, tag)
	if found == nil {
		return nil
	}
	if claim {
		return c.unkeep(found, plane)
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
	c.mayRest()
}

// Receive implements base.Message.
func (msg *message) Receive(buf pml.Buffer) *pml.Request {
	c := msg.c
	r := c.m.newRequest(c)
	c.Pending-- // the request counts now
	r.send, r.plane, r.buf, r.tag = false, msg.plane, buf, int(msg.op.Tag)
	msg.giveTo(r)
	return &r.Request
}

// prober is a blocked probe.
type prober struct {
	again progress.Completion // probe again
	due   time.Time           // not before then
	woken bool                // it is in Module.probing no more
}

// A network says nothing about a message that nobody has posted a receive for: a
// blocked probe asks again and again, after eagerProbes rounds only at an interval.
const (
	eagerProbes   = 200
	probeInterval = 100 * time.Microsecond
)

// Pause implements base.Prober.
func (c *comm) Pause(ctx context.Context, rounds int) error {
	var due time.Time
	if rounds > eagerProbes {
		due = time.Now().Add(probeInterval)
	}
	return c.m.pause(ctx, due)
}

// pause waits for a poll at or after due. Lock held, and released meanwhile.
func (m *Module) pause(ctx context.Context, due time.Time) error {
	if ctx != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p := &prober{due: due}
	m.probing = append(m.probing, p)
	err := m.engine.Wait(ctx, &p.again, nil)
	if !p.woken { // its context has ended
		i := slices.Index(m.probing, p)
		m.probing = slices.Delete(m.probing, i, i+1)
	}
	return err
}

// askAgain wakes the blocked probes that are due.
func (m *Module) askAgain() {
	var now time.Time
	m.probing = slices.DeleteFunc(m.probing, func(p *prober) bool {
		if !p.due.IsZero() {
			if now.IsZero() {
				now = time.Now()
			}
			if now.Before(p.due) {
				return false
			}
		}
		p.woken = true
		m.engine.Complete(&p.again)
		return true
	})
}

// wakeProbes has all blocked probes ask again. Lock held.
func (m *Module) wakeProbes() {
	for _, p := range m.probing {
		p.due = time.Time{}
	}
	m.engine.Nudge()
}
