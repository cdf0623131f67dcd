package shm

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/internal/inbox"
)

// readVM copies from the memory of another process: cma.Read, or in tests
// something that fails.
type readVM func(pid int, dst []byte, at uint64) (int, error)

// ownProcess tells peers where they find proof, which is memory of Go's heap and
// nobody else's: the inbox itself would not do, since peers map it too.
func ownProcess(proof []byte) inbox.Process {
	return inbox.Process{PID: uint32(os.Getpid()), Probe: cma.Address(proof)}
}

// probeCMA copies what the peer says is its proof, and compares. nil: its memory
// can be read.
func (m *module) probeCMA(s *source) error {
	if s.process.PID == 0 || s.process.PID > math.MaxInt32 || s.process.Probe == 0 {
		return errors.New("the peer does not say where its memory is")
	}
	var got [inbox.ProbeSize]byte
	n, err := m.readVM(int(s.process.PID), got[:], s.process.Probe)
	if err != nil {
		return vmError("process_vm_readv", err, s.process.PID)
	}
	same := n == len(got) && got == inbox.Proof(s.peer.Nonce)
	clear(got[:]) // so that nobody takes us for the peer
	if !same {
		return fmt.Errorf("process %d here is not the peer: its process ids are those of another container", s.process.PID)
	}
	return nil
}

// vmError says in words why process pid can't be read.
func vmError(call string, err error, pid uint32) error {
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
