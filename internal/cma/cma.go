// Package cma reads the memory of another process of this node with one copy
// (cross memory attach, process_vm_readv(2)). It has no policy: who reads whom,
// and whether the process is the right one, btl/shm decides.
package cma

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxRead is the most bytes that Read copies in one call. The kernel stops at
// 2 GiB less a page (MAX_RW_COUNT); a round number below it keeps later parts
// aligned.
const MaxRead = 1 << 30

// Read copies from address at of process pid into dst, at most MaxRead bytes,
// and returns how many; fewer than asked for when the memory there ends early.
// It blocks while pages are brought in. Errors are those of the system call:
// EPERM, ESRCH, EFAULT when not even the first byte can be read, ENOSYS.
func Read(pid int, dst []byte, at uint64) (int, error) {
	if len(dst) == 0 {
		return 0, nil
	}
	n := min(len(dst), MaxRead)
	local := [1]unix.Iovec{{Base: &dst[0]}}
	local[0].SetLen(n)
	remote := [1]unix.RemoteIovec{{Base: uintptr(at), Len: n}}
	for {
		got, err := unix.ProcessVMReadv(pid, local[:], remote[:], 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if got == 0 {
			return 0, unix.EFAULT
		}
		return got, nil
	}
}

// Address returns the address of b's first byte, for a peer's Read; 0 if b is
// empty.
//
// The number keeps nothing alive and does not follow memory that moves: the
// caller holds b as long as anybody uses it, and b is not on a goroutine's stack.
// Whatever is stored in a request or passed through an interface is not: the
// compiler puts it on the heap, which never moves, nor does mapped memory.
func Address(b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(&b[0])))
}
