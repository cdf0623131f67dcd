package ob1

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/match"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/pml/base"
)

// Every unexpected message has one of three owners: the queues of its communicator
// (queueUnexpected), a matched probe (comm.Find), or the watcher of its plane (comm.Watch). All of
// them end it by releaseUnexpected, which returns the sender's credit and frees the memory. The
// failure of a sender ends none of them. Those that are left as the module closes are garbage.

// unexpectedMessage is an eager message or an RTS that arrived before its receive, with a copy
// of its payload or fragment.
type unexpectedMessage struct {
	node  match.Message[unexpectedMessage]
	p     *peer
	isRTS bool
	plane pml.Plane
	// length is that of the whole message.
	length int64
	// handle, pattern, isDescribed and remote come from the RTS, as in parsedMessage.
	handle      uint64
	pattern     pattern
	isDescribed bool
	remote      btl.Remote
	data        []byte
	nextFree    *unexpectedMessage

	// claimed is the message for the watcher of its plane, which keeps it as watcherEntry. That is
	// nil in the queues, and if the watcher consumed the message at once.
	claimed      base.Claimed
	watcherEntry pml.Unmatched
}

// queueUnexpected stores a message without a receive, or passes it to the watcher. Lock held.
func (c *comm) queueUnexpected(p *peer, plane pml.Plane, in *parsedMessage) {
	m := c.m
	w := c.watchers[plane]
	if c.IsClosed() && w == nil {
		p.proc.refuseArrival(in)
		return
	}
	if w != nil && !in.isRTS && c.passEager(p, plane, in) {
		return
	}
	msg := m.getUnexpected(len(in.payload))
	msg.p, msg.plane, msg.isRTS, msg.length, msg.handle, msg.remote, msg.pattern = p, plane, in.isRTS, in.length, in.handle, in.remote, in.pattern()
	msg.isDescribed = in.flags&flagRemote != 0
	copy(msg.data, in.payload)
	msg.node.Source, msg.node.Tag = p.rank, int(in.tag)
	p.proc.Stats.Unexpected++
	if w != nil {
		c.passToWatcher(msg)
		return
	}
	c.queues[plane].AddUnexpected(&p.match[plane], &msg.node)
	if msg.isRTS {
		msg.allowWithdrawal()
	}
	if len(c.blockedProbes) > 0 {
		c.wakeProbes()
	}
}

// getUnexpected returns a message with n bytes for payload.
func (m *Module) getUnexpected(n int) *unexpectedMessage {
	msg := m.freeUnexpected
	if msg == nil {
		msg = new(unexpectedMessage)
		msg.node.Owner = msg
	} else {
		m.freeUnexpected = msg.nextFree
		msg.nextFree = nil
	}
	msg.data = m.pool.get(n)
	return msg
}

// takeMessage gives a matched message to its receive, and frees it. Lock held.
func (r *request) takeMessage(msg *unexpectedMessage) {
	r.p = msg.p
	if msg.isRTS {
		r.acceptRTS(&matchedRTS{length: msg.length, handle: msg.handle, isDescribed: msg.isDescribed, remote: msg.remote, isUnexpected: true, pattern: msg.pattern, fragment: msg.data}, msg.node.Tag)
	} else {
		r.deliver(msg.data, msg.node.Tag)
	}
	r.m.releaseUnexpected(msg)
}

// withdrawRTS returns an RTS to the process, unless it has matched. Lock held.
func (p *proc) withdrawRTS(handle uint64) {
	m := p.m
	if msg := p.withdrawableRTSs[handle]; msg != nil {
		if msg.watcherEntry == nil {
			msg.p.c.queues[msg.plane].RemoveUnexpected(&msg.node)
			m.releaseUnexpected(msg)
		} else if !msg.p.c.withdrawFromWatcher(msg) {
			return
		}
		p.sendControl(newWithdraw(frameWithdrawn, handle))
		return
	}
	if m.early.withdraw(p, handle) {
		p.sendControl(newWithdraw(frameWithdrawn, handle))
	}
	// Otherwise the RTS has matched, and its answer completes the send.
}

// allowWithdrawal records an RTS that its sender can withdraw.
func (msg *unexpectedMessage) allowWithdrawal() {
	p := msg.p.proc
	if p.withdrawableRTSs == nil {
		p.withdrawableRTSs = map[uint64]*unexpectedMessage{}
	}
	p.withdrawableRTSs[msg.handle] = msg
}

// forbidWithdrawal forgets an RTS that has matched, if it was recorded.
func (msg *unexpectedMessage) forbidWithdrawal() {
	if all := msg.p.proc.withdrawableRTSs; all[msg.handle] == msg {
		delete(all, msg.handle)
	}
}

// discardUnexpected drops a message, and notifies the sender of an RTS.
func (m *Module) discardUnexpected(msg *unexpectedMessage) {
	msg.p.proc.Stats.Dropped++
	if msg.isRTS {
		msg.p.proc.sendControl(newDroppedCTS(msg.handle))
	}
	m.releaseUnexpected(msg)
}

// releaseUnexpected frees an unexpected message and returns its credit.
func (m *Module) releaseUnexpected(msg *unexpectedMessage) {
	msg.p.proc.releaseCredit(msg.isRTS, msg.data)
	m.putUnexpected(msg)
}

// putUnexpected returns a message to the free list. Its payload is invalid from then.
func (m *Module) putUnexpected(msg *unexpectedMessage) {
	if msg.isRTS {
		msg.forbidWithdrawal()
	}
	m.pool.put(msg.data)
	msg.data, msg.p, msg.watcherEntry = nil, nil, nil
	msg.nextFree = m.freeUnexpected
	m.freeUnexpected = msg
}
