package threads

import (
	"sync/atomic"

	"github.com/ferrympi/ferry/internal/cpu"
)

// freeMessages are the free lists of the messages of up to 1 KiB that a rank sends, by size.
// Receivers return a message to the rank that has sent it, so that a stream in one direction
// reuses its messages. In messagePools each of them costs a search in the lists of other
// processors, 25 to 30 ns (docs/decisions/threads.md). For 4 KiB no gain was measured.
type freeMessages struct {
	_ [64]byte
	// Of the senders.
	isBusy uint32 // 1 while a goroutine takes a message; others use messagePools.
	// Bytes of all messages whose home is the rank.
	ownedBytes int
	// Taken out of returnedLists.
	takenLists [ownClasses]*message

	_ [64]byte
	// Of messages that receivers have returned.
	returnedLists [ownClasses]atomic.Pointer[message]
}

const (
	// ownClasses is the number of classes, from the smallest one, that have free lists.
	ownClasses = 5
	// ownedMax limits the memory that a rank keeps for its messages until the team ends, in
	// bytes. Further messages in flight belong to messagePools.
	ownedMax = 64 << 10
)

// newMessage returns a message for a send of n bytes. No lock is required.
func (r *Rank) newMessage(n int) *message {
	f, class := &r.freeMessages, classOf(n)
	if class >= ownClasses || !atomic.CompareAndSwapUint32(&f.isBusy, 0, 1) {
		return newMessage(n)
	}
	m := f.takenLists[class]
	if m == nil && f.returnedLists[class].Load() != nil {
		m = f.returnedLists[class].Swap(nil)
	}
	if m != nil {
		f.takenLists[class], m.nextFree = m.nextFree, nil
		m.payload = m.payload[:n]
	} else if m = newMessage(n); f.ownedBytes+cap(m.payload) <= ownedMax {
		f.ownedBytes += cap(m.payload)
		m.homeRank = r
	}
	cpu.Store32(&f.isBusy, 0)
	return m
}

// put returns a message to its home. No lock is required.
func (f *freeMessages) put(m *message) {
	list := &f.returnedLists[classOf(cap(m.payload))]
	for {
		m.nextFree = list.Load()
		if list.CompareAndSwap(m.nextFree, m) {
			return
		}
	}
}
