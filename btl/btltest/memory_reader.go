package btltest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
)

// memoryReader is a module whose peers read what it has allocated.
type memoryReader struct {
	*memory
	regions map[uint64][]byte // f.mu: by number
	last    uint64
}

var (
	errNothing   = errors.New("the peer describes no memory that can be read")
	errAllocated = errors.New("btl memory: this is not what Allocate has returned, or it is free already")
)

// largestRegion bounds what one test can ask for.
const largestRegion = 1 << 30

// Allocate implements btl.RemoteReader.
func (m *memoryReader) Allocate(bytes int) ([]byte, error) {
	if bytes < 1 || bytes > largestRegion {
		return nil, fmt.Errorf("btl memory: allocate %d bytes: at least 1, at most %d", bytes, largestRegion)
	}
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	if m.regions == nil {
		m.regions = map[uint64][]byte{}
		m.f.readers[m.env.Self.Nonce] = m
	}
	m.last++
	mem := make([]byte, bytes)
	m.regions[m.last] = mem
	return mem, nil
}

// find returns the allocation that buf ends, or nil. The end of the memory tells:
// a part of a slice has the rest of it as its capacity.
func (m *memoryReader) find(buf []byte) (number uint64, region []byte) {
	if cap(buf) == 0 {
		return 0, nil
	}
	last := &buf[:cap(buf)][cap(buf)-1]
	for number, region := range m.regions {
		if last == &region[len(region)-1] {
			return number, region
		}
	}
	return 0, nil
}

// Free implements btl.RemoteReader.
func (m *memoryReader) Free(mem []byte) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	number, region := m.find(mem)
	if len(mem) == 0 || len(mem) != len(region) {
		return errAllocated
	}
	delete(m.regions, number)
	return nil
}

// Expose implements btl.RemoteReader.
func (m *memoryReader) Expose(buf []byte, _ bool) (r btl.Remote, ok bool) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	number, region := m.find(buf)
	if len(buf) == 0 || region == nil {
		return r, false
	}
	le := binary.LittleEndian
	le.PutUint64(r[0:], number)
	le.PutUint64(r[8:], uint64(len(region)-cap(buf)))
	le.PutUint64(r[16:], uint64(len(buf)))
	return r, true
}

// at returns what a peer describes. f.mu held.
func (m *memoryReader) at(peer framework.Life, r btl.Remote) ([]byte, error) {
	le := binary.LittleEndian
	far := m.f.readers[peer.Nonce]
	if far == nil {
		return nil, errNothing
	}
	region := far.regions[le.Uint64(r[0:])]
	offset, length := le.Uint64(r[8:]), le.Uint64(r[16:])
	if length == 0 || offset > uint64(len(region)) || length > uint64(len(region))-offset {
		return nil, errNothing
	}
	return region[offset : offset+length], nil
}

// CanRead implements btl.RemoteReader.
func (m *memoryReader) CanRead(peer framework.Life, r btl.Remote, size int64) error {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	mem, err := m.at(peer, r)
	if err == nil && (size < 0 || size > int64(len(mem))) {
		err = fmt.Errorf("the peer describes %d bytes, and %d are to be read", len(mem), size)
	}
	return err
}

// Read implements btl.RemoteReader.
func (m *memoryReader) Read(peer framework.Life, r btl.Remote, offset int64, dst []byte) (int, error) {
	m.f.mu.Lock()
	defer m.f.mu.Unlock()
	mem, err := m.at(peer, r)
	if err != nil {
		return 0, err
	}
	if offset < 0 || offset > int64(len(mem)) || int64(len(dst)) > int64(len(mem))-offset {
		return 0, fmt.Errorf("%d bytes at %d are not among the %d that the peer describes", len(dst), offset, len(mem))
	}
	if step := m.f.opt.Step; step > 0 {
		dst = dst[:min(len(dst), step)]
	}
	return copy(dst, mem[offset:]), nil
}

// Notes implements btl.RemoteReader.
func (m *memoryReader) Notes(framework.Life) []string {
	return []string{"one copy from allocated memory: on"}
}

// Close implements btl.Module.
func (m *memoryReader) Close() error {
	m.f.mu.Lock()
	delete(m.f.readers, m.env.Self.Nonce)
	m.f.mu.Unlock()
	return m.memory.Close()
}
