package shm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/shmlayout"
	"github.com/ferrympi/ferry/progress"
)

const childSize = 1 << 20

var childIncarnation = framework.Incarnation{Nonce: 77}

func childBytes(kind string) []byte {
	return bytes.Repeat([]byte(kind+" of the child."), childSize/8)[:childSize]
}

// ownerInChild is rank 0 in a child process. It exposes memory of both kinds, prints the
// descriptions and waits.
func ownerInChild(namespace string) error {
	c := Component()
	p := c.Params().(*params)
	framework.FillDefaults(p)
	p.SingleCopy, p.Dir = os.Getenv("SHM_TEST_SINGLE_COPY"), os.Getenv("SHM_TEST_DIR")
	engine := progress.New(progress.Options{})
	opened, err := c.Open(context.Background(), btl.Env{
		Env: progress.Env{
			Identity: bootstrap.Identity{Proc: framework.Proc{Namespace: namespace}, Size: 2, LocalSize: 2},
			Worlds:   framework.NewWorlds(namespace),
			Self:     childIncarnation, Engine: engine, Logger: slog.New(slog.DiscardHandler),
		},
		Params: p, Upcall: new(testProc),
	})
	if err != nil {
		return err
	}
	engine.Add(opened)
	defer func() {
		engine.Close()
		opened.Close()
	}()
	m := opened.(*module)
	heap := childBytes("heap")
	allocated, err := m.Allocate(childSize)
	if err != nil {
		return err
	}
	copy(allocated, childBytes("allocated"))
	a, okA := m.Expose(allocated, true)
	h, okH := m.Expose(heap, false)
	if os.Getenv("SHM_TEST_TABLE") != "" {
		table := openTable(&testProc{module: m}, tableVersion)
		table.Store(0, 1)
		go func() {
			for n := uint64(1); ; n++ {
				table.Store(0, n)
			}
		}()
	}
	fmt.Printf("exposed %s %t %x %t %x\n", m.Blob(), okA, a, okH, h)
	bufio.NewReader(os.Stdin).ReadByte()
	runtime.KeepAlive(heap)
	return nil
}

// child is the other process. Its reader is this process's module with a path to it.
type child struct {
	cmd             *exec.Cmd
	allocated, heap btl.Remote
	okA, okH        bool
	reader          *module
}

func startChild(t *testing.T, single, dir string, attr *syscall.SysProcAttr) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHM_TEST_NAMESPACE="+t.Name(), "SHM_TEST_SINGLE_COPY="+single, "SHM_TEST_DIR="+dir)
	cmd.SysProcAttr = attr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		if attr != nil {
			needs.Missing(t, "no process in a namespace of its own can be started: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	var blob, a, h string
	c := &child{cmd: cmd}
	if _, err := fmt.Fscanf(out, "exposed %s %t %s %t %s\n", &blob, &c.okA, &a, &c.okH, &h); err != nil {
		t.Fatal("the other process did not come up: ", err)
	}
	for text, r := range map[string]*btl.Remote{a: &c.allocated, h: &c.heap} {
		if n, err := hex.Decode(r[:], []byte(text)); n != len(r) || err != nil {
			t.Fatal(n, err)
		}
	}
	w := newPairOf(t, Component(), func(_ int, p *params) { p.SingleCopy, p.Dir = single, dir })
	c.reader = w.procs[1].module.(*module)
	if _, err := c.reader.Connect(framework.Peer{
		Incarnation: childIncarnation, Proc: framework.Proc{Namespace: t.Name()}, Blob: []byte(blob),
	}); err != nil {
		t.Fatal(err)
	}
	// Reads need a path from the owner. The child connects to no process, so the test registers one.
	c.reader.inboundPaths[childIncarnation] = &inbound{module: c.reader, remote: c.reader.endpoints[childIncarnation].remote}
	c.reader.inbox.Slot(0).SetState(shmlayout.Granted)
	return c
}

func (c *child) read(r btl.Remote) ([]byte, error) {
	got := make([]byte, childSize)
	for done := 0; done < len(got); {
		n, err := c.reader.Read(childIncarnation, r, int64(done), got[done:])
		if err != nil {
			return nil, err
		}
		done += n
	}
	return got, nil
}

func TestRead_AnotherProcess_CopiesMemory(t *testing.T) {
	for _, single := range []string{"memory", "cma"} {
		t.Run(single, func(t *testing.T) {
			c := startChild(t, single, t.TempDir(), nil)
			if !c.okA || c.okH != (single == "cma") {
				t.Fatalf("exposed: allocated %v, heap %v", c.okA, c.okH)
			}
			for kind, r := range map[string]btl.Remote{"allocated": c.allocated, "heap": c.heap} {
				if kind == "heap" && !c.okH {
					continue
				}
				err := c.reader.CanRead(childIncarnation, r, childSize)
				if err != nil && single == "cma" {
					needs.Missing(t, "process_vm_readv does not work here: %v", err)
				}
				got, readErr := c.read(r)
				if err != nil || readErr != nil || !bytes.Equal(got, childBytes(kind)) {
					t.Errorf("%s memory: %v, %v", kind, err, readErr)
				}
			}
		})
	}
}

// The child is process 1 of its own PID namespace. The test reads its allocated memory. CMA must
// not read process 1 of this namespace instead.
func TestRead_SeparatePIDNamespaces_UsesMappingOnly(t *testing.T) {
	needs.Root(t, "make a process id namespace")
	dir := t.TempDir()
	attr := func() *syscall.SysProcAttr { return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID} }
	c := startChild(t, "memory", dir, attr())
	if err := c.reader.CanRead(childIncarnation, c.allocated, childSize); err != nil {
		t.Fatal(err)
	}
	if got, err := c.read(c.allocated); err != nil || !bytes.Equal(got, childBytes("allocated")) {
		t.Fatal("the child's allocated memory: ", err)
	}
	t.Run("cma", func(t *testing.T) {
		c := startChild(t, "cma", dir, attr())
		if pid := c.reader.remoteInboxOf(childIncarnation).inbox.PID(); pid != 1 {
			t.Fatalf("the inbox has process id %d, want 1", pid)
		}
		err := c.reader.CanRead(childIncarnation, c.heap, childSize)
		if err == nil {
			t.Fatal("CanRead took process 1 of this namespace for the child")
		}
		t.Log(err)
		if notes := strings.Join(c.reader.Notes(childIncarnation), "; "); !strings.Contains(notes, "process id 1 of the peer") {
			t.Errorf("the notes lack the reason: %s", notes)
		}
	})
}

// The reader is between two parts of a message.
func TestRead_OwnerKilled_ReturnsError(t *testing.T) {
	for _, single := range []string{"memory", "cma"} {
		t.Run(single, func(t *testing.T) {
			dir := t.TempDir()
			c := startChild(t, single, dir, nil)
			if err := c.reader.CanRead(childIncarnation, c.allocated, childSize); err != nil {
				needs.Missing(t, "the memory of other processes can't be read: %v", err)
			}
			c.cmd.Process.Kill()
			c.cmd.Process.Wait()
			got := make([]byte, childSize)
			_, err := c.reader.Read(childIncarnation, c.allocated, 0, got)
			// A mapping outlives its owner, but the system call fails.
			if single == "memory" && (err != nil || !bytes.Equal(got, childBytes("allocated"))) || single == "cma" && err == nil {
				t.Errorf("%s: %v", single, err)
			}
			// The next job removes the remaining segments, including the memory.
			if removed, err := c.reader.space.RemoveStale(dir, prefix()); err != nil || len(removed) != 2 {
				t.Errorf("removed %v (%v), want inbox and region of the dead", removed, err)
			}
		})
	}
}

// The 5 GiB of ordinary memory are sparse and read in full. Those of the allocation are not sparse,
// and only parts are read.
func TestRead_OffsetBeyond32Bits_CopiesTheRightBytes(t *testing.T) {
	const length = 5<<30 + 12345
	marks := []int64{0, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, length - 1}
	verify := func(t *testing.T, owner, reader *module, buf []byte, all bool) {
		for k, at := range marks {
			buf[at] = byte(k + 1)
		}
		r, ok := owner.Expose(buf, true)
		if !ok {
			t.Fatal("Expose refused the memory")
		}
		if err := reader.CanRead(rank0, r, length); err != nil {
			needs.Missing(t, "the memory of other processes can't be read: %v", err)
		}
		window := make([]byte, 16<<20)
		for done := int64(0); done < length; {
			n, err := reader.Read(rank0, r, done, window[:min(int64(len(window)), length-done)])
			if err != nil || n < 1 {
				t.Fatalf("at %d: %d, %v", done, n, err)
			}
			for k, at := range marks {
				if at >= done && at < done+int64(n) && window[at-done] != byte(k+1) {
					t.Fatalf("byte %d is %d, want %d", at, window[at-done], k+1)
				}
			}
			done += int64(n)
			if next := slices.IndexFunc(marks, func(at int64) bool { return at >= done }); !all && next >= 0 {
				done = max(done, marks[next]-5000)
			}
		}
	}
	t.Run("cma", func(t *testing.T) {
		_, owner, reader := connected(t, Component(), "cma")
		mem, err := unix.Mmap(-1, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err != nil {
			t.Skip("5 GiB of address space: ", err)
		}
		defer unix.Munmap(mem)
		verify(t, owner, reader, mem, true)
	})
	t.Run("memory", func(t *testing.T) {
		if free, want := memAvailable(), int64(length+1<<30); free < want {
			t.Skipf("allocated memory is reserved in full: %d MiB are available, %d wanted", free>>20, want>>20)
		}
		_, owner, reader := connected(t, Component(), "memory")
		mem, err := owner.Allocate(length)
		if err != nil {
			t.Skip("no room in shared memory: ", err)
		}
		verify(t, owner, reader, mem, false)
		if err := owner.Free(mem); err != nil {
			t.Error(err)
		}
	})
}

// memAvailable returns the available memory in bytes, 0 if unknown.
func memAvailable() (n int64) {
	f, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(f)) {
		if found, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &n); found == 1 {
			return n << 10
		}
	}
	return 0
}

// The test mounts a file system of 2 MiB, as small as a container's /dev/shm may be.
func TestOpen_TinyFileSystem_ErrorHasPathAndShortfall(t *testing.T) {
	dir := needs.SmallTmpfs(t, 2<<20)
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir = dir })
	m := w.procs[0].module.(*module)
	for range 3 {
		_, err := m.Allocate(4 << 20)
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "need ") {
			t.Fatalf("got %v", err)
		}
		mem, err := m.Allocate(1 << 20)
		if err != nil {
			t.Fatal("a region that fits failed, too: ", err)
		}
		mem[1<<20-1] = 1
		if err := m.Free(mem); err != nil {
			t.Fatal(err)
		}
	}
	w.close(t)
}
