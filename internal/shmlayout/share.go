package shmlayout

import (
	"sync/atomic"
	"unsafe"
)

// A share is the right that the owner of an inbox gives a sender to write into the owner's
// own memory: the buffer of one receive, in chunks. Both claim chunks of it, the owner from
// the front and the sender from the end, and each copies what it has claimed. The word that
// says how many are claimed is all that both write, so that there is one order of claims.
// The owner ends a share by claiming what is left.

// Shares is the number of shares that a slot has room for.
const Shares = 2

// MostChunks is the largest number of chunks of a share.
const MostChunks = 1<<20 - 1

// Claims is the word of a share: its number, which changes with each, and how many chunks are
// claimed.
type Claims struct {
	Number      uint32 // of 24 bits
	Front, Back uint32 // of 20 bits
}

func (c Claims) word() uint64 {
	return uint64(c.Number)<<40 | uint64(c.Front&MostChunks)<<20 | uint64(c.Back&MostChunks)
}

func claimsOf(w uint64) Claims {
	return Claims{uint32(w >> 40), uint32(w>>20) & MostChunks, uint32(w) & MostChunks}
}

// Share is a place for a share in a slot. What the other side wrote is input.
type Share struct {
	claims *atomic.Uint64
	done   *atomic.Uint32
}

// Share returns the place i of a slot.
func (s Slot) Share(i int) Share {
	return Share{
		(*atomic.Uint64)(unsafe.Pointer(&s.mem[slotShares+8*i])),
		(*atomic.Uint32)(unsafe.Pointer(&s.mem[slotDone+4*i])),
	}
}

// Open begins a share. The last one in this place is over.
func (s Share) Open(number uint32) {
	s.done.Store(0)
	s.claims.Store(Claims{Number: number}.word())
}

// Claims returns what is claimed.
func (s Share) Claims() Claims { return claimsOf(s.claims.Load()) }

// Claim changes what is claimed, if it is still what the caller thinks.
func (s Share) Claim(old, claims Claims) bool {
	return s.claims.CompareAndSwap(old.word(), claims.word())
}

// Stopped is set in what Done returns when the sender writes nothing more of its own accord.
const Stopped = 1 << 31

// Done returns how many of the chunks that the sender has claimed are written.
func (s Share) Done() uint32 { return s.done.Load() }

// Written counts one more.
func (s Share) Written() { s.done.Add(1) }

// Stop says that the sender claims nothing more, as it can't write.
func (s Share) Stop() { s.done.Or(Stopped) }
