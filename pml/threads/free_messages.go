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
	owned int
	// Lists that were taken out of returned.
	taken [ownClasses]*message

	_ [64]byte
	// Lists of messages that receivers have returned.
	returned [ownClasses]atomic.Pointer[message]
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
	f, class := &r.free, classOf(n)
	if class >= ownClasses || !atomic.CompareAndSwapUint32(&f.isBusy, 0, 1) {
		return newMessage(n)
	}
	m := f.taken[class]
	if m == nil && f.returned[class].Load() != nil {
		m = f.returned[class].Swap(nil)
	}
	if m != nil {
		f.taken[class], m.next = m.next, nil
		m.data = m.data[:n]
	} else if m = newMessage(n); f.owned+cap(m.data) <= ownedMax {
		f.owned += cap(m.data)
		m.home = r
	}
	cpu.Store32(&f.isBusy, 0)
	return m
}

// put returns a message to its home. No lock is required.
func (f *freeMessages) put(m *message) {
	list := &f.returned[classOf(cap(m.data))]
	for {
		m.next = list.Load()
		if list.CompareAndSwap(m.next, m) {
			return
		}
	}
}
