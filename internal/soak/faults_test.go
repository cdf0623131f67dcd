package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// strike has the fault come, now or after its delay. The rank goes on meanwhile.
func (p *player) strike() {
	p.struck.Do(func() {
		f := p.storm.fault
		if f.how == "small" { // it was there from the beginning
			p.moment()
			return
		}
		if f.delay == 0 {
			p.inject(f)
			return
		}
		go func() {
			time.Sleep(f.delay)
			p.inject(f)
		}()
	})
}

func (p *player) inject(f fault) {
	if p.storm.kind == "close" { // it says itself when it begins to
		p.end(errClosing)
		return
	}
	p.moment()
	switch f.how {
	case "signal":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "exit 0":
		os.Exit(0)
	case "exit 3":
		os.Exit(3)
	case "panic":
		panic("a storm's")
	case "cut":
		if n := shutDownLaunchers(); n != 1 {
			p.failed("cut", fmt.Errorf("%d connections with a launcher", n))
		}
	case "full":
		p.failed("fill", fill(os.Getenv("FERRY_BTL_SHM_DIR"), f.room))
	case "descriptors":
		p.failed("limit of descriptors", limit(unix.RLIMIT_NOFILE, uint64(highest()+1+f.room)))
	case "address space":
		p.failed("limit of address space", limit(unix.RLIMIT_AS, uint64(addressSpace()+f.room)))
	}
}

// failed says that a fault could not be injected.
func (p *player) failed(what string, err error) {
	if err != nil {
		p.wrong("fault: %s: %v", what, err)
	}
}

// descriptors are those that are open.
func descriptors() (fds []int) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil {
			fds = append(fds, fd)
		}
	}
	return fds
}

// highest is the highest descriptor in use. The one that lists them may be it.
func highest() int64 {
	top := 0
	for _, fd := range descriptors() {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			top = max(top, fd)
		}
	}
	return int64(top)
}

// limit sets a resource limit of this process, which is the one that it can raise again.
func limit(resource int, to uint64) error {
	var now unix.Rlimit
	if err := unix.Prlimit(0, resource, nil, &now); err != nil {
		return err
	}
	return unix.Prlimit(0, resource, &unix.Rlimit{Cur: min(to, now.Max), Max: now.Max}, nil)
}

func addressSpace() int64 {
	var pages int64
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		fmt.Sscan(string(b), &pages)
	}
	return pages * int64(os.Getpagesize())
}

// ballast is the beginning of the names of files that fill a file system.
const ballast = "ballast-"

// fill leaves so many bytes of a file system free.
func fill(dir string, room int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	free := int64(st.Bavail)*st.Bsize - room
	if free <= 0 {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprint(ballast, os.Getpid())))
	if err != nil {
		return nil // it is full
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, free); err != nil && err != unix.ENOSPC { // others take their part
		return err
	}
	return nil
}

// outOfMemory are the words with which the Go runtime ends a process that gets no memory,
// or no thread. That is a death like another one.
var outOfMemory = []string{"out of memory", "cannot allocate memory", "pthread_create failed", "failed to create new OS thread", "errno=12", "mmap failed"}

// starved reports whether that was it. The runtime's collector also takes no memory for
// memory, and dies of a signal in code of its own.
func starved(out string) bool {
	for _, words := range outOfMemory {
		if strings.Contains(out, words) {
			return true
		}
	}
	_, trace, ok := strings.Cut(out, "SIGSEGV")
	_, trace, _ = strings.Cut(trace, "\ngoroutine ")
	trace, _, _ = strings.Cut(trace, "\n\n")
	return ok && strings.Contains(trace, "\nruntime.") && !strings.Contains(trace, "ferry") && !strings.Contains(trace, "cgo")
}
