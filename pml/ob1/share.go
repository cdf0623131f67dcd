package ob1

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml/ob1/choose"
)

// Messages that the sender writes into the receiver's memory, alone or while the receiver
// reads. The receiver's buffer is its own again when its share is over, and not before: a
// receive that fails meanwhile ends the share first. Who has died writes nothing more.

// shareStep copies a piece, or looks how the sender gets on.
func (r *request) shareStep() int {
	if r.piece == 0 {
		left, writing, stopped := r.share.State()
		if !left && !writing {
			if r.share.End() {
				r.share = nil
				r.allCopied()
				return 1
			}
			return 0
		}
		if r.way == choose.Write && !stopped {
			return 0 // the sender rings
		}
		offset, n := r.share.Claim()
		if n == 0 {
			return 0
		}
		r.at, r.piece = r.base+offset, n
	}
	k, err := r.reader.Read(r.p.proc.Life, r.remote, r.at, r.buf.Bytes[r.at:r.at+int64(r.piece)])
	if err != nil {
		r.state, r.fallBack = ending, true
		return r.endStep() + 1
	}
	r.at += int64(k)
	r.piece -= k
	return 1
}

// endStep goes on with a receive when its share is over: as frames, or it has failed.
func (r *request) endStep() int {
	if !r.share.End() {
		return 0
	}
	r.share = nil
	if r.fallBack {
		r.fallsBack()
		return 1
	}
	r.turnOver()
	r.finish()
	return 1
}

// endShare reports whether a receive that fails because of err may end now. Otherwise it
// does when the sender has written what it has begun.
func (r *request) endShare(err error) bool {
	if over := r.share.End(); over || errors.Is(err, framework.ErrProcFailed) {
		r.share = nil
		return true
	}
	r.state, r.fallBack = ending, false
	if !slices.Contains(r.m.reading, r) {
		r.m.reading = append(r.m.reading, r)
	}
	r.m.engine.Nudge()
	return false
}

// closePatience is how long a session that closes waits for a sender that is writing one
// piece into this process's memory, which takes less than a millisecond.
const closePatience = time.Second

// endShares ends what a sender still writes into, when the module closes. Lock held.
func (m *Module) endShares() {
	begin := m.now()
	for _, r := range m.requests {
		if r.state != ending {
			continue
		}
		for !r.share.End() && m.now()-begin < closePatience {
			runtime.Gosched()
		}
		r.share = nil
		r.finish()
	}
}

// offered reports whether a send's RTS is out and not answered.
func (r *request) offered() bool { return r.state == rtsSent || r.state == withdrawn }

// shared takes a frameShare: a receiver lets this process write.
func (p *proc) shared(f []byte) error {
	r, limit, from := p.m.lookup(le.Uint64(f[8:])), int64(le.Uint64(f[16:])), int64(le.Uint64(f[24:]))
	if r == nil || !r.offered() || r.p.proc != p {
		return errors.New("share for no RTS")
	}
	if !r.writer || p.out == nil || p.out.copier == nil {
		return errors.New("share for an RTS that did not offer to write")
	}
	if from != r.moved || limit <= from || limit > r.buf.Len() {
		return fmt.Errorf("share for bytes %d to %d of %d, with %d sent", from, limit, r.buf.Len(), r.moved)
	}
	if r.p.refused {
		r.fail(r.m.procs.NotMember(p.Life))
		return nil
	}
	r.state, r.limit, r.remote = sharing, limit, btl.Remote(f[32:shareSize])
	r.m.reading = append(r.m.reading, r)
	r.m.readSome()
	return nil
}

// writeStep writes a piece into the receiver's memory. If that is refused the receiver
// sees it, and goes on by itself.
func (r *request) writeStep() int {
	proc := r.p.proc
	more := false
	if proc.out != nil {
		more, _ = proc.out.copier.Write(proc.Life, r.remote, r.buf.Bytes[r.moved:r.limit])
	}
	if !more {
		r.state = shared
	}
	return 1
}
