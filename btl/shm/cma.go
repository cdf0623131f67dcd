package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/shmlayout"
)

// readFunc copies from the memory of another process. It is cma.Read, except in tests.
type readFunc func(pid int, dst []byte, at uint64) (int, error)

// probeCMA reads the proof in the peer's table. It returns nil if the proof is that of the peer.
func (m *module) probeCMA(s *peerMemory) error {
	if err := m.identify(s); err != nil {
		return err
	}
	var got [shmlayout.ProofSize]byte
	n, err := m.readVM(s.pid, got[:], s.tableAddress)
	if err != nil {
		return describeVMError("process_vm_readv", err, s.pid)
	}
	if n != len(got) || got != shmlayout.Proof(s.peer.Nonce) {
		return fmt.Errorf("process %d here is not the peer: its proof differs", s.pid)
	}
	return nil
}

// describeVMError explains the error of a call that copies from or to the memory of process pid.
func describeVMError(call string, err error, pid int) error {
	why := ""
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		why = "the system forbids it: see kernel.yama.ptrace_scope, seccomp filters, whether both processes have the same user and capabilities, and whether they share process ids (containers)"
	case errors.Is(err, unix.ESRCH):
		why = "there is no such process here: it has ended, or its process ids are those of another container"
	case errors.Is(err, unix.ENOSYS):
		why = "the kernel or a seccomp filter does not have the call"
	case errors.Is(err, unix.EFAULT):
		why = "there is no such memory: it has been freed, or this process is not the peer"
	default:
		why = "unexpected"
	}
	return fmt.Errorf("%s of process %d: %w: %s", call, pid, err, why)
}
