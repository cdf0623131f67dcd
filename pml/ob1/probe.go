package ob1

import (
	"context"
	"slices"

	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
	"github.com/ferrympi/ferry/progress"
)

// Find implements base.Prober. Without a message it makes progress once and searches again.
func (c *comm) Find(_ context.Context, src, tag int, plane pml.Plane, claim bool) (base.Found, error) {
	msg, err := c.findUnexpected(src, tag, plane)
	if msg == nil && err == nil {
		c.m.engine.Progress()
		msg, err = c.findUnexpected(src, tag, plane)
	}
	if msg == nil {
		return base.Found{}, err
	}
	f := base.Found{Status: msg.Owner.status(), OK: true}
	if claim {
		c.queues[plane].RemoveUnexpected(msg)
		f.Message = c.claimMessage(msg.Owner)
	}
	return f, nil
}

// findUnexpected returns an unexpected message, or an error if none can arrive. Lock held.
func (c *comm) findUnexpected(src, tag int, plane pml.Plane) (*match.Message[unexpectedMessage], error) {
	var mp *match.Peer[request, unexpectedMessage]
	if src != pml.AnySource {
		mp = &c.peer(src).match[plane]
	}
	if found := c.queues[plane].Find(mp, src, tag); found != nil {
		return found, nil
	}
	if c.isBarred[plane] {
		return nil, c.barError()
	}
	if err := c.SourceError(src, plane); err != nil || src != pml.AnySource {
		return nil, err
	}
	return nil, c.Suspended[plane]
}

// Pause implements base.Prober. It blocks until an unexpected message arrives.
func (c *comm) Pause(ctx context.Context, _ int) error {
	arrival := new(progress.Completion)
	c.blockedProbes = append(c.blockedProbes, arrival)
	err := c.m.engine.Wait(ctx, arrival, nil)
	c.blockedProbes = slices.DeleteFunc(c.blockedProbes, func(p *progress.Completion) bool { return p == arrival })
	return err
}

// claimMessage counts a message, which is in no queue, as pending until it is received or
// dropped. Its sender can no longer withdraw it. Lock held.
func (c *comm) claimMessage(msg *unexpectedMessage) base.Message {
	c.Pending++
	msg.forbidWithdrawal()
	return msg
}

func (m *unexpectedMessage) status() pml.Status {
	return pml.Status{Source: m.node.Source, Tag: m.node.Tag, Bytes: int(m.length)}
}

// Drop implements base.Message.
func (m *unexpectedMessage) Drop() {
	c := m.p.c
	c.m.discardUnexpected(m)
	if c.FinishOperation() {
		c.leave()
	}
}

// Receive implements base.Message.
func (m *unexpectedMessage) Receive(buf pml.Buffer) *pml.Request {
	c := m.p.c
	r := c.m.newRequest(c)
	// The request counts as pending instead.
	c.Pending--
	r.isSend, r.state, r.plane, r.buf, r.tag = false, statePosted, m.plane, buf, m.node.Tag
	r.takeMessage(m)
	return &r.Request
}
