// Package doorbell is the one word per process on which it sleeps and which
// every transport rings. It may lie in shared memory: then other processes ring
// it.
//
// Layout, little-endian, 8 bytes, 4-byte aligned:
//
//	0  u32 sequence  changes at every ring that woke; the futex word
//	4  u32 armed     1 while the owner sleeps or is about to
//
// A ringer first publishes what it has (an atomic store), then loads armed.
// The owner first stores armed, then looks at all its sources once more, then
// sleeps. Both orders are sequentially consistent: one of the two sees the
// other's store, so no ring is lost, and a ringer pays a system call only if
// the owner sleeps. A ringer may also publish by a release store, without a barrier. It
// may miss an owner who is arming then; so that owner looks once more, some time later
// (progress.Lagging).
package doorbell

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size is the number of bytes that a bell takes in a segment.
const Size = 8

// Bell is a view of a bell in some memory. It is a small value; the zero Bell
// has no memory and must not be used.
type Bell struct {
	sequence, armed *atomic.Uint32
}

// New makes a bell in Go memory, for a process that shares none.
func New() Bell {
	mem := new([2]atomic.Uint32)
	return Bell{&mem[0], &mem[1]}
}

// At returns the bell whose memory is mem, which must have Size bytes, be
// 4-byte aligned and stay mapped as long as the Bell is used.
func At(mem []byte) Bell {
	if len(mem) < Size {
		panic("doorbell: short memory")
	}
	p := unsafe.Pointer(&mem[0])
	if uintptr(p)%4 != 0 {
		panic("doorbell: unaligned memory")
	}
	return Bell{(*atomic.Uint32)(p), (*atomic.Uint32)(unsafe.Add(p, 4))}
}

// Watch returns a bell whose only method is Armed, which reports whether the word is not 0.
func Watch(armed *atomic.Uint32) Bell { return Bell{armed: armed} }

// Ring wakes the owner if it is armed. What it is to see must have been stored
// before, by an atomic operation, or the owner looks again. Cost when nobody sleeps: one load of a cache
// line that is seldom written.
func (b Bell) Ring() {
	if b.armed.Load() != 0 {
		b.wake()
	}
}

func (b Bell) wake() {
	if !b.armed.CompareAndSwap(1, 0) {
		return // another ringer does it
	}
	b.sequence.Add(1)
	// No PRIVATE flag: the word may be shared with other processes.
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(b.sequence)), futexWake, 1, 0, 0, 0)
}

// Arm says that the owner is about to sleep, and returns the ticket for Sleep.
// Only the owner calls it.
func (b Bell) Arm() (ticket uint32) {
	ticket = b.sequence.Load()
	b.armed.Store(1)
	return ticket
}

// Armed reports whether the owner sleeps or is about to. It is cheap for the
// owner, who changes it mostly.
func (b Bell) Armed() bool { return b.armed.Load() != 0 }

// Disarm takes Arm back: ringers pay nothing again.
func (b Bell) Disarm() { b.armed.Store(0) }

// Sleep waits until somebody rings, after Arm, or until timeout passed; 0 means
// no limit. It returns at once if the bell was rung since Arm. It may also
// return for no reason (a signal).
func (b Bell) Sleep(ticket uint32, timeout time.Duration) {
	var ts *unix.Timespec
	if timeout > 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	for {
		if b.sequence.Load() != ticket {
			return
		}
		_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(b.sequence)), futexWait,
			uintptr(ticket), uintptr(unsafe.Pointer(ts)), 0, 0)
		if errors.Is(errno, unix.EINTR) && ts == nil {
			continue
		}
		return // woken, changed already, or timed out
	}
}

// Operations of futex(2).
const (
	futexWait = 0
	futexWake = 1
)
