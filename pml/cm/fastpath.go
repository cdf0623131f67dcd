package cm

import (
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/mtl"
	"github.com/ferrympi/ferry/pml"
)

// The path of a small message. What cm adds to the MTL is the lock, the peer's state, the
// counts that the end of a communicator goes by, and an mtl.Op. docs/decisions/hot-path.md
// has what each piece may cost.

// sendNow gives a message to the MTL, if it can go as it is to a member whose id is known,
// and reports whether that was so. r is nil if nothing is left to do; otherwise it is a
// request, which may have failed. Lock held.
func (c *comm) sendNow(buf pml.Buffer, dst, tag int, plane pml.Plane, mode pml.Mode) (r *request, ok bool) {
	m := c.m
	p := c.peers.Get(dst)
	if p == nil || !p.ready || buf.Layout() != nil || c.Closed() || c.Aborted[plane] != nil {
		return nil, false
	}
	proc := p.proc
	if !proc.connected || proc.Err != nil || p.refused || m.cuts && p.mustCut(buf.Bytes, mode) {
		return nil, false
	}
	proc.Stats.Sent++
	proc.Stats.SentBytes += uint64(len(buf.Bytes))
	if m.env.Hooks != nil {
		c.sending(p, tag, int64(len(buf.Bytes)), plane)
	}
	// A request is taken if the MTL keeps its op, and the MTL calls nobody from here.
	if m.free == nil {
		m.makeRequest()
	}
	done, err := m.mtl.Send(&m.free.op, proc.to, c.to(p, tag, uint32(plane)), buf.Bytes, modes[mode])
	if done {
		p.counts(plane, tag)
		return nil, true
	}
	r = c.sendRequest(p, buf, tag, plane, mode)
	r.given(done, err)
	return r, true
}

// modes are the MTL's.
var modes = [...]mtl.Mode{pml.Standard: mtl.Standard, pml.Synchronous: mtl.Synchronous, pml.Ready: mtl.Standard}

// to returns the envelope of a message to a member, on a plane or planeParts.
func (c *comm) to(p *peer, tag int, plane uint32) mtl.Envelope {
	return mtl.Envelope{CID: p.word | plane, Source: int32(c.Spec.Rank), Tag: int32(tag), Endpoint: c.Endpoint}
}

// from returns the envelope of a receive or a probe from a member, or from any if p is nil.
func (c *comm) from(p *peer, tag int, plane uint32) mtl.Envelope {
	if p == nil {
		return mtl.Envelope{CID: c.word | plane, Source: mtl.AnySource, Tag: int32(tag)}
	}
	return mtl.Envelope{CID: c.word | plane, Source: int32(p.rank), Tag: int32(tag), Endpoint: p.endpoint}
}

// fastPerProgress is how many receives in a row poll the MTL only. A process whose message
// is always there would leave everything else undone.
const fastPerProgress = 64

// mostLooks is how often a receive polls the MTL before it lets others have the lock and
// waits like any other: as often as a wait polls what it waits for between two polls of
// everything.
const mostLooks = 8

// receiveNow is a blocking receive from one member while its caller holds the engine's
// lock and polls the MTL. Where the message is there, or about to come, it needs an op, and
// neither counts among what is pending nor completes a request: nobody else looks
// meanwhile, except who is called from Poll. For them the op's owner, Module.quick, is a
// posted receive like others: it ends when its sender fails.
//
// The results are the message's tag and length. If it does not come soon, or is not what is
// usual, r is a request of the receive. Without either it was not posted. Lock held, all
// the time.
func (c *comm) receiveNow(buf pml.Buffer, src, tag int, plane pml.Plane) (came, bytes int, r *request, ok bool) {
	m := c.m
	if m.fast++; m.fast%fastPerProgress == 0 {
		m.engine.Progress()
	}
	p := c.peers.Get(src)
	if p == nil || !p.proc.connected || buf.Layout() != nil || c.Closed() ||
		m.kept+m.pulls > 0 || m.failures || c.refused || m.env.Hooks != nil {
		return 0, 0, nil, false
	}
	r = m.quick
	if r == nil {
		r = m.makeQuick()
	}
	r.Reset()
	r.c, r.p = c, p
	into := r.into(buf.Bytes)
	e := mtl.Envelope{CID: c.word | uint32(plane), Source: int32(src), Tag: int32(tag), Endpoint: p.endpoint}
	looks := min(m.engine.PollBudget(), mostLooks)
	looked := m.looker != nil && looks > 0
	var err error
	if looked {
		err = m.looker.RecvLook(&r.op, p.proc.to, e, into, looks)
		looks = 1
	} else {
		err = m.mtl.Recv(&r.op, p.proc.to, e, into)
	}
	for ; looks > 0 && err == nil; looks-- {
		if !looked {
			m.mtl.Poll()
		}
		if r.Done() {
			res := &r.op.Result
			if res.Err != nil || res.Canceled || r.why != nil || int(res.Source) != src || res.Bytes > int64(len(buf.Bytes)) || m.cuts && res.Bytes == headSize {
				break
			}
			if len(into) > len(buf.Bytes) {
				copy(buf.Bytes, into[:res.Bytes])
			}
			r.c, r.p = nil, nil
			p.took(plane, res.Bytes)
			return int(res.Tag), int(res.Bytes), nil, true
		}
		if m.engine.Wanted() {
			break
		}
		cpu.Pause()
	}
	r.late(buf, tag, plane, err)
	return 0, 0, r, false
}

// makeQuick makes the request that Module.quick is until it is late.
func (m *Module) makeQuick() *request {
	r := m.freeRequest()
	r.send, r.state, r.busy = false, posted, true
	m.quick = r
	return r
}

// late makes the quick receive one like others, wherever it is now: with the MTL, over, or
// refused with err. Lock held.
func (r *request) late(buf pml.Buffer, tag int, plane pml.Plane, err error) {
	over := r.Done()
	r.m.quick = nil
	r.begin(r.c)
	r.m.postings++
	r.posting = r.m.postings
	r.plane, r.tag, r.buf = plane, tag, buf
	switch {
	case err != nil:
		r.busy = false
		r.doubt(err)
	case over:
		(*operation)(r).Done(&r.op)
	}
}
