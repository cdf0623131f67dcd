package ob1

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// inPath is how the path from a process is polled by itself.
type inPath struct {
	source progress.Source // nil: not known yet, or the module can't
	peeker btl.Peeker      // nil: not known yet, or the source can't
}

// inPath returns the path from this process. Lock held.
func (p *proc) inPath() inPath {
	if p.in.source == nil {
		p.findPath()
	}
	return p.in
}

func (p *proc) findPath() {
	if p.inBy == nil || p.inBy.poller == nil {
		return
	}
	if p.in.source = p.inBy.poller.PeerSource(p.Life); p.in.source != nil {
		p.in.peeker, _ = framework.As[btl.Peeker](p.in.source)
	}
}

// pollsAtOnce is after how many looks, with a PAUSE after each, a receiver sees whether somebody
// wants the lock: some 800 ns, as long as an answer from a core that is far away takes.
const pollsAtOnce = 32

// fastPerProgress is how many receives in a row poll their peer's path only. A
// process that always finds its message there would leave everything else undone.
const fastPerProgress = 64

// receiveNow is a blocking receive from one peer while its caller holds the
// engine's lock and looks at that peer's path: the usual one, where the message
// is about to come. It needs no request, no place in a queue and no completion,
// because nobody else can post or look meanwhile: if the next frame has the header
// that it waits for, it copies the payload from where it lies. If the message does
// not come soon, or another goroutine wants the lock, or something else comes
// first, the receive is posted like any other. The results are the message's tag
// and length. Lock held, all the time.
func (c *comm) receiveNow(p *peer, buf []byte, tag int, plane pml.Plane) (came, bytes int, ok bool) {
	m := c.m
	path := p.proc.inPath()
	if path.peeker == nil || len(m.busy)+len(m.reading) > 0 || !c.queues[plane].Idle(&p.match[plane]) {
		return 0, 0, false
	}
	word := p.inWord | uint64(plane)<<8
	most := m.engine.PollBudget()
	for polls := 0; polls < most; polls += pollsAtOnce {
		f := path.peeker.Peek(min(pollsAtOnce, most))
		if len(f) < matchSize {
			if m.engine.Wanted() || f != nil {
				break
			}
			continue
		}
		// As in Frame: each byte is read once.
		h := (*[matchSize]byte)(f)
		first, tagAndSource, seq := le.Uint64(h[0:]), le.Uint64(h[8:]), le.Uint32(h[16:])
		came = int(int32(tagAndSource))
		if first != word || tagAndSource>>32 != uint64(p.rank) || seq != p.recvSeq || came != tag && tag != pml.AnyTag {
			break // what it brings may be for a receive that is posted
		}
		payload := f[matchSize:]
		copy(buf, payload)
		path.peeker.Drop()
		p.recvSeq++
		p.proc.Stats.Received++
		p.proc.Stats.RecvBytes += uint64(len(payload))
		p.proc.owe(int64(len(payload)))
		return came, len(payload), true
	}
	return 0, 0, false
}
