package compose

import (
	"errors"
	"slices"

	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// wildcards matches the messages of the node on one plane of a communicator, after the first receive or probe from
// any source there. The node's PML passes them in order of arrival (pml.Watcher). Receives that they may match are
// posted here. Those from any source are posted in the network too.
//
// If a message of the node matches a receive that the network has too, it waits until the network's receive is
// withdrawn. If the network has matched that receive, the message goes to the next receive that it matches, since a
// message that a network has matched cannot be put back in order. Later messages wait too, so that there is one
// withdrawal at a time.
//
// Receives from members on the node that were posted before stay with its PML, and match first.
type wildcards struct {
	c           *comm
	plane       pml.Plane
	matchQueues match.Queues[request, message]
	// nodePeers has the queues of the members on the node.
	nodePeers base.Table[*match.Peer[request, message]]

	// arrivedMessages has the messages that are not in the queues yet.
	arrivedMessages []*message
	// withdrawingRecv is the receive that is being withdrawn from the network for arrivedMessages[0].
	withdrawingRecv *request
	// eagerMatch is the receive that Eager has matched for the next call of Arrived.
	eagerMatch   *request
	pendingRecvs int
	// mustRecheck is set if a message may no longer come for some receive or probe.
	mustRecheck bool
	isWatching  bool
	// lostError is the error of receives from any source, see checkLost.
	lostError    error
	activeProbes []*probe
}

// message is a message of the node.
type message struct {
	queueNode      match.Message[message]
	w              *wildcards
	claimedMessage pml.Claimed
	messageBytes   int
	// isQueued is set while it is in the unexpected queue.
	isQueued bool
	// isReturnRefused is set if Return has refused to return it to its sender.
	isReturnRefused bool
}

func (msg *message) status() pml.Status {
	return pml.Status{Source: msg.queueNode.Source, Tag: msg.queueNode.Tag, Bytes: msg.messageBytes}
}

func newWildcards(c *comm, plane pml.Plane) *wildcards {
	return &wildcards{c: c, plane: plane, nodePeers: base.NewTable[*match.Peer[request, message]](c.onNode.Len(), c.sides.IsWhole)}
}

// watch starts the watch. Lock held.
func (w *wildcards) watch() {
	w.isWatching = true
	w.c.j.watchingWildcards[w] = struct{}{}
	w.checkLost()
	w.c.watchableNode.Watch(w.plane, w)
}

// checkLost sets lostError if a member on the node is unreachable. The network's PML, which has the receives from any
// source too, gets failure reports of the bootstrap, but does not detect a broken path on the node. Lock held.
func (w *wildcards) checkLost() {
	for src := range w.c.onNode.Len() {
		if !w.c.sides.isOnNode(src) {
			continue
		}
		if err := w.c.watchableNode.SourceError(src, w.plane); err != nil && !errors.Is(err, framework.ErrPeerClosed) {
			// Failures are reported to the network's PML too, and fail no receive that can be suspended.
			if w.lostError = w.c.watchableNode.SourceError(pml.AnySource, w.plane); w.lostError != nil {
				return
			}
		}
	}
}

// endIfUnused ends the watch of a closed communicator without pending receives, so that senders of unreceived messages
// do not wait. Lock held.
func (w *wildcards) endIfUnused() {
	if !w.c.isNodeClosed || w.pendingRecvs > 0 || !w.isWatching || w.c.j.isClosed {
		return
	}
	w.isWatching = false
	delete(w.c.j.watchingWildcards, w)
	for _, msg := range w.arrivedMessages {
		msg.claimedMessage.Drop()
	}
	w.arrivedMessages = nil
	w.matchQueues.Unexpected(func(msg *match.Message[message]) {
		w.takeUnexpected(msg.Owner)
		msg.Owner.claimedMessage.Drop()
	})
	w.c.watchableNode.Watch(w.plane, nil)
}

// post posts a receive from any source, or from a member on the node. Lock held.
func (w *wildcards) post(buf pml.Buffer, src, tag int) *request {
	c := w.c
	r := c.j.newRequest(w)
	r.userBuf = buf
	r.postedRecv.Source, r.postedRecv.Tag = src, tag
	w.pendingRecvs++
	if err := c.closedError(); err != nil {
		r.fail(err)
		return r
	}
	if found := w.matchQueues.Post(w.from(src), &r.postedRecv); found != nil {
		r.emitRecv()
		found.Owner.isQueued = false
		r.deliver(found.Owner)
		return r
	}
	if src == pml.AnySource {
		r.followInner(c.networkComm.StartRecv(buf, src, tag, w.plane))
		switch {
		case w.lostError == nil || r.innerRequest == nil:
		case len(w.arrivedMessages) > 0: // Its message may be among them.
			w.mustRecheck = true
		default:
			r.withdraw(w.lostError)
		}
		r.SetSuspended(c.suspendReasons[w.plane])
		return r
	}
	r.emitRecv()
	switch err := c.watchableNode.SourceError(src, w.plane); {
	case err == nil:
	case len(w.arrivedMessages) > 0: // Its message may be among them.
		w.mustRecheck = true
	default:
		r.fail(err)
	}
	return r
}

// from returns the queues of a source, nil for any source.
func (w *wildcards) from(src int) *match.Peer[request, message] {
	if src == pml.AnySource {
		return nil
	}
	return w.peer(src)
}

// peer returns the queues of a member on the node.
func (w *wildcards) peer(src int) *match.Peer[request, message] {
	p := w.nodePeers.Get(src)
	if p == nil {
		p = new(match.Peer[request, message])
		w.nodePeers.Set(src, p)
	}
	return p
}

// Eager implements pml.Watcher. A message waits behind others in arrived, or if the network has its receive too.
func (w *wildcards) Eager(src, tag int, payload []byte) bool {
	if len(w.arrivedMessages) > 0 {
		return false
	}
	found := w.matchQueues.Arrive(w.peer(src), tag)
	if found == nil {
		return false
	}
	r := found.Owner
	if r.innerRequest != nil {
		w.eagerMatch = r
		return false
	}
	r.finish(pml.Status{Source: src, Tag: tag, Bytes: len(payload), Err: base.Deliver(r.userBuf, payload)})
	return true
}

// Arrived implements pml.Watcher.
func (w *wildcards) Arrived(k pml.Claimed, st pml.Status) pml.Unmatched {
	msg := &message{w: w, claimedMessage: k, messageBytes: st.Bytes}
	msg.queueNode.Owner, msg.queueNode.Source, msg.queueNode.Tag = msg, st.Source, st.Tag
	w.arrivedMessages = append(w.arrivedMessages, msg)
	w.settle()
	if msg.claimedMessage == nil {
		return nil
	}
	return msg
}

// Return implements pml.Unmatched. A message for which a receive is being withdrawn from the network counts as matched.
// If the network has matched that receive, the message is dropped, since its sender waits.
func (msg *message) Return() bool {
	w := msg.w
	if msg.isQueued {
		w.takeUnexpected(msg)
		return true
	}
	i := slices.Index(w.arrivedMessages, msg)
	if i < 0 || i == 0 && w.withdrawingRecv != nil {
		msg.isReturnRefused = i == 0
		return false
	}
	w.arrivedMessages = slices.Delete(w.arrivedMessages, i, i+1)
	return true
}

// takeUnexpected removes a message from the unexpected queue. Lock held.
func (w *wildcards) takeUnexpected(msg *message) {
	w.matchQueues.RemoveUnexpected(&msg.queueNode)
	msg.isQueued = false
}

// matchArrival removes the receive that a message matches from its queue and returns it, or nil if there is none. Lock
// held.
func (w *wildcards) matchArrival(msg *message) (r *request) {
	if r = w.eagerMatch; r != nil {
		w.eagerMatch = nil
	} else if found := w.matchQueues.Arrive(w.peer(msg.queueNode.Source), msg.queueNode.Tag); found != nil {
		r = found.Owner
	}
	return r
}

// Changed implements pml.Watcher.
func (w *wildcards) Changed() {
	w.mustRecheck = true
	w.settle()
}

// settle matches the arrived messages, in order, and then ends the receives whose message cannot come any more. Lock
// held.
func (w *wildcards) settle() {
	for len(w.arrivedMessages) > 0 && w.withdrawingRecv == nil {
		msg := w.arrivedMessages[0]
		if msg.isReturnRefused {
			w.arrivedMessages = w.arrivedMessages[1:]
			msg.claimedMessage.Drop()
			continue
		}
		r := w.matchArrival(msg)
		switch {
		case r == nil:
			w.arrivedMessages = w.arrivedMessages[1:]
			w.matchQueues.AddUnexpected(w.peer(msg.queueNode.Source), &msg.queueNode)
			msg.isQueued = true
			w.wakeProbes()
		case r.innerRequest != nil:
			w.withdrawingRecv = r
			r.Resume()                    // It has a message of the node or of the network.
			r.innerRequest.CancelLocked() // It may complete within the call.
		default:
			w.arrivedMessages = w.arrivedMessages[1:]
			r.deliver(msg)
		}
	}
	if !w.mustRecheck || len(w.arrivedMessages) > 0 {
		return
	}
	w.mustRecheck = false
	w.checkLost()
	w.wakeProbes()
	if w.lostError != nil {
		w.matchQueues.Posted(nil, func(r *match.Recv[request]) { r.Owner.withdraw(w.lostError) })
	}
	for src, from := range w.nodePeers.All() {
		if err := w.c.watchableNode.SourceError(src, w.plane); err != nil {
			w.matchQueues.Posted(from, func(r *match.Recv[request]) { r.Owner.fail(err) })
		}
	}
}
