package shmlayout

import (
	"sync/atomic"
	"unsafe"
)

// A share permits a sender to write into one receive buffer of the owner of an inbox, in
// chunks. The owner claims chunks from the front and the sender from the end, and each copies
// its claimed chunks. A single word holds both counts, which orders all claims. The owner ends
// a share by claiming the remaining chunks.

// Shares is the number of shares in a slot.
const Shares = 2

// MaxChunks is the largest number of chunks of a share.
const MaxChunks = 1<<20 - 1

// Claims is the decoded word of a share.
type Claims struct {
	// Generation of the share, 24 bits.
	Number uint32
	// Claimed chunks, 20 bits each.
	Front, Back uint32
}

func (c Claims) word() uint64 {
	return uint64(c.Number)<<40 | uint64(c.Front&MaxChunks)<<20 | uint64(c.Back&MaxChunks)
}

func claimsOf(w uint64) Claims {
	return Claims{uint32(w >> 40), uint32(w>>20) & MaxChunks, uint32(w) & MaxChunks}
}

// Share is one of the shares of a slot. Values of the other side are unvalidated.
type Share struct {
	claims *atomic.Uint64
	done   *atomic.Uint32
}

// Share returns share i of the slot.
func (s Slot) Share(i int) Share {
	return Share{
		(*atomic.Uint64)(unsafe.Pointer(&s.mem[slotShares+8*i])),
		(*atomic.Uint32)(unsafe.Pointer(&s.mem[slotDone+4*i])),
	}
}

// Open starts a share after the end of the previous one.
func (s Share) Open(number uint32) {
	s.done.Store(0)
	s.claims.Store(Claims{Number: number}.word())
}

// Claims returns the present claims.
func (s Share) Claims() Claims { return claimsOf(s.claims.Load()) }

// Claim changes the claims and reports false if they are not old.
func (s Share) Claim(old, claims Claims) bool {
	return s.claims.CompareAndSwap(old.word(), claims.word())
}

// Stopped is a flag in the result of Done. The sender makes no further claims.
const Stopped = 1 << 31

// Done returns the number of chunks that the sender has written, and Stopped.
func (s Share) Done() uint32 { return s.done.Load() }

// AddWritten adds one written chunk.
func (s Share) AddWritten() { s.done.Add(1) }

// Stop sets Stopped, for a sender that cannot write.
func (s Share) Stop() { s.done.Or(Stopped) }
