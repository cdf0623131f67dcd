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

// injectFault injects the fault, now or after its delay. The rank continues meanwhile.
func (p *stormPlayer) injectFault() {
	p.faultOnce.Do(func() {
		f := p.storm.fault
		if f.variant == "small" { // The fault exists from the beginning.
			p.recordFaultTime()
			return
		}
		if f.delay == 0 {
			p.injectNow(f)
			return
		}
		go func() {
			time.Sleep(f.delay)
			p.injectNow(f)
		}()
	})
}

func (p *stormPlayer) injectNow(f fault) {
	if p.storm.kind == "close" { // The rank records the beginning itself.
		p.endIncarnation(errClosing)
		return
	}
	p.recordFaultTime()
	switch f.variant {
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
			p.recordInjectionError("cut", fmt.Errorf("%d connections with a launcher", n))
		}
	case "full":
		p.recordInjectionError("fill", fillFileSystem(os.Getenv("FERRY_BTL_SHM_DIR"), f.remaining))
	case "descriptors":
		p.recordInjectionError("limit of descriptors", setLimit(unix.RLIMIT_NOFILE, uint64(highestDescriptor()+1+f.remaining)))
	case "address space":
		p.recordInjectionError("limit of address space", setLimit(unix.RLIMIT_AS, uint64(addressSpace()+f.remaining)))
	}
}

// recordInjectionError records that a fault could not be injected.
func (p *stormPlayer) recordInjectionError(what string, err error) {
	if err != nil {
		p.recordWrong("fault: %s: %v", what, err)
	}
}

// descriptors returns the open descriptors.
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

// highestDescriptor returns the highest descriptor in use, possibly the one that lists them.
func highestDescriptor() int64 {
	top := 0
	for _, fd := range descriptors() {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			top = max(top, fd)
		}
	}
	return int64(top)
}

// setLimit sets the soft limit of a resource, which this process can raise again.
func setLimit(resource int, to uint64) error {
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

// fillerPrefix is the prefix of files that fill a file system.
const fillerPrefix = "ballast-"

// fillFileSystem leaves that many bytes of a file system free.
func fillFileSystem(dir string, room int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	free := int64(st.Bavail)*st.Bsize - room
	if free <= 0 {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprint(fillerPrefix, os.Getpid())))
	if err != nil {
		return nil // It is full.
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, free); err != nil && err != unix.ENOSPC { // Other processes allocate at the same time.
		return err
	}
	return nil
}

// outOfMemory has the messages with which the Go runtime ends a process without memory or threads.
// That counts as an ordinary death.
var outOfMemory = []string{"out of memory", "cannot allocate memory", "pthread_create failed", "failed to create new OS thread", "errno=12", "mmap failed"}

// isOutOfMemory reports whether the output is that of a process without memory. The garbage collector
// does not check allocations, and dies of a signal in its own code.
func isOutOfMemory(out string) bool {
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
