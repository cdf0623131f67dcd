// Package limits checks the resource limits of this process (getrlimit(2)) before they are
// reached. The Go runtime aborts with a trace if it cannot create a thread, a descriptor or
// a mapping; Check returns a one-line error instead. Limits that prevent the start of a
// program are out of reach.
package limits

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Need holds the resources required in addition to those in use.
type Need struct {
	// Descriptors, including the descriptors of the runtime's poller.
	Files int

	// Threads counts new threads of this process and of the processes that it starts.
	Threads int

	// Space is address space in bytes. It is checked only if C is linked, which reserves a
	// stack (8 MiB by default) and a malloc arena (up to 64 MiB) per thread. Threads of a
	// pure Go program need almost none.
	Space uint64
}

const (
	// unlimitedTasks is the limit of processes and threads from which the exact count is skipped.
	unlimitedTasks = 1024

	// unlimitedFiles is the limit of descriptors from which the exact count is skipped.
	unlimitedFiles = 256
)

// Check returns an error if a limit is too low for n.
func (n Need) Check() error {
	// Files come first, since the other checks open files.
	if err := n.checkFiles(); err != nil {
		return err
	}
	if err := n.checkSpace(); err != nil {
		return err
	}
	return n.checkTasks()
}

func softLimit(resource int) uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return math.MaxUint64
	}
	return limit.Cur
}

func (n Need) checkFiles() error {
	limit := softLimit(unix.RLIMIT_NOFILE)
	if limit >= unlimitedFiles {
		return nil
	}
	fds := make([]int, 0, n.Files)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for len(fds) < n.Files {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return fmt.Errorf("%d more open files are allowed and %d needed: raise the limit of %d (ulimit -n)", len(fds), n.Files, limit)
		}
		fds = append(fds, fd)
	}
	return nil
}

func (n Need) checkSpace() error {
	limit := softLimit(unix.RLIMIT_AS)
	if limit == math.MaxUint64 || !cgo {
		return nil
	}
	if used := addressSpace(); used+n.Space > limit {
		return fmt.Errorf("%d MiB more of address space are allowed and %d needed, most of it only reserved: raise the limit of %d MiB (ulimit -v), "+
			"and limit the memory by a control group", (max(used, limit)-used)>>20, n.Space>>20, limit>>20)
	}
	return nil
}

// addressSpace returns the address space of this process in bytes, or 0 if it is unknown.
func addressSpace() uint64 {
	b, _ := os.ReadFile("/proc/self/statm")
	pages, _, _ := strings.Cut(string(b), " ")
	n, _ := strconv.ParseUint(pages, 10, 64)
	return n * uint64(os.Getpagesize())
}

func (n Need) checkTasks() error {
	limit := softLimit(unix.RLIMIT_NPROC)
	if limit >= unlimitedTasks || isExempt() {
		return nil
	}
	used, need := uint64(countTasks()), uint64(n.Threads)
	if used+need > limit {
		return fmt.Errorf("%d more processes and threads are allowed to this user and about %d needed: raise the limit of %d (ulimit -u)",
			max(used, limit)-used, need, limit)
	}
	return nil
}

// isExempt reports whether RLIMIT_NPROC does not bind this process, which is the case for
// root and for processes that may raise their limits.
func isExempt() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const exempting = 1<<unix.CAP_SYS_RESOURCE | 1<<unix.CAP_SYS_ADMIN
	return os.Getuid() == 0 || unix.Capget(&header, &data[0]) == nil && data[0].Effective&exempting != 0
}

// countTasks returns the number of threads of all processes of this user.
func countTasks() (n int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/task")
	for _, dir := range dirs {
		st, err := os.Stat(dir)
		if err != nil {
			continue
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) == os.Getuid() {
			n += int(sys.Nlink) - 2 // Each thread is a subdirectory.
		}
	}
	return n
}
