package cma

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/internal/needs"
)

// pattern returns the contents of the other process's memory.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>9)
	}
	return b
}

const size = 1 << 20

// TestMain runs the tests, or a child process as the owner of the memory or a reader of another user.
func TestMain(m *testing.M) {
	switch os.Getenv("CMA_TEST_ROLE") {
	case "owner":
		if os.Getenv("CMA_TEST_HIDE") != "" {
			check(unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
		}
		mem := pattern(size)
		fmt.Println(os.Getpid(), Address(mem))
		bufio.NewReader(os.Stdin).ReadByte() // Until the test ends.
		runtime.KeepAlive(mem)
	case "otherUser":
		check(syscall.Setuid(65534))
		pid, _ := strconv.Atoi(os.Getenv("CMA_TEST_PID"))
		at, _ := strconv.ParseUint(os.Getenv("CMA_TEST_AT"), 10, 64)
		if _, err := Read(pid, make([]byte, 100), at); !errors.Is(err, unix.EPERM) {
			check(fmt.Errorf("the read of another user's memory returned %v", err))
		}
	default:
		os.Exit(m.Run())
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// startOwner starts a process with a pattern in its memory and returns its id and the address.
func startOwner(t *testing.T, env ...string) (pid int, at uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "CMA_TEST_ROLE=owner"), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	if _, err := fmt.Fscan(out, &pid, &at); err != nil {
		t.Fatal("the other process did not come up: ", err)
	}
	return pid, at
}

// requireAllowed skips the test if the system forbids reads of other processes.
func requireAllowed(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		needs.Missing(t, "process_vm_readv does not work here: %v", err)
	}
}

func TestRead_OtherProcess_CopiesExactBytes(t *testing.T) {
	pid, at := startOwner(t)
	want := pattern(size)
	got := make([]byte, size)
	n, err := Read(pid, got, at)
	requireAllowed(t, err)
	if n != size || err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes (%v)", n, err)
	}
	for k := range 100 {
		offset := k * 9973
		part := make([]byte, k*100+1)
		if n, err := Read(pid, part, at+uint64(offset)); n != len(part) || err != nil || !bytes.Equal(part, want[offset:offset+len(part)]) {
			t.Fatalf("%d bytes at %d: read %d (%v)", len(part), offset, n, err)
		}
	}
	if n, err := Read(pid, nil, at); n != 0 || err != nil {
		t.Errorf("no bytes: %d, %v", n, err)
	}
	if n := testing.AllocsPerRun(100, func() { Read(pid, got[:100], at) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestRead_WrongProcessOrAddress_ReturnsError(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Skip("cannot start true: ", err)
	}
	for _, c := range []struct {
		name string
		pid  int
		at   uint64
		want error
	}{
		{"a process that has ended", ended.Process.Pid, 4096, unix.ESRCH},
		{"the zero page", os.Getpid(), 0, unix.EFAULT},
		{"kernel memory", os.Getpid(), 1 << 63, unix.EFAULT},
		{"the last byte", os.Getpid(), 1<<64 - 1, unix.EFAULT},
	} {
		n, err := Read(c.pid, make([]byte, 100), c.at)
		requireAllowed(t, err)
		if n != 0 || !errors.Is(err, c.want) {
			t.Errorf("%s: %d, %v, want %v", c.name, n, err, c.want)
		}
	}
}

// The owner hides its memory. Root may read it nevertheless, so that the reader is then
// another user.
func TestRead_NoPermission_ReturnsError(t *testing.T) {
	pid, at := startOwner(t, "CMA_TEST_HIDE=1")
	if os.Geteuid() != 0 {
		if _, err := Read(pid, make([]byte, 100), at); !errors.Is(err, unix.EPERM) {
			t.Errorf("the read of a process that hides its memory returned %v", err)
		}
		return
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CMA_TEST_ROLE=otherUser", fmt.Sprint("CMA_TEST_PID=", pid), fmt.Sprint("CMA_TEST_AT=", at))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestRead_SecondPageUnreadable_ReturnsFirstPage(t *testing.T) {
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	copy(mem, pattern(2*page))
	if err := unix.Mprotect(mem[page:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2*page)
	n, err := Read(os.Getpid(), got, Address(mem))
	requireAllowed(t, err)
	if n != page || err != nil || !bytes.Equal(got[:page], pattern(page)) {
		t.Errorf("read %d bytes (%v), want %d", n, err, page)
	}
	if n, err := Read(os.Getpid(), got, Address(mem)+uint64(page)); n != 0 || !errors.Is(err, unix.EFAULT) {
		t.Errorf("second page: read %d bytes (%v)", n, err)
	}
}

// The source of 3 GiB is sparse, so that only the destination occupies memory.
func TestRead_BeyondKernelLimit_CopiesInChunks(t *testing.T) {
	const length = 3 << 30
	if free := availableMemory(); free < 4<<30 {
		t.Skipf("3 GiB need memory: %d MiB of 4096 are available", free>>20)
	}
	sparse := func() []byte {
		mem, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err != nil {
			t.Skip("3 GiB of address space: ", err)
		}
		t.Cleanup(func() { unix.Munmap(mem) })
		return mem
	}
	src, dst := sparse(), sparse()
	marks := []int{0, MaxRead - 1, MaxRead, 1<<31 - 4096, 1<<31 - 1, 1 << 31, length - 1}
	for k, at := range marks {
		src[at] = byte(k + 1)
	}
	reads := 0
	for done := 0; done < length; reads++ {
		n, err := Read(os.Getpid(), dst[done:], Address(src[done:]))
		requireAllowed(t, err)
		if err != nil || n < 1 {
			t.Fatalf("at %d: read %d (%v)", done, n, err)
		}
		for k, at := range marks {
			if at >= done && at < done+n && dst[at] != byte(k+1) {
				t.Fatalf("byte %d is %d, want %d", at, dst[at], k+1)
			}
		}
		// Frees the compared chunk.
		if err := unix.Madvise(dst[done:done+n], unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		done += n
	}
	if reads != length/MaxRead {
		t.Errorf("%d reads, want %d", reads, length/MaxRead)
	}
}

// availableMemory returns MemAvailable in bytes, or 0 if it is unknown.
func availableMemory() (bytes int64) {
	f, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(f)) {
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &bytes); n == 1 {
			return bytes << 10
		}
	}
	return 0
}
