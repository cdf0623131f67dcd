// Package cma copies between this process and another process of the node with a single
// copy by process_vm_readv(2) and process_vm_writev(2). It has no policy.
// btl/shm selects the process and verifies its identity.
package cma

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxRead limits a single Read or Write, in bytes. The limit of the kernel is 2 GiB less a
// page (MAX_RW_COUNT); a power of two below it keeps later chunks aligned.
const MaxRead = 1 << 30

// Read copies at most MaxRead bytes from address at of process pid into dst and returns their
// number, which is less than len(dst) if the remote memory ends early. It blocks during page
// faults. Errors are those of the system call, such as EPERM, ESRCH and ENOSYS; EFAULT if the
// first byte is unreadable.
func Read(pid int, dst []byte, at uint64) (int, error) {
	return transfer(false, pid, dst, at)
}

// Write copies src to address at of process pid, with the limits and errors of Read. The
// copy has ended when it returns.
func Write(pid int, src []byte, at uint64) (int, error) {
	return transfer(true, pid, src, at)
}

func transfer(isWrite bool, pid int, b []byte, at uint64) (copied int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	n := min(len(b), MaxRead)
	local := [1]unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(n)
	remote := [1]unix.RemoteIovec{{Base: uintptr(at), Len: n}}
	for {
		if isWrite {
			copied, err = unix.ProcessVMWritev(pid, local[:], remote[:], 0)
		} else {
			copied, err = unix.ProcessVMReadv(pid, local[:], remote[:], 0)
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if copied == 0 {
			return 0, unix.EFAULT
		}
		return copied, nil
	}
}

// Address returns the address of b's first byte for Read and Write of a peer, or 0 if b is
// empty.
//
// The address does not keep b alive and does not follow a move. The caller holds b until the
// last use, and b must not be on a goroutine's stack. Memory that is stored in a request or
// passed through an interface escapes to the heap, which does not move; mapped memory does
// not move either.
func Address(b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(&b[0])))
}
