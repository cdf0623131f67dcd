package shm

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/internal/cma"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// description is the content of a btl.Remote. It locates the bytes in a region, in the address
// space of the owner, or in both. docs/wire.md has the layout.
type description struct {
	// 0 if the bytes are in no region.
	regionNumber uint32
	// Address in the owner's memory, 0 if it may not be read there.
	address uint64
	// Offset in the memory of the region.
	regionOffset uint64
	length       uint64
}

func (d description) encode() (r btl.Remote) {
	le := binary.LittleEndian
	le.PutUint32(r[4:], d.regionNumber)
	le.PutUint64(r[8:], d.address)
	le.PutUint64(r[16:], d.regionOffset)
	le.PutUint64(r[24:], d.length)
	return r
}

var errNoReadableMemory = errors.New("the peer's description has no readable memory")

// decodeDescription checks that the ranges do not wrap around and fit into an int64.
func decodeDescription(r btl.Remote) (description, error) {
	le := binary.LittleEndian
	d := description{
		regionNumber: le.Uint32(r[4:]),
		address:      le.Uint64(r[8:]),
		regionOffset: le.Uint64(r[16:]),
		length:       le.Uint64(r[24:]),
	}
	if le.Uint32(r[0:]) != 0 || d.length == 0 || d.regionNumber == 0 && d.address == 0 {
		return d, errNoReadableMemory
	}
	if d.length > math.MaxInt64 || d.address > math.MaxUint64-d.length || d.regionOffset > math.MaxInt64-d.length {
		return d, fmt.Errorf("invalid description of %d bytes at %#x, offset %d", d.length, d.address, d.regionOffset)
	}
	return d, nil
}

// regionSet is the set of regions that this process has allocated for its peers. It has a lock of its
// own, because an allocation takes long and runs without the engine's lock.
type regionSet struct {
	mu sync.Mutex
	// Sorted by address. Every change replaces the list.
	byAddress  atomic.Pointer[[]*region]
	lastNumber uint32
}

// region is one allocation, which has a segment of its own.
type region struct {
	number  uint32
	base    uint64
	view    shmlayout.Region
	mapping *segment.Mapping
	segment segment.Segment
}

// regionName returns the file name of a region of the process with that inbox. The names have a
// common prefix, so that RemoveStale also removes the regions of a killed process.
func regionName(inboxName string, number uint32) string {
	return fmt.Sprintf("%s-m%x", inboxName, number)
}

// osPage is the smallest page size of the supported machines.
const osPage = 4096

// Allocate implements btl.RMA. Each allocation is a segment.
func (m *module) Allocate(bytes int) ([]byte, error) {
	seg, mapped, view, number, err := m.newRegion(bytes)
	if err != nil {
		return nil, fmt.Errorf("btl shm: allocate: %w", err)
	}
	r := &region{number: number, segment: seg, mapping: mapped, view: view}
	mem := r.view.Bytes()
	r.base = cma.Address(mem)

	m.regions.mu.Lock()
	defer m.regions.mu.Unlock()
	all := m.regions.list()
	i, _ := slices.BinarySearchFunc(all, r.base, compareBase)
	m.regions.replace(slices.Insert(slices.Clone(all), i, r))
	return mem, nil
}

func (s *regionSet) list() []*region {
	if p := s.byAddress.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *regionSet) replace(regions []*region) { s.byAddress.Store(&regions) }

func compareBase(r *region, base uint64) int { return cmp.Compare(r.base, base) }

// Free implements btl.RMA. It returns the memory to the system at once. Peers that still
// map the region retain its header.
func (m *module) Free(mem []byte) error {
	m.regions.mu.Lock()
	all := m.regions.list()
	i, found := slices.BinarySearchFunc(all, cma.Address(mem), compareBase)
	if !found || len(mem) != len(all[i].view.Bytes()) {
		m.regions.mu.Unlock()
		return fmt.Errorf("btl shm: free of %d bytes: not allocated, or freed before", len(mem))
	}
	r := all[i]
	m.regions.replace(slices.Delete(slices.Clone(all), i, i+1))
	m.regions.mu.Unlock()
	return r.free()
}

func (r *region) free() error {
	r.view.Free()
	return errors.Join(r.mapping.Close(), r.segment.Discard(shmlayout.RegionHeader), r.segment.Close())
}

// freeAll frees the remaining regions.
func (s *regionSet) freeAll() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.list() {
		err = errors.Join(err, r.free())
	}
	s.replace(nil)
	return err
}

// findRegion returns the region that contains length bytes at address, or nil.
func (s *regionSet) findRegion(address, length uint64) *region {
	all := s.list()
	i, found := slices.BinarySearchFunc(all, address, compareBase)
	if !found {
		if i--; i < 0 {
			return nil
		}
	}
	r := all[i]
	if size := uint64(len(r.view.Bytes())); address-r.base > size || length > size-(address-r.base) {
		return nil
	}
	return r
}

// Expose implements btl.RMA. It ignores the hint and searches the regions for buf, because
// a user's buffer may be a slice of an allocation. The cost is a binary search.
func (m *module) Expose(buf []byte, _ bool) (btl.Remote, bool) {
	if len(buf) == 0 {
		return btl.Remote{}, false
	}
	address := cma.Address(buf)
	d := description{length: uint64(len(buf))}
	if m.policy.allows(viaMapping) {
		if r := m.regions.findRegion(address, d.length); r != nil {
			d.regionNumber, d.regionOffset = r.number, address-r.base
		}
	}
	if m.policy.allows(viaCMA) {
		d.address = address
	}
	if d.regionNumber == 0 && d.address == 0 {
		return btl.Remote{}, false
	}
	return d.encode(), true
}
