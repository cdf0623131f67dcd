package ob1

import (
	"context"
	"slices"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// Find implements base.Prober. It progresses once if there is no message.
func (c *comm) Find(_ context.Context, src, tag int, plane pml.Plane, claim bool) (base.Found, error) {
	msg, err := c.find(src, tag, plane)
	if msg == nil && err == nil {
		c.m.engine.Progress()
		msg, err = c.find(src, tag, plane)
	}
	if msg == nil {
		return base.Found{}, err
	}
	f := base.Found{Status: msg.Owner.status(), OK: true}
	if claim {
		c.queues[plane].Take(msg)
		f.Message = c.claim(msg.Owner)
	}
	return f, nil
}

// find looks for an unexpected message; the error says that none can come. Lock
// held.
func (c *comm) find(src, tag int, plane pml.Plane) (*match.Message[message], error) {
	var mp *match.Peer[request, message]
	if src != pml.AnySource {
		mp = &c.peer(src).match[plane]
	}
	if found := c.queues[plane].Find(mp, src, tag); found != nil {
		return found, nil
	}
	if c.barred[plane] {
		return nil, c.barredBy()
	}
	if err := c.CannotCome(src, plane); err != nil || src != pml.AnySource {
		return nil, err
	}
	return nil, c.Suspended[plane]
}

// Pause implements base.Prober: until something arrives that has no receive.
func (c *comm) Pause(ctx context.Context, _ int) error {
	arrival := new(progress.Completion)
	c.probes = append(c.probes, arrival)
	err := c.m.engine.Wait(ctx, arrival, nil)
	c.probes = slices.DeleteFunc(c.probes, func(p *progress.Completion) bool { return p == arrival })
	return err
}

// claim has a message that is in no queue count as pending.
func (c *comm) claim(msg *message) base.Message {
	c.Pending++
	msg.matched()
	return msg
}

func (m *message) status() pml.Status {
	return pml.Status{Source: m.node.Source, Tag: m.node.Tag, Bytes: int(m.length)}
}

// Drop implements base.Message.
func (m *message) Drop() {
	c := m.p.c
	c.m.discard(m)
	if c.Done() {
		c.part()
	}
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
