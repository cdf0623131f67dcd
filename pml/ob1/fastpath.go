package ob1

import (
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// recvPath polls the path from one process.
type recvPath struct {
	// source is nil if the path is unknown, or if the module cannot poll it alone. peeker is nil if
	// source is, or if it cannot peek.
	source progress.Source
	peeker btl.Peeker
}

// receivePath returns the path from the process. Lock held.
func (p *proc) receivePath() recvPath {
	if p.recvPath.source == nil {
		p.findReceivePath()
	}
	return p.recvPath
}

func (p *proc) findReceivePath() {
	if p.inTransport == nil || p.inTransport.poller == nil {
		return
	}
	if p.recvPath.source = p.inTransport.poller.PeerSource(p.Incarnation); p.recvPath.source != nil {
		p.recvPath.peeker, _ = framework.As[btl.Peeker](p.recvPath.source)
	}
}

// pollsPerCheck is the number of polls, with a PAUSE after each, until a receiver checks
// whether another goroutine wants the lock. They last about 800 ns, as long as a round trip to
// a distant core.
const pollsPerCheck = 32

// receivesPerProgress is the number of consecutive receives that poll only one path. It
// bounds how long a process that always finds its message there delays other work.
const receivesPerProgress = 64

// receivePolling is a blocking receive from one peer that polls only the peer's path, and
// holds the lock all the time. It needs no request, posted receive or completion, since
// no other code can match or poll meanwhile. A frame with the expected header is copied to the
// buffer directly. It reports false if the message does not arrive soon, another frame
// arrives first, or another goroutine wants the lock. Otherwise it returns the message's tag
// and length. Lock held.
func (c *comm) receivePolling(p *peer, buf []byte, tag int, plane pml.Plane) (gotTag, bytes int, ok bool) {
	m := c.m
	path := p.proc.receivePath()
	if path.peeker == nil || len(m.busyProcs)+len(m.copies.requests) > 0 || !c.queues[plane].IsIdle(&p.match[plane]) {
		return 0, 0, false
	}
	word := p.recvWord | uint64(plane)<<8
	budget := m.engine.PollBudget()
	for polls := 0; polls < budget; polls += pollsPerCheck {
		f := path.peeker.Peek(min(pollsPerCheck, budget))
		if len(f) < matchSize {
			if m.engine.Wanted() || f != nil {
				break
			}
			continue
		}
		// As in Frame, each byte is read once.
		first, tagAndSource, seq := parseEager((*[matchSize]byte)(f))
		gotTag = int(int32(tagAndSource))
		if first != word || tagAndSource>>32 != uint64(p.rank) || seq != p.recvSeq || gotTag != tag && tag != pml.AnyTag {
			// The frame may be for a posted receive.
			break
		}
		payload := f[matchSize:]
		copy(buf, payload)
		path.peeker.Drop()
		p.recvSeq++
		p.proc.Stats.Received++
		p.proc.Stats.RecvBytes += uint64(len(payload))
		p.proc.oweCredit(int64(len(payload)))
		return gotTag, len(payload), true
	}
	return 0, 0, false
}
