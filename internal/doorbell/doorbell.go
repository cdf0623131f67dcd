// Package doorbell implements the futex on which a process sleeps and which every transport
// rings. In shared memory other processes ring it too.
//
// Layout, little-endian, 8 bytes, 4-byte aligned:
//
//	0  u32 sequence  futex word, incremented by each ring that wakes the owner
//	4  u32 armed     1 while the owner sleeps or is about to sleep
//
// A ringer publishes its work with an atomic store, then loads armed. The owner stores armed,
// polls all its sources once more, then sleeps. Both orders are sequentially consistent, so
// that one of the two sees the store of the other and no ring is lost. A ringer makes a system
// call only if the owner is armed. A ringer that publishes with a release store and no barrier
// can miss an owner that is arming; the owner then polls again after a delay (progress.Lagging).
package doorbell

import (
	"errors"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Size is the size of a bell in bytes.
const Size = 8

// Bell is a view of a bell in memory, passed by value. The zero Bell is not usable.
type Bell struct {
	sequence, armed *atomic.Uint32
}

// New returns a bell in private memory.
func New() Bell {
	mem := new([2]atomic.Uint32)
	return Bell{&mem[0], &mem[1]}
}

// At returns the bell in mem, which has at least Size bytes, is 4-byte aligned and outlives
// the Bell. It panics on short or unaligned memory.
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

// Watch returns a bell on a word outside of a bell. Only Armed may be called.
func Watch(armed *atomic.Uint32) Bell { return Bell{armed: armed} }

// Ring wakes the owner if it is armed. Publish the work before calling Ring. Without an armed
// owner the cost is one load of a rarely written cache line.
func (b Bell) Ring() {
	if b.armed.Load() != 0 {
		b.wake()
	}
}

func (b Bell) wake() {
	if !b.armed.CompareAndSwap(1, 0) {
		return // Another ringer wakes the owner.
	}
	b.sequence.Add(1)
	// Without FUTEX_PRIVATE_FLAG, since other processes may share the memory.
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(b.sequence)), futexWake, 1, 0, 0, 0)
}

// Arm marks the owner as about to sleep and returns the ticket for Sleep. Only the owner calls
// it.
func (b Bell) Arm() (ticket uint32) {
	ticket = b.sequence.Load()
	b.armed.Store(1)
	return ticket
}

// Armed reports whether the owner sleeps or is about to sleep.
func (b Bell) Armed() bool { return b.armed.Load() != 0 }

// Disarm reverts Arm.
func (b Bell) Disarm() { b.armed.Store(0) }

// Sleep blocks until the next ring or the timeout, where 0 is no timeout. It returns at once if
// the bell was rung since Arm returned the ticket, and may return early after a signal.
func (b Bell) Sleep(ticket uint32, timeout time.Duration) {
	var limit *unix.Timespec
	if timeout > 0 {
		t := unix.NsecToTimespec(int64(timeout))
		limit = &t
	}
	for {
		if b.sequence.Load() != ticket {
			return
		}
		_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(b.sequence)), futexWait,
			uintptr(ticket), uintptr(unsafe.Pointer(limit)), 0, 0)
		if errors.Is(errno, unix.EINTR) && limit == nil {
			continue
		}
		return
	}
}

// Operations of futex(2).
const (
	futexWait = 0
	futexWake = 1
)
