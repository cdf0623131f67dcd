package ob1

import (
	"context"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// Find implements base.Prober. It progresses once if there is no message.
func (c *comm) Find(src, tag int, plane pml.Plane, claim bool) (base.Found, error) {
	msg, err := c.find(src, tag, plane)
	if msg == nil && err == nil {
		c.m.engine.Progress()
		msg, err = c.find(src, tag, plane)
	}
	return c.found(msg, plane, claim), err
}

// Await implements base.Prober.
func (c *comm) Await(ctx context.Context, src, tag int, plane pml.Plane, claim bool) (base.Found, error) {
	msg, err := c.await(ctx, src, tag, plane)
	return c.found(msg, plane, claim), err
}

func (c *comm) found(msg *match.Message[message], plane pml.Plane, claim bool) base.Found {
	if msg == nil {
		return base.Found{}
	}
	f := base.Found{Status: msg.Owner.status(), OK: true}
	if claim {
		c.queues[plane].Take(msg)
		f.Message = c.claim(msg.Owner, plane)
	}
	return f
}

// claim has a message that is in no queue count as pending.
func (c *comm) claim(msg *message, plane pml.Plane) base.Message {
	c.Pending++
	msg.plane = plane
	return msg
}

func (m *message) status() pml.Status {
	return pml.Status{Source: m.node.Source, Tag: m.node.Tag, Bytes: int(m.length)}
}

// Receive implements base.Message.
func (m *message) Receive(buf pml.Buffer) *pml.Request {
	c := m.p.c
	r := c.m.newRequest(c)
	c.Pending-- // the request counts now
	r.send, r.state, r.plane, r.buf, r.tag = false, posted, m.plane, buf, m.node.Tag
	r.take(m)
	return &r.Request
}
