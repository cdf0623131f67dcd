// Package limits says in one line what the Go runtime would say by ending the process with
// a trace: that the limits of this process (getrlimit(2)) leave no room. The runtime
// can't do without a thread, a descriptor of its own or address space once it has asked.
// What a limit does before a program's first line nobody can say.
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

// Need is what is about to be used.
type Need struct {
	Files   int // descriptors, those included by which the runtime polls
	Threads int // of this process, besides those that it has, and of others that it will start
	// Space is address space in bytes where C is linked, which reserves it for each of its
	// threads: a stack (8 MiB, as a rule), and an arena of malloc's (64 MiB) if that is to
	// be had. Go's own threads take next to nothing.
	Space uint64
}

const (
	// largeLimit is a number of processes and threads that is not counted up to: a user
	// with so many has other troubles.
	largeLimit = 1024

	// manyFiles is a number of descriptors that nobody lacks who has just begun.
	manyFiles = 256
)

// Check returns an error if a limit does not leave what n needs.
func (n Need) Check() error {
	if err := n.files(); err != nil { // first: the others open files
		return err
	}
	if err := n.space(); err != nil {
		return err
	}
	return n.tasks()
}

func limit(resource int) uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(resource, &l); err != nil {
		return math.MaxUint64
	}
	return l.Cur
}

func (n Need) files() error {
	most := limit(unix.RLIMIT_NOFILE)
	if most >= manyFiles {
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
			return fmt.Errorf("%d more open files are allowed and %d needed: raise the limit of %d (ulimit -n)", len(fds), n.Files, most)
		}
		fds = append(fds, fd)
	}
	return nil
}

func (n Need) space() error {
	most := limit(unix.RLIMIT_AS)
	if most == math.MaxUint64 || !cgo {
		return nil
	}
	if used := addressSpace(); used+n.Space > most {
		return fmt.Errorf("%d MiB more of address space are allowed and %d needed, most of it never to be touched: raise the limit of %d MiB (ulimit -v), "+
			"and limit the memory by a control group", (max(used, most)-used)>>20, n.Space>>20, most>>20)
	}
	return nil
}

// addressSpace is how much this process has, in bytes; 0 if that is not to be known.
func addressSpace() uint64 {
	b, _ := os.ReadFile("/proc/self/statm")
	pages, _, _ := strings.Cut(string(b), " ")
	n, _ := strconv.ParseUint(pages, 10, 64)
	return n * uint64(os.Getpagesize())
}

func (n Need) tasks() error {
	most := limit(unix.RLIMIT_NPROC)
	if most >= largeLimit || exempt() {
		return nil
	}
	used, need := uint64(tasksOfUser()), uint64(n.Threads)
	if used+need > most {
		return fmt.Errorf("%d more processes and threads are allowed to this user and about %d needed: raise the limit of %d (ulimit -u)",
			max(used, most)-used, need, most)
	}
	return nil
}

// exempt reports whether the number of processes is not limited for this process: it is
// root's, or may raise its limits.
func exempt() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	const may = 1<<unix.CAP_SYS_RESOURCE | 1<<unix.CAP_SYS_ADMIN
	return os.Getuid() == 0 || unix.Capget(&header, &data[0]) == nil && data[0].Effective&may != 0
}

// tasksOfUser counts the threads of all processes of this user.
func tasksOfUser() (n int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*/task")
	for _, dir := range dirs {
		st, err := os.Stat(dir)
		if err != nil {
			continue
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); ok && int(sys.Uid) == os.Getuid() {
			n += int(sys.Nlink) - 2 // a directory for each
		}
	}
	return n
}
