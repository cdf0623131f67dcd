package cm

import (
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// The path of a small message. Besides the MTL call it has the lock, the state of the peer,
// the counts for the close of a communicator, and an mtl.Op. docs/decisions/hot-path.md has
// the budget of each step.

// sendDirect submits a message to a member whose id is known, and reports whether that was
// possible. r is nil if the send is complete. Otherwise it is a request, which may have
// failed. Lock held.
func (c *comm) sendDirect(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (r *request, ok bool) {
	m := c.m
	p := c.peersByRank.Get(dst)
	if p == nil || !p.canSend || buf.Layout() != nil || c.IsClosed() || c.Aborted[plane] != nil {
		return nil, false
	}
	proc := p.proc
	if !proc.isConnected || proc.Err != nil || p.hasRefused || m.hasMessageLimit && p.needsRTS(buf.Bytes, mode) {
		return nil, false
	}
	proc.Stats.Sent++
	proc.Stats.SentBytes += uint64(len(buf.Bytes))
	if m.env.Hooks != nil {
		c.emitSend(p, tag, int64(len(buf.Bytes)), plane)
	}
	// newSendRequest takes m.freeRequests, whose op the MTL has. Send runs no callbacks.
	if m.freeRequests == nil {
		m.addFreeRequest()
	}
	done, err := m.mtl.Send(&m.freeRequests.op, proc.mtlEndpoint, c.to(p, tag, uint32(plane)), buf.Bytes, modes[mode])
	if done {
		p.countSent(plane, tag)
		return nil, true
	}
	r = c.newSendRequest(p, buf, tag, plane, mode)
	r.handleSendResult(done, err)
	return r, true
}

// modes maps send modes to those of the MTL.
var modes = [...]mtl.Mode{pml.Standard: mtl.Standard, pml.Synchronous: mtl.Synchronous, pml.Ready: mtl.Standard}

// to returns the envelope of a message to a member, on a plane or fragmentPlane.
func (c *comm) to(p *peer, tag int, plane uint32) mtl.Envelope {
	return mtl.Envelope{CID: p.remoteID | plane, Source: int32(c.Spec.Rank), Tag: int32(tag), Endpoint: c.Endpoint}
}

// from returns the envelope of a receive or a probe, from any source if p is nil.
func (c *comm) from(p *peer, tag int, plane uint32) mtl.Envelope {
	if p == nil {
		return mtl.Envelope{CID: c.localID | plane, Source: mtl.AnySource, Tag: int32(tag)}
	}
	return mtl.Envelope{CID: c.localID | plane, Source: int32(p.rank), Tag: int32(tag), Endpoint: p.endpoint}
}

// directRecvsPerProgress is the number of direct receives per poll of all sources. Without it,
// a process whose messages are always present would not progress anything else.
const directRecvsPerProgress = 64

// maxDirectPolls bounds the polls of the MTL in a direct receive. It equals the number of
// polls of one source in a wait between two polls of all sources.
const maxDirectPolls = 8

// recvDirect is a blocking receive from one member that polls the MTL while it holds the
// engine's lock. If the message is present or arrives soon, no request is started or
// completed. Callbacks of these polls see Module.directRecv, the owner of the op, as a posted
// receive, which fails with its sender.
//
// gotTag and bytes are the tag and length of the message. If ok is false, r is the posted
// receive, or nil if none was posted. Lock held throughout.
func (c *comm) recvDirect(buf pml.Buffer, src, tag int, plane pml.Plane) (gotTag, bytes int, r *request, ok bool) {
	m := c.m
	if m.directRecvCalls++; m.directRecvCalls%directRecvsPerProgress == 0 {
		m.engine.Progress()
	}
	p := c.peersByRank.Get(src)
	if p == nil || !p.proc.isConnected || buf.Layout() != nil || c.IsClosed() ||
		m.unexpectedCount+m.activePulls > 0 || m.mustCheckFailures || c.hasRefusal || m.env.Hooks != nil {
		return 0, 0, nil, false
	}
	r = m.directRecv
	if r == nil {
		r = m.newDirectRecv()
	}
	r.Reset()
	r.c, r.p = c, p
	into := r.bufferOrBounce(buf.Bytes)
	e := mtl.Envelope{CID: c.localID | uint32(plane), Source: int32(src), Tag: int32(tag), Endpoint: p.endpoint}
	polls := min(m.engine.PollBudget(), maxDirectPolls)
	hasPolled := m.recvPoller != nil && polls > 0
	var err error
	if hasPolled {
		err = m.recvPoller.RecvAndPoll(&r.op, p.proc.mtlEndpoint, e, into, polls)
		polls = 1
	} else {
		err = m.mtl.Recv(&r.op, p.proc.mtlEndpoint, e, into)
	}
	for ; polls > 0 && err == nil; polls-- {
		if !hasPolled {
			m.mtl.Poll()
		}
		if r.Done() {
			res := &r.op.Result
			if res.Err != nil || res.Canceled || r.endCause != nil || int(res.Source) != src || res.Bytes > int64(len(buf.Bytes)) || m.hasMessageLimit && res.Bytes == rtsSize {
				break
			}
			if len(into) > len(buf.Bytes) {
				copy(buf.Bytes, into[:res.Bytes])
			}
			r.c, r.p = nil, nil
			p.countReceived(plane, res.Bytes)
			return int(res.Tag), int(res.Bytes), nil, true
		}
		if m.engine.Wanted() {
			break
		}
		cpu.Pause()
	}
	r.postDirectRecv(buf, tag, plane, err)
	return 0, 0, r, false
}

// newDirectRecv returns a new Module.directRecv.
func (m *Module) newDirectRecv() *request {
	r := m.takeFreeRequest()
	r.isSend, r.state, r.isOpBusy = false, posted, true
	m.directRecv = r
	return r
}

// postDirectRecv turns the direct receive into a normal one, whether the MTL has it, has
// completed it, or has rejected it with err. Lock held.
func (r *request) postDirectRecv(buf pml.Buffer, tag int, plane pml.Plane, err error) {
	isComplete := r.Done()
	r.m.directRecv = nil
	r.start(r.c)
	r.m.lastPostingNumber++
	r.postingNumber = r.m.lastPostingNumber
	r.plane, r.tag, r.userBuf = plane, tag, buf
	switch {
	case err != nil:
		r.isOpBusy = false
		r.doubt(err)
	case isComplete:
		(*operation)(r).Done(&r.op)
	}
}
