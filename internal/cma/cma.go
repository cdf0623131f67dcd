// Package cma reads and writes the memory of another process of this node with one
// copy (cross memory attach, process_vm_readv(2) and process_vm_writev(2)). It has no
// policy: who copies from whom, and whether the process is the right one, btl/shm decides.
package cma

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxRead is the most bytes that Read and Write copy in one call. The kernel stops at
// 2 GiB less a page (MAX_RW_COUNT); a round number below it keeps later parts
// aligned.
const MaxRead = 1 << 30

// Read copies from address at of process pid into dst, at most MaxRead bytes,
// and returns how many; fewer than asked for when the memory there ends early.
// It blocks while pages are brought in. Errors are those of the system call:
// EPERM, ESRCH, EFAULT when not even the first byte can be read, ENOSYS.
func Read(pid int, dst []byte, at uint64) (int, error) {
	return transfer(false, pid, dst, at)
}

// Write copies src to address at of process pid; all else is as for Read. When it
// returns, nothing more is written.
func Write(pid int, src []byte, at uint64) (int, error) {
	return transfer(true, pid, src, at)
}

func transfer(write bool, pid int, b []byte, at uint64) (got int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	n := min(len(b), MaxRead)
	local := [1]unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(n)
	remote := [1]unix.RemoteIovec{{Base: uintptr(at), Len: n}}
	for {
		if write {
			got, err = unix.ProcessVMWritev(pid, local[:], remote[:], 0)
		} else {
			got, err = unix.ProcessVMReadv(pid, local[:], remote[:], 0)
		}
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
