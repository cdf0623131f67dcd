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

// The memory of rings. A ring has the size that was configured. Where the file system is too
// small for one between each two ranks, or has no room for this one, a ring is smaller. Where it
// has no room for the least one, the ring lies in a second file of its owner, in the fallback
// directory.

// area is a file of this process in which it gives senders memory for rings.
type area struct {
	segment segment.Segment
	size    int64           // of the segment
	free    map[int][]int64 // offsets of memory that is free again, by its size
}

func newArea(seg segment.Segment, size int64) *area {
	return &area{segment: seg, size: size, free: map[int][]int64{}}
}

// ringMemory is the memory of one ring.
type ringMemory struct {
	area   *area
	offset int64
	size   int // bytes of cells
	cells  *segment.Mapping
	how    shmlayout.RingFlags
}

// giveBack makes the memory free for another ring. Nobody maps it any more.
func (r ringMemory) giveBack() { r.area.free[r.size] = append(r.area.free[r.size], r.offset) }

// take returns zeroed memory for the cells of a ring, mapped by this process first, so that
// it lies near to it. New memory of a segment is zero.
func (a *area) take(bytes int) (r ringMemory, err error) {
	r = ringMemory{area: a, size: bytes}
	free := a.free[bytes]
	used := len(free) > 0
	if used {
		r.offset, a.free[bytes] = free[len(free)-1], free[:len(free)-1]
	} else {
		size := a.size + pages(int64(bytes))
		if err := a.segment.Grow(size); err != nil {
			return r, err
		}
		r.offset, a.size = a.size, size
	}
	if r.cells, err = a.segment.Map(r.offset, bytes); err != nil {
		r.giveBack()
		return r, err
	}
	r.cells.Populate()
	if used {
		clear(r.cells.Bytes)
	}
	return r, nil
}

// smallestRing is what is made of a ring that finds no room, in bytes: the unit
// in which a segment grows.
const smallestRing = segment.PageSize

// takeRing takes memory for a ring of that many bytes, or for the least.
func (a *area) takeRing(bytes int) (ringMemory, error) {
	r, err := a.take(bytes)
	if short(err) && bytes > smallestRing {
		if r, err = a.take(smallestRing); err == nil {
			r.how = shmlayout.Shrunk
		}
	}
	return r, err
}

// fit returns what rings of that many bytes are to be cut to, so that the file system of dir
// has room for one between each two ranks: the first ones would take it all otherwise.
func fit(bytes, ranks int, dir string) int {
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

// ringBytes returns the bytes of the next ring, which follow the number of processes that share
// the node now, and whether dir is too small for larger ones.
func (m *module) ringBytes() (bytes int, isCut bool) {
	asked, procs := int(m.env.Params.(*params).RingSize), m.env.Engine.NodeProcs()
	bytes = ringSize(asked, procs, cpu.CoreCache())
	if _, files := m.space.(segment.Files); !files || asked != 0 {
		return bytes, false
	}
	size := fit(bytes, procs, m.dir)
	return size, size < bytes
}

// ringMemory finds memory for a ring.
func (m *module) ringMemory() (ringMemory, error) {
	bytes, isCut := m.ringBytes()
	r, full := m.near.takeRing(bytes)
	if isCut {
		r.how |= shmlayout.Shrunk
	}
	if !short(full) || m.fallback == "" || strings.HasPrefix(m.name(), fallbackName) {
		return r, full
	}
	err := m.openOverflow(full)
	if err == nil {
		r, err = m.overflow.takeRing(bytes)
	}
	if err != nil {
		return r, fmt.Errorf("%w; btl.shm.fallback_dir has no room either: %w", full, err)
	}
	r.how |= shmlayout.Overflow
	return r, nil
}

func (m *module) openOverflow(why error) error {
	if m.overflow != nil {
		return nil
	}
	path := m.overflowPath(m.name())
	seg, err := m.space.Create(path, segment.PageSize)
	if err == nil {
		m.overflow = newArea(seg, 0)
		m.scarce("btl shm: slower, because a file takes the place of shared memory", path, why)
	}
	return err
}

// short reports whether a file system has no room.
func short(err error) bool {
	_, is := errors.AsType[*segment.SpaceError](err)
	return is
}

// scarce logs what is done because memory is short. That is so for all processes of the node,
// and one line is enough.
func (m *module) scarce(what, file string, reason error) {
	level := slog.LevelInfo
	if m.env.Identity.Leads() {
		level = slog.LevelWarn
	}
	m.env.Logger.Log(context.Background(), level, what, "file", file, "reason", reason)
}

// overflowPath is where the file with the rings lies that found no room beside the inbox of
// that name: where the inbox itself would, if it had found none.
func (m *module) overflowPath(inboxName string) string {
	if !strings.HasPrefix(inboxName, fallbackName) {
		inboxName = fallbackName + strings.TrimPrefix(inboxName, usualName)
	}
	return filepath.Join(m.fallback, inboxName)
}

// Describe implements btl.Describer.
func (m *module) Describe(peer framework.Peer) (d btl.Description) {
	where := m.path(string(peer.Blob))
	e := m.out[peer.Life]
	if e != nil && e.how&shmlayout.Overflow != 0 {
		where = m.overflowPath(e.far.name)
	}
	d.Device = filepath.Dir(where)
	if d.Device == m.fallback && m.fallback != m.dir {
		d.Notes = append(d.Notes, fmt.Sprintf("%s has no room: a file in %s takes its place (btl.shm.fallback_dir)", m.dir, m.fallback))
	}
	if e != nil && e.cells != nil && e.how&shmlayout.Shrunk != 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%s is short of room: a ring of %v", m.dir, framework.Size(len(e.cells.Bytes))))
	}
	return d
}

// Where the size of rings is not given: two ranks stream 1 MiB messages a fifth
// faster through a ring of 1 MiB than through one of 128 KiB, and windows of small
// ones fit in whole; more ranks share what memory a process should spend.
const (
	ringShare   = 4 << 20 // bytes of all rings into a process
	largestRing = 1 << 20

	// A line of a ring of twice that size has left a core's own cache when it is used again
	// (btl.WideReserver). Two ranks have as much, up to mostWide.
	wideCaches = 2
	mostWide   = 4 << 20
)

// ringSize returns the bytes of a ring: a power of two, at least what is asked for. cache is
// what a core has for itself.
func ringSize(asked, ranks, cache int) int {
	if asked == 0 {
		largest := min(max(wideCaches*cache, largestRing), mostWide)
		share := max(ringShare, 2*largest)
		asked = min(max(share/max(ranks, 1), smallestRing), largest)
		asked = 1 << (bits.Len(uint(asked)) - 1) // the share is a limit: round down
	}
	size := ring.MinCells * ring.CellSize
	for size < asked {
		size *= 2
	}
	return size
}

// pages rounds up to what can be mapped by itself.
func pages(n int64) int64 { return (n + segment.PageSize - 1) / segment.PageSize * segment.PageSize }
