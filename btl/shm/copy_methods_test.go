package shm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

func TestForget_PeerWithMemory_LeavesNoState(t *testing.T) {
	w := newPair(t, nil)
	m := w.procs[0].module.(*module)
	w.send(t, w.connect(t, 0, 1), []byte("frame"))
	m.Notes(incarnation(1))
	if len(m.peerMemories) != 1 || len(m.endpoints) != 1 {
		t.Fatalf("%d sources and %d paths, want one of each", len(m.peerMemories), len(m.endpoints))
	}
	m.Forget(incarnation(1))
	if len(m.peerMemories)+len(m.endpoints)+len(m.inboundPaths) > 0 || m.lastPeerMemory != nil {
		t.Errorf("sources %v, paths %v and %v, asked %v", m.peerMemories, m.endpoints, m.inboundPaths, m.lastPeerMemory)
	}
}

// The contract runs with each method forced, over files and over Go memory.
func TestContract_EachCopyMethod(t *testing.T) {
	for _, space := range []struct {
		name      string
		component func() btl.Component
	}{{"files", Component}, {"heap", OnHeap}} {
		if underRace && space.name == "files" {
			continue // The race detector observes Go memory only.
		}
		for _, way := range []string{"memory", "cma", "auto", "off"} {
			t.Run(space.name+", "+way, func(t *testing.T) {
				if !underRace && space.name == "heap" {
					needs.Time(t)
				}
				btltest.RemoteCases(btltest.Subject{Component: space.component(), Params: func(_ int, p any) {
					p.(*params).SingleCopy = way
				}}).Run(t)
			})
		}
	}
}

// connected returns a pair with a path from rank 0 to rank 1, which reads.
func connected(t *testing.T, c btl.Component, single string) (w *pair, owner, reader *module) {
	t.Helper()
	w = newPairOf(t, c, func(_ int, p *params) { p.SingleCopy = single })
	ep := w.connect(t, 0, 1)
	w.send(t, ep, []byte("x"))
	w.poll(t, func() bool { return w.procs[1].frames == 1 })
	return w, w.procs[0].module.(*module), w.procs[1].module.(*module)
}

var rank0 = incarnation(0)

// The test injects the errors of the system call. The error is explained and permanent.
func TestProbeCMA_CallFails_ErrorNamesCause(t *testing.T) {
	for _, c := range []struct {
		errno error
		want  string
	}{
		{unix.EPERM, "ptrace_scope"},
		{unix.ESRCH, "container"},
		{unix.ENOSYS, "does not have the call"},
		{unix.EFAULT, "no such memory"},
		{nil, "is not the peer"},
	} {
		calls := 0
		_, owner, reader := connected(t, component{new(segment.Heap), func(_ int, dst []byte, _ uint64) (int, error) {
			calls++
			if c.errno == nil {
				return copy(dst, "another process's bytes"), nil
			}
			return 0, c.errno
		}, cma.Write}, "cma")
		r, ok := owner.Expose(make([]byte, 1<<20), false)
		if !ok {
			t.Fatal("nothing is exposed")
		}
		for range 3 {
			err := reader.CanRead(rank0, r, 1<<20)
			if !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), c.want) || c.errno != nil && !errors.Is(err, c.errno) {
				t.Errorf("%v: CanRead returned %v", c.errno, err)
			}
			if n, err := reader.Read(rank0, r, 0, make([]byte, 10)); err == nil || n != 0 {
				t.Errorf("%v: Read returns %d, %v", c.errno, n, err)
			}
		}
		if calls != 1 {
			t.Errorf("%v: tried %d times, want once", c.errno, calls)
		}
		if notes := strings.Join(reader.Notes(rank0), "\n"); !strings.Contains(notes, c.want) {
			t.Errorf("%v: the notes are %q", c.errno, notes)
		}
	}
}

// In Open MPI, one failed copy disables single copies for all peers.
func TestRead_OnePeerFails_OthersKeepTheMethod(t *testing.T) {
	_, owner, reader := connected(t, OnHeap(), "cma")
	buf := make([]byte, 1<<20)
	r, _ := owner.Expose(buf, false)
	if err := reader.CanRead(rank0, r, 1<<20); err != nil {
		needs.Missing(t, "process_vm_readv does not work here: %v", err)
	}
	// The process of another peer becomes unreadable in the middle of a message.
	bad := framework.Incarnation{ID: framework.MakeProcID(0, 9), Nonce: rank0.Nonce}
	reader.inboundPaths[bad] = reader.inboundPaths[rank0]
	defer delete(reader.inboundPaths, bad)
	reader.peerMemories[bad] = &peerMemory{peer: bad, isProbed: true, pid: os.Getpid()}
	if err := reader.CanRead(bad, r, 1<<20); err != nil {
		t.Fatal(err)
	}
	works := reader.readVM
	reader.readVM = func(int, []byte, uint64) (int, error) { return 0, unix.EPERM }
	if _, err := reader.Read(bad, r, 0, buf[:10:10]); !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
	reader.readVM = works
	if err := reader.CanRead(bad, r, 1<<20); !errors.Is(err, unix.EPERM) {
		t.Errorf("the failure is forgotten: %v", err)
	}
	if err := reader.CanRead(rank0, r, 1<<20); err != nil {
		t.Errorf("the other peer is off too: %v", err)
	}
	if n, err := reader.Read(rank0, r, 0, make([]byte, 10)); n != 10 || err != nil {
		t.Errorf("the other peer: %d, %v", n, err)
	}
}

// The owner publishes another process id than the kernel reports.
func TestIdentify_PIDOfAnotherContainer_IsRejected(t *testing.T) {
	for _, pid := range []int{0, os.Getppid(), 1, math.MaxInt32} {
		_, owner, reader := connected(t, OnHeap(), "cma")
		binary.LittleEndian.PutUint32(owner.mapping.Bytes[28:], uint32(pid))
		r, _ := owner.Expose(make([]byte, 1<<20), false)
		if err := reader.CanRead(rank0, r, 1<<20); err == nil {
			t.Errorf("process %d is taken for the peer", pid)
		}
	}
}

// Every number in a description comes from the peer.
func TestDescription_OutsideRegion_IsRejected(t *testing.T) {
	for _, d := range []description{
		{regionNumber: 1, length: 1<<20 + 1},
		{regionNumber: 1, regionOffset: 1, length: 1 << 20},
		{regionNumber: 1, regionOffset: 1 << 20, length: 1},
		{regionNumber: 1, regionOffset: math.MaxInt64, length: 1},
		{regionNumber: 1, regionOffset: 1, length: math.MaxInt64},
		{regionNumber: 1, regionOffset: math.MaxUint64, length: 1},
		{regionNumber: 1, length: math.MaxUint64},
		{regionNumber: 2, length: 1},
		{regionNumber: math.MaxUint32, length: 1},
		{address: math.MaxUint64, length: 2},
		{length: 5},
	} {
		_, owner, reader := connected(t, OnHeap(), "memory")
		if _, err := owner.Allocate(1 << 20); err != nil {
			t.Fatal(err)
		}
		size := int64(min(d.length, math.MaxInt64))
		if err := reader.CanRead(rank0, d.encode(), max(size, 1<<16)); err == nil {
			t.Errorf("%+v: CanRead agrees", d)
		}
		if n, err := reader.Read(rank0, d.encode(), 0, make([]byte, 1)); err == nil || n != 0 {
			t.Errorf("%+v: Read returns %d, %v", d, n, err)
		}
	}
}

// The reader has mapped the region and continues to read.
func TestRead_FreedRegion_ReturnsError(t *testing.T) {
	for _, c := range []btl.Component{Component(), OnHeap()} {
		_, owner, reader := connected(t, c, "memory")
		mem, err := owner.Allocate(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := owner.Expose(mem, true)
		dst := make([]byte, 1<<20)
		if n, err := reader.Read(rank0, r, 0, dst); n != len(dst) || err != nil {
			t.Fatal(n, err)
		}
		if err := owner.Free(mem); err != nil {
			t.Fatal(err)
		}
		if _, err := reader.Read(rank0, r, 0, dst); err == nil || !strings.Contains(err.Error(), "freed") {
			t.Errorf("a read of freed memory: %v", err)
		}
		if len(reader.mappedRegions) != 0 {
			t.Error("the region is mapped still")
		}
	}
}

// Otherwise unused memory would fill /dev/shm.
func TestFree_RegionStillMapped_ReturnsPages(t *testing.T) {
	const size = 64 << 20
	needs.SharedMemory(t, size+1<<20)
	_, owner, reader := connected(t, Component(), "memory")
	mem, err := owner.Allocate(size)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := owner.Expose(mem, true)
	if err := reader.CanRead(rank0, r, size); err != nil {
		t.Fatal(err)
	}
	// A second descriptor observes the memory of the file.
	path := filepath.Join(owner.dir, regionName(owner.name(), 1))
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	taken := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	if before := taken(); before < size {
		t.Fatalf("only %d of %d bytes are reserved", before, size)
	}
	if err := owner.Free(mem); err != nil {
		t.Fatal(err)
	}
	if after := taken(); after > osPage {
		t.Errorf("%d bytes are still taken", after)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the name is still there: %v", err)
	}
}

// A peer truncates its file while it is mapped here, where an access faults.
func TestRead_RegionTruncated_ReturnsError(t *testing.T) {
	for _, left := range []int64{0, shmlayout.RegionHeader, shmlayout.RegionHeader + 1<<19} {
		w, owner, reader := connected(t, Component(), "memory")
		mem, err := owner.Allocate(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := owner.Expose(mem, true)
		if err := reader.CanRead(rank0, r, 1<<20); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(owner.dir, regionName(owner.name(), 1))
		if err := os.Truncate(path, left); err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 1<<20)
		if n, err := reader.Read(rank0, r, 0, dst); err == nil || n != 0 {
			t.Errorf("%d bytes are left: read %d, %v", left, n, err)
		}
		if err := reader.CanRead(rank0, r, 1<<20); !errors.Is(err, framework.ErrTransport) {
			t.Errorf("%d bytes are left: forgotten: %v", left, err)
		}
		// The owner, in this same process, accesses it in Close.
		if err := os.Truncate(path, 1<<20+shmlayout.RegionHeader); err != nil {
			t.Fatal(err)
		}
		w.close(t)
	}
}

// The test reads from more regions than are kept mapped, and then from the first ones again.
func TestMappedRegions_ManyRegions_AreBounded(t *testing.T) {
	_, owner, reader := connected(t, Component(), "memory")
	var all []btl.Remote
	for k := range maxMapped + 40 {
		mem, err := owner.Allocate(20000)
		if err != nil {
			t.Fatal(err)
		}
		mem[7] = byte(k)
		r, _ := owner.Expose(mem, true)
		all = append(all, r)
	}
	for range 2 {
		for k, r := range all {
			var got [1]byte
			if _, err := reader.Read(rank0, r, 7, got[:]); err != nil || got[0] != byte(k) {
				t.Fatalf("region %d: %d, %v", k, got[0], err)
			}
			if len(reader.mappedRegions) > maxMapped {
				t.Fatalf("%d regions are mapped", len(reader.mappedRegions))
			}
		}
	}
}

// A sender that withdraws ends its path first. The memory then belongs to its program again. The
// method itself remains enabled.
func TestRead_SenderEndsPath_ReturnsError(t *testing.T) {
	for _, single := range []string{"memory", "cma"} {
		t.Run(single, func(t *testing.T) {
			w, owner, reader := connected(t, Component(), single)
			mem, err := owner.Allocate(1 << 16)
			if err != nil {
				t.Fatal(err)
			}
			r, ok := owner.Expose(mem, true)
			if err := reader.CanRead(rank0, r, 1<<16); !ok || err != nil {
				needs.Missing(t, "the memory of other processes can't be read: %v", err)
			}
			read := func() error { _, err := reader.Read(rank0, r, 0, make([]byte, 1<<16)); return err }
			if err := read(); err != nil {
				t.Error(err)
			}
			owner.endpoints[incarnation(1)].Close()
			if err := read(); !errors.Is(err, errPathEnded) {
				t.Errorf("Read after the sender has ended its path: %v", err)
			}
			w.poll(t, func() bool { return reader.inboundPaths[rank0] == nil })
			if err := read(); err == nil {
				t.Error("Read without a path succeeded")
			}
			w.send(t, w.connect(t, 0, 1), []byte("x"))
			w.poll(t, func() bool { return w.procs[1].frames == 2 })
			if err := read(); err != nil {
				t.Errorf("by the next path: %v", err)
			}
		})
	}
}

// The memory of a dead peer stays allocated while it is mapped.
func TestMappedRegions_LastPathEnds_AreUnmapped(t *testing.T) {
	w, owner, reader := connected(t, Component(), "memory")
	mem, err := owner.Allocate(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := owner.Expose(mem, true)
	if err := reader.CanRead(rank0, r, 1<<20); err != nil {
		t.Fatal(err)
	}
	owner.endpoints[incarnation(1)].Close()
	w.poll(t, func() bool { return len(reader.inboundPaths) == 0 })
	if len(reader.mappedRegions) != 0 {
		t.Error("the region is mapped although no path is left")
	}
	if err := reader.CanRead(rank0, r, 1<<20); err == nil {
		t.Error("Read from a peer without a path succeeded")
	}
}

func TestAllocate_FileSystemTooSmall_ReturnsError(t *testing.T) {
	_, owner, _ := connected(t, Component(), "auto")
	var st unix.Statfs_t
	if err := unix.Statfs(owner.dir, &st); err != nil {
		t.Fatal(err)
	}
	_, err := owner.Allocate(int(int64(st.Blocks)*st.Bsize + 1))
	var space *segment.SpaceError
	if !errors.As(err, &space) || !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), owner.dir) {
		t.Errorf("got %v", err)
	}
	if mem, err := owner.Allocate(1); err != nil || owner.Free(mem) != nil {
		t.Errorf("afterwards nothing works: %v", err)
	}
}

func TestRead_SteadyState_AllocatesNothing(t *testing.T) {
	for _, single := range []string{"memory", "cma", "off"} {
		w, owner, reader := connected(t, Component(), single)
		mem, err := owner.Allocate(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 1<<20)
		if n := testing.AllocsPerRun(20, func() {
			r, ok := owner.Expose(mem, true)
			if ok != (single != "off") {
				t.Fatal("exposed: ", ok)
			}
			if err := reader.CanRead(rank0, r, 1<<20); err == nil {
				if _, err := reader.Read(rank0, r, 0, dst); err != nil {
					t.Fatal(err)
				}
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", single, n)
		}
		w.close(t)
	}
}

// FuzzRemote checks that no description makes a read leave the described memory.
func FuzzRemote(f *testing.F) {
	for _, d := range []description{
		{}, {regionNumber: 1, length: 100}, {regionNumber: 1, regionOffset: 1 << 19, length: 1 << 19},
		{regionNumber: 1, regionOffset: math.MaxInt64, length: math.MaxInt64}, {regionNumber: 2, length: 1},
		{address: 1, length: 1 << 40}, {address: math.MaxUint64, length: 1}, {regionNumber: 1, address: 8, length: math.MaxUint64},
	} {
		r := d.encode()
		f.Add(r[:], int64(0), uint16(10))
		f.Add(r[:], int64(-1), uint16(1000))
		f.Add(r[:], int64(math.MaxInt64), uint16(0))
	}
	const size = 1 << 20
	want := bytes.Repeat([]byte("ferry"), size/5+1)[:size]
	f.Fuzz(func(t *testing.T, b []byte, offset int64, n uint16) {
		_, owner, reader := connected(t, OnHeap(), "memory")
		mem, err := owner.Allocate(size)
		if err != nil {
			t.Fatal(err)
		}
		copy(mem, want)
		var r btl.Remote
		copy(r[:], b)
		if reader.CanRead(rank0, r, int64(n)) != nil {
			offset, n = max(offset, 0), max(n, 1) // Read must check for itself.
		}
		dst := make([]byte, int(n)+1)
		got, err := reader.Read(rank0, r, offset, dst[:n])
		if got < 0 || got > int(n) || dst[n] != 0 {
			t.Fatalf("read %d of %d bytes", got, n)
		}
		if err == nil {
			d, err := decodeDescription(r)
			if err != nil || d.regionNumber != 1 || !bytes.Equal(dst[:got], want[int64(d.regionOffset)+offset:][:got]) {
				t.Fatalf("%+v (%v): read memory outside the description", d, err)
			}
		}
	})
}
