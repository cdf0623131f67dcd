package cm

import (
	"context"
	"errors"
	"time"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// wild is a plane of a mixed communicator on which a receive from any source was
// posted. From then on messages of the node are matched here, in software: a
// goroutine claims them from the node's PML in the order of their arrival, and
// receives that they may match are posted here. Those from any source are posted in
// the network too.
//
// A message of the node that meets a receive which the network has as well waits
// until the network's receive is withdrawn for certain. If the network had matched
// it, the message goes to the next receive that it matches: it is the one that can
// wait, for a message that a network has matched can't be put back in its order.
// Messages behind it wait too, so that there is one such question at a time.
//
// Receives from members of the node that were posted before stay with its PML, and
// get what comes first, as they should.
type wild struct {
	c      *mixed
	plane  pml.Plane
	queues match.Queues[request, nearMessage]
	peers  []match.Peer[request, nearMessage] // by rank

	arrived []*nearMessage // claimed, and not in the queues yet
	asking  *request       // that is being withdrawn from the network for arrived[0]
	posted  int            // receives in queues

	stop  context.CancelFunc
	over  bool // stop was called, and nothing waits here any more
	ended chan struct{}
}

// nearMessage is a message that was claimed from the node's PML.
type nearMessage struct {
	node    match.Message[nearMessage]
	claimed pml.Claimed
	bytes   int
}

func (msg *nearMessage) status() pml.Status {
	return pml.Status{Source: msg.node.Source, Tag: msg.node.Tag, Bytes: msg.bytes}
}

// newWild starts it. Lock held.
func newWild(c *mixed, plane pml.Plane) *wild {
	ctx, stop := context.WithCancel(context.Background())
	w := &wild{c: c, plane: plane, peers: make([]match.Peer[request, nearMessage], len(c.near)), stop: stop, ended: make(chan struct{})}
	c.m.wilds[w] = struct{}{}
	go w.claimAll(ctx)
	return w
}

// failedPause is between looks for messages when one of the members has failed: the
// node's PML does not wait for the others then.
const failedPause = 200 * time.Microsecond

// claimAll takes messages over from the node's PML until it is stopped.
func (w *wild) claimAll(ctx context.Context) {
	defer close(w.ended)
	e := w.c.m.engine
	for {
		k, st, err := w.c.node.Mprobe(ctx, pml.AnySource, pml.AnyTag, w.plane)
		switch {
		case err == nil:
			e.Lock()
			msg := &nearMessage{claimed: k, bytes: st.Bytes}
			msg.node.Owner, msg.node.Source, msg.node.Tag = msg, st.Source, st.Tag
			w.arrived = append(w.arrived, msg)
			w.settle()
			e.Unlock()
			continue
		case ctx.Err() == nil && errors.Is(err, framework.ErrProcFailedPending):
			select {
			case <-time.After(failedPause):
				continue
			case <-ctx.Done():
			}
		}
		<-ctx.Done() // the plane is aborted, or the communicator closed
		break
	}
	e.Lock()
	left := w.arrived
	w.arrived, w.asking = nil, nil // what the network still answers concerns no message
	w.queues.Unexpected(func(msg *match.Message[nearMessage]) {
		w.queues.Take(msg)
		left = append(left, msg.Owner)
	})
	delete(w.c.m.wilds, w)
	w.over = true
	closing := w.c.Closed()
	e.Unlock()
	for _, msg := range left { // their senders must not wait
		msg.claimed.Irecv(pml.Buffer{})
	}
	if closing {
		w.c.release()
	}
}

// mayEnd stops the plane of a closed communicator when no receive waits here, and
// reports whether it did. Lock held.
func (w *wild) mayEnd() bool {
	if !w.c.Closed() || w.posted > 0 {
		return false
	}
	w.stop()
	return true
}

// postRecv posts a receive from any source, or from a member on this node. Lock held.
func (w *wild) postRecv(buf pml.Buffer, src, tag int) *request {
	c, m := w.c, w.c.m
	r := m.newRequest(c.comm)
	r.send, r.plane, r.tag, r.buf, r.w = false, w.plane, tag, buf, w
	r.node.Source, r.node.Tag = src, tag
	var mp *match.Peer[request, nearMessage]
	if src != pml.AnySource {
		r.p = c.peer(src)
		mp = &w.peers[src]
	}
	m.hook(pml.Event{Kind: pml.EventRecv, Comm: c.Spec.ID, Tag: tag, Bytes: buf.Len(), Plane: w.plane})
	w.posted++
	if c.Closed() {
		r.fail(framework.ErrClosed)
		return r
	}
	if found := w.queues.Post(mp, &r.node); found != nil {
		w.give(found.Owner, r)
		return r
	}
	if r.p == nil {
		r.post()
		return r
	}
	r.state = waiting
	if err := r.hopeless(); err != nil {
		r.fail(err)
	}
	return r
}

// settle matches what has arrived, in order. Lock held.
func (w *wild) settle() {
	for len(w.arrived) > 0 && w.asking == nil {
		msg := w.arrived[0]
		found := w.queues.Arrive(&w.peers[msg.node.Source], msg.node.Tag)
		if found == nil {
			w.queues.Keep(&w.peers[msg.node.Source], &msg.node)
			w.arrived = w.arrived[1:]
			w.c.m.wakeProbes()
			continue
		}
		switch r := found.Owner; r.state {
		case posted, seeking:
			w.asking = r
			if r.state == posted {
				w.c.m.mtl.Cancel(&r.op)
			}
		case deferred:
			w.c.dropDeferred(r)
			fallthrough
		default:
			w.arrived = w.arrived[1:]
			w.give(msg, r)
		}
	}
}

// answered takes the network's last word on a receive that was to be withdrawn for
// a message, and reports whether the message is the receive's. Lock held.
func (w *wild) answered(r *request, withdrawn bool) bool {
	if w.asking != r {
		return false
	}
	w.asking = nil
	if withdrawn {
		msg := w.arrived[0]
		w.arrived = w.arrived[1:]
		w.give(msg, r)
	}
	w.settle()
	return withdrawn
}

// give has a receive get a message of the node. The node's PML has the receive's buffer
// then, until it says that it is done; which it does, too, when it closes. Lock held.
func (w *wild) give(msg *nearMessage, r *request) {
	m := w.c.m
	r.state = given
	buf := r.buf
	m.giving.Add(1)
	go func() {
		k, err := msg.claimed.Irecv(buf)
		m.giving.Done()
		st := pml.NoMessage()
		if err == nil {
			st, err = k.Wait(context.Background(), k.Generation())
		}
		m.engine.Lock()
		defer m.engine.Unlock()
		r.Status = st
		r.Status.Err = err
		r.finish()
	}()
}

// finished forgets a receive that is over, whoever has ended it. Lock held.
func (w *wild) finished(r *request) {
	w.queues.Cancel(&r.node)
	w.posted--
	if w.asking == r {
		w.asking = nil
		w.settle()
	}
	w.mayEnd()
}

// find looks for a message of the node, and then in the network.
func (w *wild) find(src, tag int, claim bool) (pml.Claimed, pml.Status, bool, error) {
	e := w.c.m.engine
	e.Lock()
	defer e.Unlock()
	return w.findLocked(nil, src, tag, claim)
}

func (w *wild) findLocked(ctx context.Context, src, tag int, claim bool) (pml.Claimed, pml.Status, bool, error) {
	var mp *match.Peer[request, nearMessage]
	if src != pml.AnySource {
		mp = &w.peers[src]
	}
	for range 2 {
		if found := w.queues.Find(mp, src, tag); found != nil {
			if claim {
				w.queues.Take(found)
			}
			return found.Owner.claimed, found.Owner.status(), true, nil
		}
		if src != pml.AnySource {
			w.c.m.engine.Progress()
		}
	}
	if src != pml.AnySource {
		return nil, pml.NoMessage(), false, w.c.cannotCome(w.c.peer(src), w.plane)
	}
	msg, err := w.c.find(ctx, src, tag, w.plane, claim)
	if msg == nil {
		return nil, pml.NoMessage(), false, err
	}
	f := w.c.found(msg, claim)
	return base.NewClaimed(w.c.m.engine, f.Message), f.Status, true, nil
}

// await is find that waits.
func (w *wild) await(ctx context.Context, src, tag int, claim bool) (pml.Claimed, pml.Status, error) {
	e := w.c.m.engine
	e.Lock()
	defer e.Unlock()
	for round := 0; ; round++ {
		k, st, ok, err := w.findLocked(ctx, src, tag, claim)
		if ok || err != nil {
			return k, st, err
		}
		if err := w.c.m.pauseRound(ctx, round); err != nil {
			return nil, pml.NoMessage(), err
		}
	}
}
