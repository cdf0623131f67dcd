package compose

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// wildcards is a plane of a communicator on which a receive or a probe from any source
// was posted. From then on messages of the node are matched here: the node's PML hands
// them over in the order of their arrival (pml.Watcher), and receives that they may match
// are posted here. Those from any source are posted in the network too.
//
// A message of the node that meets a receive which the network has as well waits until
// the network's receive is withdrawn for certain. If the network had matched it, the
// message goes to the next receive that it matches: it is the one that can wait, for a
// message that a network has matched can't be put back in its order. Messages behind it
// wait too, so that there is one such question at a time.
//
// Receives from members on the node that were posted before stay with its PML, and get
// what comes first, as they should.
type wildcards struct {
	c      *comm
	plane  pml.Plane
	queues match.Queues[request, message]
	peers  base.Table[*match.Peer[request, message]] // of members on the node

	arrived []*message // that are not in the queues yet
	asking  *request   // that is being withdrawn from the network for arrived[0]
	found   *request   // Receive that Eager has matched for the message that Arrived hands over next.
	pending int        // receives that are not complete
	changed bool       // receives and probes may wait in vain
	watches bool
	lost    error    // why receives from any source may wait in vain, see lookForLost
	probes  []*probe // that are blocked
}

// message is one of the node.
type message struct {
	node     match.Message[message]
	w        *wildcards
	claimed  pml.Claimed
	bytes    int
	isQueued bool // It is in the unexpected queue.
	isAsked  bool // Return has refused the withdrawal of it.
}

func (msg *message) status() pml.Status {
	return pml.Status{Source: msg.node.Source, Tag: msg.node.Tag, Bytes: msg.bytes}
}

func newWildcards(c *comm, plane pml.Plane) *wildcards {
	return &wildcards{c: c, plane: plane, peers: base.NewTable[*match.Peer[request, message]](c.onNode.Len(), c.sides.IsWhole)}
}

// watch begins. Lock held.
func (w *wildcards) watch() {
	w.watches = true
	w.c.j.watching[w] = struct{}{}
	w.lookForLost()
	w.c.watchable.Watch(w.plane, w)
}

// lookForLost sees whether a member on the node has failed. The network's PML, which has
// the receives from any source too, hears of it only if the bootstrap reports a death, and
// not if a path on the node breaks. Lock held.
func (w *wildcards) lookForLost() {
	for src := range w.c.onNode.Len() {
		if !w.c.sides.isOnNode(src) {
			continue
		}
		if err := w.c.watchable.CannotCome(src, w.plane); err != nil && !errors.Is(err, framework.ErrPeerClosed) {
			// A death is reported to the network's PML too, and ends no receive that can be suspended.
			if w.lost = w.c.watchable.CannotCome(pml.AnySource, w.plane); w.lost != nil {
				return
			}
		}
	}
}

// mayEnd ends a plane of a closed communicator on which no receive waits. Senders of
// messages that nobody will receive must not wait. Lock held.
func (w *wildcards) mayEnd() {
	if !w.c.closed || w.pending > 0 || !w.watches || w.c.j.isClosed {
		return
	}
	w.watches = false
	delete(w.c.j.watching, w)
	for _, msg := range w.arrived {
		msg.claimed.Drop()
	}
	w.arrived = nil
	w.queues.Unexpected(func(msg *match.Message[message]) {
		w.take(msg.Owner)
		msg.Owner.claimed.Drop()
	})
	w.c.watchable.Watch(w.plane, nil)
}

// post posts a receive from any source, or from a member on the node. Lock held.
func (w *wildcards) post(buf pml.Buffer, src, tag int) *request {
	c := w.c
	r := c.j.newRequest(w)
	r.buf = buf
	r.posted.Source, r.posted.Tag = src, tag
	w.pending++
	if err := c.over(); err != nil {
		r.fail(err)
		return r
	}
	if found := w.queues.Post(w.from(src), &r.posted); found != nil {
		r.hook()
		found.Owner.isQueued = false
		r.give(found.Owner)
		return r
	}
	if src == pml.AnySource {
		r.follow(c.network.StartRecv(buf, src, tag, w.plane))
		switch {
		case w.lost == nil || r.part == nil:
		case len(w.arrived) > 0: // its message may be among them
			w.changed = true
		default:
			r.end(w.lost)
		}
		r.SetSuspended(c.suspended[w.plane])
		return r
	}
	r.hook()
	switch err := c.watchable.CannotCome(src, w.plane); {
	case err == nil:
	case len(w.arrived) > 0: // its message may be among them
		w.changed = true
	default:
		r.fail(err)
	}
	return r
}

// from returns the queues of a source; nil: any.
func (w *wildcards) from(src int) *match.Peer[request, message] {
	if src == pml.AnySource {
		return nil
	}
	return w.peer(src)
}

// peer returns the queues of a member on the node.
func (w *wildcards) peer(src int) *match.Peer[request, message] {
	p := w.peers.Get(src)
	if p == nil {
		p = new(match.Peer[request, message])
		w.peers.Set(src, p)
	}
	return p
}

// Eager implements pml.Watcher. A message behind others waits like them, and so does one whose
// receive the network has as well.
func (w *wildcards) Eager(src, tag int, payload []byte) bool {
	if len(w.arrived) > 0 {
		return false
	}
	found := w.queues.Arrive(w.peer(src), tag)
	if found == nil {
		return false
	}
	r := found.Owner
	if r.part != nil {
		w.found = r
		return false
	}
	r.finish(pml.Status{Source: src, Tag: tag, Bytes: len(payload), Err: base.Deliver(r.buf, payload)})
	return true
}

// Arrived implements pml.Watcher.
func (w *wildcards) Arrived(k pml.Claimed, st pml.Status) pml.Unmatched {
	msg := &message{w: w, claimed: k, bytes: st.Bytes}
	msg.node.Owner, msg.node.Source, msg.node.Tag = msg, st.Source, st.Tag
	w.arrived = append(w.arrived, msg)
	w.settle()
	if msg.claimed == nil {
		return nil
	}
	return msg
}

// Return implements pml.Unmatched. A message for which a receive is being withdrawn from the
// network counts as matched. If that receive ends otherwise, the message is dropped, since its sender waits.
func (msg *message) Return() bool {
	w := msg.w
	if msg.isQueued {
		w.take(msg)
		return true
	}
	i := slices.Index(w.arrived, msg)
	if i < 0 || i == 0 && w.asking != nil {
		msg.isAsked = i == 0
		return false
	}
	w.arrived = slices.Delete(w.arrived, i, i+1)
	return true
}

// take takes a message out of the unexpected queue. Lock held.
func (w *wildcards) take(msg *message) {
	w.queues.Take(&msg.node)
	msg.isQueued = false
}

// match returns the receive that a message matches, out of its queue. nil: there is none. Lock
// held.
func (w *wildcards) match(msg *message) (r *request) {
	if r = w.found; r != nil {
		w.found = nil
	} else if found := w.queues.Arrive(w.peer(msg.node.Source), msg.node.Tag); found != nil {
		r = found.Owner
	}
	return r
}

// Changed implements pml.Watcher.
func (w *wildcards) Changed() {
	w.changed = true
	w.settle()
}

// settle matches what has arrived, in order, and then ends the receives whose message
// can't come any more. Lock held.
func (w *wildcards) settle() {
	for len(w.arrived) > 0 && w.asking == nil {
		msg := w.arrived[0]
		if msg.isAsked {
			w.arrived = w.arrived[1:]
			msg.claimed.Drop()
			continue
		}
		r := w.match(msg)
		switch {
		case r == nil:
			w.arrived = w.arrived[1:]
			w.queues.Keep(w.peer(msg.node.Source), &msg.node)
			msg.isQueued = true
			w.wakeProbes()
		case r.part != nil:
			w.asking = r
			r.Resume()            // it gets this message or one of the network
			r.part.CancelLocked() // it may answer at once
		default:
			w.arrived = w.arrived[1:]
			r.give(msg)
		}
	}
	if !w.changed || len(w.arrived) > 0 {
		return
	}
	w.changed = false
	w.lookForLost()
	w.wakeProbes()
	if w.lost != nil {
		w.queues.Posted(nil, func(r *match.Recv[request]) { r.Owner.end(w.lost) })
	}
	for src, from := range w.peers.All() {
		if err := w.c.watchable.CannotCome(src, w.plane); err != nil {
			w.queues.Posted(from, func(r *match.Recv[request]) { r.Owner.fail(err) })
		}
	}
}
