package btltest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// memoryReader is a module whose peers read its allocated memory.
type memoryReader struct{ *memoryModule }

// region is allocated memory of a module.
type region struct {
	owner *memoryModule
	bytes []byte
}

// largestRegion is the limit of an allocation.
const largestRegion = 1 << 30

// Allocate implements btl.RMA.
func (m memoryReader) Allocate(bytes int) ([]byte, error) {
	if bytes < 1 || bytes > largestRegion {
		return nil, fmt.Errorf("btl memory: allocate %d bytes: want 1 to %d", bytes, largestRegion)
	}
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	m.network.lastRegion++
	m.network.regionsByNumber[m.network.lastRegion] = region{m.memoryModule, make([]byte, bytes)}
	return m.network.regionsByNumber[m.network.lastRegion].bytes, nil
}

// findRegion returns the allocation that contains buf, or nil. It compares the ends of the memory,
// because a part of a slice has the rest of it as its capacity.
func (m memoryReader) findRegion(buf []byte) (number uint64, mem []byte) {
	if len(buf) == 0 {
		return 0, nil
	}
	last := &buf[:cap(buf)][cap(buf)-1]
	for number, r := range m.network.regionsByNumber {
		if r.owner == m.memoryModule && last == &r.bytes[len(r.bytes)-1] {
			return number, r.bytes
		}
	}
	return 0, nil
}

// Free implements btl.RMA.
func (m memoryReader) Free(buf []byte) error {
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	number, mem := m.findRegion(buf)
	if mem == nil || len(buf) != len(mem) {
		return errors.New("btl memory: free: not allocated, or freed before")
	}
	delete(m.network.regionsByNumber, number)
	return nil
}

// Expose implements btl.RMA.
func (m memoryReader) Expose(buf []byte, _ bool) (r btl.Remote, ok bool) {
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	number, mem := m.findRegion(buf)
	if mem == nil {
		return r, false
	}
	binary.LittleEndian.PutUint64(r[0:], number)
	binary.LittleEndian.PutUint64(r[8:], uint64(len(mem)-cap(buf)))
	binary.LittleEndian.PutUint64(r[16:], uint64(len(buf)))
	return r, true
}

// describedBytes returns n bytes at an offset of a peer's description. The network's mu is held.
func (m memoryReader) describedBytes(peer framework.Incarnation, r btl.Remote, offset, n int64) ([]byte, error) {
	mem := m.network.regionsByNumber[binary.LittleEndian.Uint64(r[0:])]
	start, length := binary.LittleEndian.Uint64(r[8:]), binary.LittleEndian.Uint64(r[16:])
	size := uint64(len(mem.bytes))
	if mem.owner == nil || mem.owner.env.Self.Nonce != peer.Nonce || length == 0 || start > size || length > size-start {
		return nil, errors.New("the peer's description has no readable memory")
	}
	described := mem.bytes[start : start+length]
	if n < 0 || offset < 0 || offset > int64(length) || n > int64(length)-offset {
		return nil, fmt.Errorf("%d bytes at %d exceed the description of %d bytes", n, offset, length)
	}
	return described[offset : offset+n], nil
}

// CanRead implements btl.RMA.
func (m memoryReader) CanRead(peer framework.Incarnation, r btl.Remote, size int64) error {
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	_, err := m.describedBytes(peer, r, 0, size)
	return err
}

// Read implements btl.RMA.
func (m memoryReader) Read(peer framework.Incarnation, r btl.Remote, offset int64, dst []byte) (int, error) {
	m.network.mu.Lock()
	defer m.network.mu.Unlock()
	src, err := m.describedBytes(peer, r, offset, int64(len(dst)))
	return copy(dst[:m.network.step(len(dst))], src), err
}

// Copier implements btl.RMA. Only the receiver copies.
func (m memoryReader) Copier() btl.Copier { return nil }

// Notes implements btl.RMA.
func (m memoryReader) Notes(framework.Incarnation) []string {
	return []string{"one copy from allocated memory: on"}
}
