package btltest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// memoryReader is a module whose peers read what it has allocated.
type memoryReader struct{ *memory }

// region is memory that a module has allocated.
type region struct {
	owner *memory
	bytes []byte
}

// largestRegion bounds what one test can ask for.
const largestRegion = 1 << 30

// Allocate implements btl.RemoteReader.
func (m memoryReader) Allocate(bytes int) ([]byte, error) {
	if bytes < 1 || bytes > largestRegion {
		return nil, fmt.Errorf("btl memory: allocate %d bytes: at least 1, at most %d", bytes, largestRegion)
	}
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	m.f.last++
	m.f.regions[m.f.last] = region{m.memory, make([]byte, bytes)}
	return m.f.regions[m.f.last].bytes, nil
}

// find returns the allocation that buf ends, or nil. The end of the memory tells:
// a part of a slice has the rest of it as its capacity.
func (m memoryReader) find(buf []byte) (number uint64, mem []byte) {
	if len(buf) == 0 {
		return 0, nil
	}
	last := &buf[:cap(buf)][cap(buf)-1]
	for number, r := range m.f.regions {
		if r.owner == m.memory && last == &r.bytes[len(r.bytes)-1] {
			return number, r.bytes
		}
	}
	return 0, nil
}

// Free implements btl.RemoteReader.
func (m memoryReader) Free(buf []byte) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	number, mem := m.find(buf)
	if mem == nil || len(buf) != len(mem) {
		return errors.New("btl memory: Allocate did not return this, or it is free already")
	}
	delete(m.f.regions, number)
	return nil
}

// Expose implements btl.RemoteReader.
func (m memoryReader) Expose(buf []byte, _ bool) (r btl.Remote, ok bool) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	number, mem := m.find(buf)
	if mem == nil {
		return r, false
	}
	binary.LittleEndian.PutUint64(r[0:], number)
	binary.LittleEndian.PutUint64(r[8:], uint64(len(mem)-cap(buf)))
	binary.LittleEndian.PutUint64(r[16:], uint64(len(buf)))
	return r, true
}

// part returns n bytes at an offset of what a peer describes. f.mu held.
func (m memoryReader) part(peer framework.Life, r btl.Remote, offset, n int64) ([]byte, error) {
	mem := m.f.regions[binary.LittleEndian.Uint64(r[0:])]
	start, length := binary.LittleEndian.Uint64(r[8:]), binary.LittleEndian.Uint64(r[16:])
	size := uint64(len(mem.bytes))
	if mem.owner == nil || mem.owner.env.Self.Nonce != peer.Nonce || length == 0 || start > size || length > size-start {
		return nil, errors.New("the peer describes no memory that can be read")
	}
	described := mem.bytes[start : start+length]
	if n < 0 || offset < 0 || offset > int64(length) || n > int64(length)-offset {
		return nil, fmt.Errorf("%d bytes at %d are not among the %d that the peer describes", n, offset, length)
	}
	return described[offset : offset+n], nil
}

// CanRead implements btl.RemoteReader.
func (m memoryReader) CanRead(peer framework.Life, r btl.Remote, size int64) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	_, err := m.part(peer, r, 0, size)
	return err
}

// Read implements btl.RemoteReader.
func (m memoryReader) Read(peer framework.Life, r btl.Remote, offset int64, dst []byte) (int, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	src, err := m.part(peer, r, offset, int64(len(dst)))
	return copy(dst[:m.f.step(len(dst))], src), err
}

// Notes implements btl.RemoteReader.
func (m memoryReader) Notes(framework.Life) []string {
	return []string{"one copy from allocated memory: on"}
}
