package shm

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// maxMapped limits the peers' regions that are mapped at a time. A process may have 65530 mappings
// in all (vm.max_map_count). Mapping a region again costs a few system calls and page faults.
const maxMapped = 256

// mappedRegion is a peer's region in this address space. No pointer into it survives a call of Read, so
// the module may unmap it at any time under the engine's lock.
type mappedRegion struct {
	view    shmlayout.Region
	mapping *segment.Mapping
	// Value of singleCopies.useClock at the last use.
	lastUse uint64
}

type regionKey struct {
	peer         framework.Incarnation
	regionNumber uint32
}

// readMemory copies out of a region of a peer.
func (m *module) readMemory(s *peerMemory, d description, offset int64, dst []byte) (int, error) {
	src, err := m.describedBytes(s, d)
	if err != nil {
		return 0, err
	}
	n := 0
	if err := guarded(func() error { n = cpu.CopyOut(dst, src[offset:]); return nil }); err != nil {
		m.unmapRegion(regionKey{s.peer, d.regionNumber})
		return 0, m.disableMethod(s, viaMapping, err)
	}
	return n, nil
}

// describedBytes returns the mapped memory of a description. On an error it disables viaMapping for
// the peer.
func (m *module) describedBytes(s *peerMemory, d description) ([]byte, error) {
	var mem []byte
	key := regionKey{s.peer, d.regionNumber}
	if err := guarded(func() (err error) { mem, err = m.attachRegion(s, key); return err }); err != nil {
		m.unmapRegion(key)
		return nil, m.disableMethod(s, viaMapping, err)
	}
	if d.regionOffset > uint64(len(mem)) || d.length > uint64(len(mem))-d.regionOffset {
		return nil, m.disableMethod(s, viaMapping, fmt.Errorf("description of %d bytes at %d exceeds the region of %d bytes", d.length, d.regionOffset, len(mem)))
	}
	return mem[d.regionOffset : d.regionOffset+d.length], nil
}

// attachRegion returns the memory of a region. It maps the region if necessary.
func (m *module) attachRegion(s *peerMemory, key regionKey) ([]byte, error) {
	m.useClock++
	if r := m.mappedRegions[key]; r != nil {
		if !r.view.IsLive() {
			return nil, errors.New("the peer has freed the memory")
		}
		r.lastUse = m.useClock
		return r.view.Bytes(), nil
	}
	m.evictRegions()
	seg, err := m.space.Open(m.path(regionName(s.name, key.regionNumber)))
	if err != nil {
		return nil, err
	}
	defer seg.Close()
	if seg.Size() < shmlayout.RegionHeader {
		return nil, fmt.Errorf("%s is shorter than a region's header", seg.Path())
	}
	mapping, err := seg.Map(0, int(seg.Size()))
	if err != nil {
		return nil, err
	}
	// Registered before the first access, so that an error path unmaps it even if the access
	// faults.
	r := &mappedRegion{mapping: mapping, lastUse: m.useClock}
	m.mappedRegions[key] = r
	r.view, err = shmlayout.AttachRegion(mapping.Bytes, s.peer.Nonce, key.regionNumber)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", seg.Path(), err)
	}
	return r.view.Bytes(), nil
}

// evictRegions unmaps the regions that peers have freed. If there is still no space for another
// one, it unmaps the least recently used.
func (c *singleCopies) evictRegions() {
	var oldest regionKey
	first := true
	for key, r := range c.mappedRegions {
		live := false
		if err := guarded(func() error { live = r.view.IsLive(); return nil }); err != nil || !live {
			c.unmapRegion(key)
			continue
		}
		if first || r.lastUse < c.mappedRegions[oldest].lastUse {
			oldest, first = key, false
		}
	}
	if len(c.mappedRegions) >= maxMapped {
		c.unmapRegion(oldest)
	}
}

func (c *singleCopies) unmapRegion(key regionKey) {
	if r := c.mappedRegions[key]; r != nil {
		r.mapping.Close()
		delete(c.mappedRegions, key)
	}
}

// unmapPeerRegions unmaps the regions of a peer when the last path to or from it has ended. The
// memory of a dead peer stays allocated while it is mapped. A later read maps a region again.
func (m *module) unmapPeerRegions(peer framework.Incarnation) {
	if m.remoteInboxOf(peer) != nil {
		return
	}
	if m.lastPeerMemory != nil && m.lastPeerMemory.peer == peer {
		m.lastPeerMemory = nil
	}
	for key := range m.mappedRegions {
		if key.peer == peer {
			m.unmapRegion(key)
		}
	}
}
