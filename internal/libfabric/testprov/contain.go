package testprov

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Contain makes the kernel refuse userfaultfd to this process, as containers usually do. Registration caches are then not notified of unmapped
// memory.
func Contain() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // The number of the call.
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_USERFAULTFD},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	// For all threads.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, 0, 0, 0); errno != unix.EPERM {
		return fmt.Errorf("userfaultfd is not refused: %w", errno)
	}
	return nil
}
