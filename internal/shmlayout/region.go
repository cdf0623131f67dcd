package shmlayout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// A region is a segment with memory that peers read: a page of header, then the bytes. Only
// the owner writes.
const (
	regionMagic = uint64(0x316d6d79_72726566) // "ferrymm1"
	// RegionVersion is the version of a region's layout.
	RegionVersion = 1

	// Offsets in the header. The state is atomic, and the owner does not reuse a number.
	regMagic   = 0  // u64
	regVersion = 8  // u32
	regState   = 12 // u32
	regNonce   = 16 // u64
	regNumber  = 24 // u64
	regBytes   = 32 // u64

	// RegionHeader is the size of the header, a page of its own. The owner can free the memory
	// while readers still load the state.
	RegionHeader = 4096
)

// Region is a view of a mapped region.
type Region struct {
	mem   []byte
	bytes int
}

// InitRegion writes the header of a region into zeroed memory of at least RegionHeader+bytes
// bytes.
func InitRegion(mem []byte, nonce uint64, number uint32, bytes int) Region {
	le := binary.LittleEndian
	le.PutUint32(mem[regVersion:], RegionVersion)
	le.PutUint64(mem[regNonce:], nonce)
	le.PutUint64(mem[regNumber:], uint64(number))
	le.PutUint64(mem[regBytes:], uint64(bytes))
	r := Region{mem, bytes}
	r.state().Store(stateOpen)
	(*atomic.Uint64)(unsafe.Pointer(&mem[regMagic])).Store(regionMagic)
	return r
}

// AttachRegion validates the header of a peer's region.
func AttachRegion(mem []byte, nonce uint64, number uint32) (Region, error) {
	if len(mem) < RegionHeader {
		return Region{}, errors.New("segment is shorter than a region's header")
	}
	if (*atomic.Uint64)(unsafe.Pointer(&mem[regMagic])).Load() != regionMagic {
		return Region{}, errors.New("segment is not a ferry memory region")
	}
	le := binary.LittleEndian
	if v := le.Uint32(mem[regVersion:]); v != RegionVersion {
		return Region{}, fmt.Errorf("region layout version %d, here %d", v, RegionVersion)
	}
	if le.Uint64(mem[regNonce:]) != nonce || le.Uint64(mem[regNumber:]) != uint64(number) {
		return Region{}, errors.New("region belongs to another process, or is a different one")
	}
	bytes := le.Uint64(mem[regBytes:])
	if bytes > uint64(len(mem)-RegionHeader) {
		return Region{}, fmt.Errorf("region claims %d bytes in a segment of %d", bytes, len(mem))
	}
	r := Region{mem, int(bytes)}
	if !r.IsLive() {
		return Region{}, errors.New("region was freed")
	}
	return r, nil
}

func (r Region) state() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.mem[regState])) }

// IsLive reports whether the owner has not freed the region. It costs one load.
func (r Region) IsLive() bool { return r.state().Load() == stateOpen }

// Free marks the region as freed.
func (r Region) Free() { r.state().Store(stateClosed) }

// Bytes returns the memory.
func (r Region) Bytes() []byte {
	return r.mem[RegionHeader : RegionHeader+r.bytes : RegionHeader+r.bytes]
}
