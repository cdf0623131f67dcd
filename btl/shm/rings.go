package shm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// Rings normally have the configured size. They are smaller if the file system is too small for one
// ring between any two ranks, or has no space for this ring. If it has no space for the smallest
// ring, the ring is in a second file of its owner, in the fallback directory.

// ringFile is a file of this process that has the memory of rings.
type ringFile struct {
	segment segment.Segment
	size    int64
	// Offsets of free memory, by its size.
	freeOffsets map[int][]int64
}

func newRingFile(seg segment.Segment, size int64) *ringFile {
	return &ringFile{segment: seg, size: size, freeOffsets: map[int][]int64{}}
}

// ringMemory is the memory of one ring.
type ringMemory struct {
	file   *ringFile
	offset int64
	// Size of the cells in bytes.
	size  int
	cells *segment.Mapping
	flags shmlayout.RingFlags
}

// release frees the memory for another ring. The caller guarantees that no process maps it.
func (r ringMemory) release() {
	r.file.freeOffsets[r.size] = append(r.file.freeOffsets[r.size], r.offset)
}

// allocate returns zeroed memory for the cells of a ring. This process maps and populates it first,
// so that it is on this process's NUMA node. New memory of a segment is zero.
func (a *ringFile) allocate(bytes int) (r ringMemory, err error) {
	r = ringMemory{file: a, size: bytes}
	free := a.freeOffsets[bytes]
	used := len(free) > 0
	if used {
		r.offset, a.freeOffsets[bytes] = free[len(free)-1], free[:len(free)-1]
	} else {
		size := a.size + roundToPages(int64(bytes))
		if err := a.segment.Grow(size); err != nil {
			return r, err
		}
		r.offset, a.size = a.size, size
	}
	if r.cells, err = a.segment.Map(r.offset, bytes); err != nil {
		r.release()
		return r, err
	}
	r.cells.Populate()
	if used {
		clear(r.cells.Bytes)
	}
	return r, nil
}

// smallestRing is the size in bytes of a ring that does not find enough space. A segment grows in
// this unit.
const smallestRing = segment.PageSize

// allocateRing returns memory for a ring of that many bytes, or for the smallest ring.
func (a *ringFile) allocateRing(bytes int) (ringMemory, error) {
	r, err := a.allocate(bytes)
	if isNoSpace(err) && bytes > smallestRing {
		if r, err = a.allocate(smallestRing); err == nil {
			r.flags = shmlayout.Shrunk
		}
	}
	return r, err
}

// fitRing reduces bytes until the file system of dir has space for one ring between any two ranks.
// Otherwise the first rings would use up the space.
func fitRing(bytes, ranks int, dir string) int {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return bytes
	}
	share := int64(st.Blocks) * st.Bsize / int64(max(ranks*ranks, 1))
	for int64(bytes) > share && bytes > smallestRing {
		bytes /= 2
	}
	return bytes
}

// ringBytes returns the size of the next ring, which follows the current number of processes on the
// node, and whether dir is too small for a larger one.
func (m *module) ringBytes() (bytes int, isCut bool) {
	asked, procs := int(m.env.Params.(*params).RingSize), m.env.Engine.NodeProcs()
	bytes = ringSize(asked, procs, cpu.CoreCache())
	if _, files := m.space.(segment.Files); !files || asked != 0 {
		return bytes, false
	}
	size := fitRing(bytes, procs, m.dir)
	return size, size < bytes
}

// allocateRing returns memory for a ring, in the fallback directory if necessary.
func (m *module) allocateRing() (ringMemory, error) {
	bytes, isCut := m.ringBytes()
	r, full := m.inboxFile.allocateRing(bytes)
	if isCut {
		r.flags |= shmlayout.Shrunk
	}
	if !isNoSpace(full) || m.fallbackDir == "" || strings.HasPrefix(m.name(), fallbackName) {
		return r, full
	}
	err := m.openOverflow(full)
	if err == nil {
		r, err = m.overflowFile.allocateRing(bytes)
	}
	if err != nil {
		return r, fmt.Errorf("%w; btl.shm.fallback_dir has no space either: %w", full, err)
	}
	r.flags |= shmlayout.Overflow
	return r, nil
}

func (m *module) openOverflow(why error) error {
	if m.overflowFile != nil {
		return nil
	}
	path := m.overflowPath(m.name())
	seg, err := m.space.Create(path, segment.PageSize)
	if err == nil {
		m.overflowFile = newRingFile(seg, 0)
		m.logShortage("btl shm: no space in shared memory: using a slower file", path, why)
	}
	return err
}

// isNoSpace reports whether the file system is full.
func isNoSpace(err error) bool {
	_, is := errors.AsType[*segment.SpaceError](err)
	return is
}

// logShortage logs a remedy for a shortage of memory. All processes of the node have the same
// shortage, so only the node leader warns.
func (m *module) logShortage(what, file string, reason error) {
	level := slog.LevelInfo
	if m.env.Identity.IsJobReporter() {
		level = slog.LevelWarn
	}
	m.env.Logger.Log(context.Background(), level, what, "file", file, "reason", reason)
}

// overflowPath returns the path of the file with the rings that have no space beside the inbox
// called inboxName. An inbox without space in dir has the same path.
func (m *module) overflowPath(inboxName string) string {
	if !strings.HasPrefix(inboxName, fallbackName) {
		inboxName = fallbackName + strings.TrimPrefix(inboxName, usualName)
	}
	return filepath.Join(m.fallbackDir, inboxName)
}

// Describe implements btl.Describer.
func (m *module) Describe(peer framework.Peer) (d btl.Description) {
	where := m.path(string(peer.Blob))
	e := m.endpoints[peer.Incarnation]
	if e != nil && e.ringFlags&shmlayout.Overflow != 0 {
		where = m.overflowPath(e.remote.name)
	}
	d.Device = filepath.Dir(where)
	if d.Device == m.fallbackDir && m.fallbackDir != m.dir {
		d.Notes = append(d.Notes, fmt.Sprintf("%s has no space: using a file in %s (btl.shm.fallback_dir)", m.dir, m.fallbackDir))
	}
	if e != nil && e.cells != nil && e.ringFlags&shmlayout.Shrunk != 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%s is short of space: reduced the ring to %v", m.dir, framework.Size(len(e.cells.Bytes))))
	}
	return d
}

// Default ring sizes. Two ranks stream 1 MiB messages a fifth faster through a ring of 1 MiB than
// through one of 128 KiB, and windows of small messages fit into it. More ranks share a fixed
// amount of memory.
const (
	// Bytes of all rings of one inbox.
	totalRingBytes   = 4 << 20
	leastDefaultRing = 1 << 20

	// A ring of this many private caches of a core has evicted a cache line when its cells are
	// reused (btl.FullRing). Two ranks have such a ring, up to largestDefaultRing.
	cachesPerRing      = 2
	largestDefaultRing = 4 << 20
)

// ringSize returns the size of a ring in bytes. It is a power of two and at least asked. cache is
// the size of a core's private cache.
func ringSize(asked, ranks, cache int) int {
	if asked == 0 {
		largest := min(max(cachesPerRing*cache, leastDefaultRing), largestDefaultRing)
		share := max(totalRingBytes, 2*largest)
		asked = min(max(share/max(ranks, 1), smallestRing), largest)
		asked = 1 << (bits.Len(uint(asked)) - 1) // Round down, because the share is a limit.
	}
	size := ring.MinCells * ring.CellSize
	for size < asked {
		size *= 2
	}
	return size
}

// roundToPages rounds up to a multiple of the mapping unit.
func roundToPages(n int64) int64 {
	return (n + segment.PageSize - 1) / segment.PageSize * segment.PageSize
}
