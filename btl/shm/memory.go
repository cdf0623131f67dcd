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

// description is what a btl.Remote holds: where the bytes are in a region, or in
// the owner's own memory, or both. docs/wire.md has it byte by byte.
type description struct {
	number  uint32 // of the region; 0: the bytes are in none
	address uint64 // in the owner's memory; 0: it is not offered
	offset  uint64 // in the region's memory
	length  uint64
}

func (d description) encode() (r btl.Remote) {
	le := binary.LittleEndian
	le.PutUint32(r[4:], d.number)
	le.PutUint64(r[8:], d.address)
	le.PutUint64(r[16:], d.offset)
	le.PutUint64(r[24:], d.length)
	return r
}

var errNothing = errors.New("the peer describes no memory that can be read")

// decode checks what can be checked without looking at the peer: numbers don't
// wrap, and fit an int64.
func decode(r btl.Remote) (description, error) {
	le := binary.LittleEndian
	d := description{
		number:  le.Uint32(r[4:]),
		address: le.Uint64(r[8:]),
		offset:  le.Uint64(r[16:]),
		length:  le.Uint64(r[24:]),
	}
	if le.Uint32(r[0:]) != 0 || d.length == 0 || d.number == 0 && d.address == 0 {
		return d, errNothing
	}
	if d.length > math.MaxInt64 || d.address > math.MaxUint64-d.length || d.offset > math.MaxInt64-d.length {
		return d, fmt.Errorf("the peer describes %d bytes at %#x, offset %d: no memory is there", d.length, d.address, d.offset)
	}
	return d, nil
}

// memory is what this process has allocated for its peers to read. Its own lock,
// because allocating takes long and is done without the engine's.
type memory struct {
	mu      sync.Mutex
	regions atomic.Pointer[[]*region] // ascending by address; each change makes a new list
	last    uint32                    // number of the latest region
}

// region is one allocation: a segment of its own.
type region struct {
	number  uint32
	base    uint64 // address of the memory
	view    shmlayout.Region
	mapping *segment.Mapping
	segment segment.Segment
}

// regionName is the file name of a region of the process with that inbox. It
// begins as the inbox's does, so that what a killed process leaves is removed.
func regionName(inboxName string, number uint32) string {
	return fmt.Sprintf("%s-m%x", inboxName, number)
}

// osPage is the smallest unit of memory of the machines that ferry runs on.
const osPage = 4096

// Allocate implements btl.RemoteReader: a segment per allocation.
func (m *module) Allocate(bytes int) ([]byte, error) {
	seg, mapped, view, number, err := m.newRegion(bytes)
	if err != nil {
		return nil, fmt.Errorf("btl shm: allocate: %w", err)
	}
	r := &region{number: number, segment: seg, mapping: mapped, view: view}
	mem := r.view.Bytes()
	r.base = cma.Address(mem)

	m.memory.mu.Lock()
	defer m.memory.mu.Unlock()
	all := m.memory.all()
	i, _ := slices.BinarySearchFunc(all, r.base, byBase)
	m.memory.set(slices.Insert(slices.Clone(all), i, r))
	return mem, nil
}

func (s *memory) all() []*region {
	if p := s.regions.Load(); p != nil {
		return *p
	}
	return nil
}

func (s *memory) set(regions []*region) { s.regions.Store(&regions) }

func byBase(r *region, base uint64) int { return cmp.Compare(r.base, base) }

// Free implements btl.RemoteReader. Readers that still map the region keep its
// header; the memory goes back to the system now.
func (m *module) Free(mem []byte) error {
	m.memory.mu.Lock()
	all := m.memory.all()
	i, found := slices.BinarySearchFunc(all, cma.Address(mem), byBase)
	if !found || len(mem) != len(all[i].view.Bytes()) {
		m.memory.mu.Unlock()
		return fmt.Errorf("btl shm: free of %d bytes that Allocate did not return, or that are free already", len(mem))
	}
	r := all[i]
	m.memory.set(slices.Delete(slices.Clone(all), i, i+1))
	m.memory.mu.Unlock()
	return r.free()
}

func (r *region) free() error {
	r.view.Free()
	return errors.Join(r.mapping.Close(), r.segment.Discard(shmlayout.RegionHeader), r.segment.Close())
}

// freeAll frees what is left.
func (s *memory) freeAll() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.all() {
		err = errors.Join(err, r.free())
	}
	s.set(nil)
	return err
}

// find returns the region that holds the length bytes at address, or nil.
func (s *memory) find(address, length uint64) *region {
	all := s.all()
	i, found := slices.BinarySearchFunc(all, address, byBase)
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

// Expose implements btl.RemoteReader. Whether buf is allocated memory it finds
// out for itself: a slice of it may have come through the user's hands as any
// other does. Cost: a binary search.
func (m *module) Expose(buf []byte, _ bool) (btl.Remote, bool) {
	if len(buf) == 0 {
		return btl.Remote{}, false
	}
	address := cma.Address(buf)
	d := description{length: uint64(len(buf))}
	if m.copy.allows(wayMemory) {
		if r := m.memory.find(address, d.length); r != nil {
			d.number, d.offset = r.number, address-r.base
		}
	}
	if m.copy.allows(wayCMA) {
		d.address = address
	}
	if d.number == 0 && d.address == 0 {
		return btl.Remote{}, false
	}
	return d.encode(), true
}
