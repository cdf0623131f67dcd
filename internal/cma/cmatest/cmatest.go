// Package cmatest makes the kernel refuse copies between processes, for tests of the fallbacks.
package cmatest

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Refuse makes process_vm_readv and process_vm_writev fail with EPERM in all threads of this process
// and in its children, as the seccomp profile of a container does. It cannot be undone. It returns an
// error on a system without seccomp.
func Refuse() error {
	const load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load}, // Number of the system call.
		{Code: equal, Jt: 1, K: unix.SYS_PROCESS_VM_READV},
		{Code: equal, Jf: 1, K: unix.SYS_PROCESS_VM_WRITEV},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	// Required without CAP_SYS_ADMIN. The filter extends it to the other threads.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}
