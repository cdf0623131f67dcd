package threads

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/pml"
	"github.com/ferrympi/ferry/progress"
)

// offerState is the one word that decides whether a send was matched or withdrawn.
type offerState = uint32

const (
	offerInRing     offerState = iota // Published; the receiver has not seen it.
	offerUnmatched                    // In the receiver's unexpected queue.
	offerHeld                         // The receiver looks for a receive; over in less than a microsecond.
	offerClaimed                      // A matched probe has it; a receive follows some time.
	offerHandedOver                   // A watcher has it, and can return it until it has matched.
	offerMatched                      // The receive has begun.
	offerWithdrawn                    // The sender has withdrawn it.
)

// offer is a send whose payload stays in the sender's buffer. Offers are reused as offers only,
// because a goroutine may use a stale pointer to claim chunks.
type offer struct {
	state atomic.Uint32
	msg   message
	// Buffer of the send.
	buf        pml.Buffer
	senderRank *Rank
	// Guarded by the sender's lock.
	send *send

	source, tag int32

	// Set by the receiver before chunkClaims.
	receive      *receive
	receiverRank *Rank
	copyBytes    int64
	chunkBytes   int64 // The last chunk may be shorter.

	// chunkClaims has the chunks that were claimed from the front (bits 0-20) and from the back
	// (21-41), and their number (42-62). 0: none can be claimed.
	chunkClaims    atomic.Uint64
	uncopiedChunks atomic.Int32
	// userCount is the number of ranks that have the offer and will get another cell for it.
	userCount atomic.Int32
}

const (
	// chunkSize is the number of bytes copied under one claim, which takes some microseconds.
	chunkSize = 32 << 10
	// chunksPerRun is the number of chunks that a task copies, in some tens of microseconds.
	chunksPerRun = 8
	chunkBits    = 21
	chunkMask    = 1<<chunkBits - 1
)

var offerPool sync.Pool

func newOffer() *offer {
	o, ok := offerPool.Get().(*offer)
	if !ok {
		o = new(offer)
		o.msg.offer = o
		o.msg.matchEntry.Owner = &o.msg
	}
	return o
}

// drop is called for each user.
func (o *offer) drop() {
	if o.userCount.Add(-1) > 0 {
		return
	}
	o.buf, o.senderRank, o.send, o.receive, o.receiverRank, o.msg.c, o.msg.unmatched = pml.Buffer{}, nil, nil, nil, nil, nil, nil
	offerPool.Put(o)
}

// isWithdrawn reports whether the sender has withdrawn the offer. The receiver's lock is held.
func (o *offer) isWithdrawn() bool { return o.state.Load() == offerWithdrawn }

// take changes the state of an offer in the receiver's queue or ring. It reports false if the
// sender has withdrawn it. The receiver's lock is held.
func (o *offer) take(to offerState) bool {
	for {
		s := o.state.Load()
		if s == offerWithdrawn {
			return false
		}
		if o.state.CompareAndSwap(s, to) {
			return true
		}
	}
}

// withdraw reports whether the offer can no longer match. The sender's lock is held.
func (o *offer) withdraw() bool {
	for {
		switch s := o.state.Load(); s {
		case offerInRing, offerUnmatched:
			if o.state.CompareAndSwap(s, offerWithdrawn) {
				return true
			}
		case offerHeld:
			runtime.Gosched()
		default:
			return false
		}
	}
}

// open makes the chunks claimable. The receiver's lock is held.
func (o *offer) open(rank *Rank, receive *receive, limit int64) {
	o.receiverRank, o.receive, o.copyBytes = rank, receive, limit
	o.chunkBytes = chunkSize
	if limit > chunkSize*chunkMask {
		o.chunkBytes = (limit/chunkMask + 64) &^ 63
	}
	chunks := (limit + o.chunkBytes - 1) / o.chunkBytes
	o.userCount.Add(1)
	o.uncopiedChunks.Store(int32(chunks))
	o.chunkClaims.Store(uint64(chunks) << (2 * chunkBits))
}

// claim returns the index of a chunk that the caller copies, or false if none is left.
func (o *offer) claim(fromBack bool) (at int64, ok bool) {
	for {
		c := o.chunkClaims.Load()
		front, back, all := c&chunkMask, c>>chunkBits&chunkMask, c>>(2*chunkBits)
		if front+back >= all {
			return 0, false
		}
		next, at := c+1, front
		if fromBack {
			next, at = c+1<<chunkBits, all-1-back
		}
		if o.chunkClaims.CompareAndSwap(c, next) {
			return int64(at), true
		}
	}
}

// copyChunks claims and copies chunks from the front or from the back. As a task it copies
// chunksPerRun of them at most, defers the rest, and copies nothing under the lock of the
// process's engine. x is nil if the caller is no task. No rank's lock is held.
func (o *offer) copyChunks(fromBack bool, x *progress.Tasks) {
	for copied := 1; ; copied++ {
		at, ok := o.claim(fromBack)
		if !ok {
			return
		}
		// Until the claimed chunk is copied, the offer belongs to this transfer.
		r := o.receiverRank
		if fromBack {
			r = o.senderRank
		}
		if x != nil && x.HoldsProcess() {
			r.team.copyElsewhere(o, at)
			return
		}
		if o.copyChunk(at, x) {
			return
		}
		if x != nil && copied == chunksPerRun {
			x.StopPolling()
			r.engine.Lock()
			r.engine.Defer(o.copying(fromBack))
			x.Release(r.engine)
			return
		}
	}
}

// copyChunk copies a claimed chunk. The copy of the last one completes the operations of both
// ranks, and copyChunk reports true.
func (o *offer) copyChunk(at int64, x *progress.Tasks) (isLast bool) {
	offset := at * o.chunkBytes
	copyRange(o.receive.buf, o.buf, offset, min(o.chunkBytes, o.copyBytes-offset))
	if o.uncopiedChunks.Add(-1) > 0 {
		return false
	}
	receiver, sender := o.receiverRank, o.senderRank
	receiver.notify(kindReceived, &o.msg)
	sender.notify(kindSent, &o.msg)
	for _, r := range [...]*Rank{receiver, sender} {
		if r.needsDelivery() {
			r.deliver(x)
		}
	}
	return true
}

// copyElsewhere copies a claimed chunk and all that are left, in a goroutine. The caller holds the
// lock of the process's engine.
func (t *Team) copyElsewhere(o *offer, at int64) {
	t.runningCopies.Add(1)
	t.processEngine.Go(func() {
		defer t.runningCopies.Done()
		if !o.copyChunk(at, nil) {
			o.copyChunks(false, nil)
		}
	})
}

// fromFront and fromBack are the tasks that copy chunks of an offer.
type (
	fromFront offer
	fromBack  offer
)

// copying returns the task that copies chunks.
func (o *offer) copying(fromTheBack bool) progress.Task {
	if fromTheBack {
		return (*fromBack)(o)
	}
	return (*fromFront)(o)
}

// Run implements progress.Task.
func (t *fromFront) Run(x *progress.Tasks) { (*offer)(t).copyChunks(false, x) }

// Run implements progress.Task.
func (t *fromBack) Run(x *progress.Tasks) { (*offer)(t).copyChunks(true, x) }

// notify publishes a cell without a message of a user. Any rank's lock may be held; the caller
// has the cell delivered.
func (r *Rank) notify(k kind, m *message) {
	h := makeHeader(k, 0, 0)
	if !r.put(h, 0, 0, 0, nil, m) {
		r.spillFor(h, 0, 0, 0, nil, m)
	}
}

var chunkPool sync.Pool

// copyRange copies n bytes of a message from its sender's buffer to its receiver's.
func copyRange(to, from pml.Buffer, offset, n int64) {
	if n == 0 {
		return
	}
	pack, unpack := from.Layout(), to.Layout()
	switch {
	case pack == nil && unpack == nil:
		cpu.CopyOut(to.Bytes[offset:offset+n], from.Bytes[offset:offset+n])
	case unpack == nil:
		pack.Pack(to.Bytes[offset:offset+n], from.Bytes, offset)
	case pack == nil:
		unpack.Unpack(to.Bytes, from.Bytes[offset:offset+n], offset)
	default:
		b, ok := chunkPool.Get().(*[chunkSize]byte)
		if !ok {
			b = new([chunkSize]byte)
		}
		for end := offset + n; offset < end; {
			part := b[:min(chunkSize, end-offset)]
			pack.Pack(part, from.Bytes, offset)
			unpack.Unpack(to.Bytes, part, offset)
			offset += int64(len(part))
		}
		chunkPool.Put(b)
	}
}
