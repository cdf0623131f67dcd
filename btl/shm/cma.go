package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/shmlayout"
)

// readVM copies from the memory of another process: cma.Read, or in tests
// something that fails.
type readVM func(pid int, dst []byte, at uint64) (int, error)

// probeCMA reads the proof in the peer's table, and returns nil if that is the peer's.
func (m *module) probeCMA(s *source) error {
	if err := m.identify(s); err != nil {
		return err
	}
	var got [shmlayout.ProofSize]byte
	n, err := m.readVM(s.pid, got[:], s.table)
	if err != nil {
		return vmError("process_vm_readv", err, s.pid)
	}
	if n != len(got) || got != shmlayout.Proof(s.peer.Nonce) {
		return fmt.Errorf("process %d here is not the peer: its proof is another one", s.pid)
	}
	return nil
}

// vmError says in words why process pid can't be read.
func vmError(call string, err error, pid int) error {
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
