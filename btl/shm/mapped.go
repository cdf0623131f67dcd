package shm

import (
	"errors"
	"fmt"

	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/cpu"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// maxMapped bounds the peers' regions that are mapped here at a time. A process
// may have 65530 mappings in all (vm.max_map_count); mapping one again costs a few
// system calls and its page faults.
const maxMapped = 256

// mapped is a peer's region, mapped here. Nothing refers to its memory between
// calls of Read, so that it can be unmapped at any time under the engine's lock.
type mapped struct {
	view    shmlayout.Region
	mapping *segment.Mapping
	used    uint64 // when, by m.clock
}

type mappedKey struct {
	peer   framework.Life
	number uint32
}

// readMemory copies out of a peer's region.
func (m *module) readMemory(s *source, d description, offset int64, dst []byte) (int, error) {
	src, err := m.region(s, d)
	if err != nil {
		return 0, err
	}
	n := 0
	if err := guarded(func() error { n = cpu.CopyOut(dst, src[offset:]); return nil }); err != nil {
		m.unmap(mappedKey{s.peer, d.number})
		return 0, m.off(s, wayMemory, err)
	}
	return n, nil
}

// region returns the memory that a peer describes, mapped here, or remembers that
// this peer's regions can't be read.
func (m *module) region(s *source, d description) ([]byte, error) {
	var mem []byte
	key := mappedKey{s.peer, d.number}
	if err := guarded(func() (err error) { mem, err = m.attachRegion(s, key); return err }); err != nil {
		m.unmap(key)
		return nil, m.off(s, wayMemory, err)
	}
	if d.offset > uint64(len(mem)) || d.length > uint64(len(mem))-d.offset {
		return nil, m.off(s, wayMemory, fmt.Errorf("the peer describes %d bytes at %d in a region of %d", d.length, d.offset, len(mem)))
	}
	return mem[d.offset : d.offset+d.length], nil
}

// attachRegion finds or maps a region.
func (m *module) attachRegion(s *source, key mappedKey) ([]byte, error) {
	m.clock++
	if r := m.mapped[key]; r != nil {
		if !r.view.IsLive() {
			return nil, errors.New("the peer has freed the memory that it describes")
		}
		r.used = m.clock
		return r.view.Bytes(), nil
	}
	m.makeRoom()
	seg, err := m.space.Open(m.path(regionName(s.name, key.number)))
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
	// Entered first: if the file is cut short at this moment, the guard finds it.
	r := &mapped{mapping: mapping, used: m.clock}
	m.mapped[key] = r
	r.view, err = shmlayout.AttachRegion(mapping.Bytes, s.peer.Nonce, key.number)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", seg.Path(), err)
	}
	return r.view.Bytes(), nil
}

// makeRoom unmaps what peers have freed, and what was used longest ago if there
// is still no room for one more.
func (m *module) makeRoom() {
	var oldest mappedKey
	first := true
	for key, r := range m.mapped {
		live := false
		if err := guarded(func() error { live = r.view.IsLive(); return nil }); err != nil || !live {
			m.unmap(key)
			continue
		}
		if first || r.used < m.mapped[oldest].used {
			oldest, first = key, false
		}
	}
	if len(m.mapped) >= maxMapped {
		m.unmap(oldest)
	}
}

func (m *module) unmap(key mappedKey) {
	if r := m.mapped[key]; r != nil {
		r.mapping.Close()
		delete(m.mapped, key)
	}
}

// unmapPeer unmaps a peer's regions when the last path to or from it has ended: it
// may be dead, and its memory is not free before. They are mapped again if need
// be.
func (m *module) unmapPeer(peer framework.Life) {
	if m.far(peer) != nil {
		return
	}
	if m.asked != nil && m.asked.peer == peer {
		m.asked = nil
	}
	for key := range m.mapped {
		if key.peer == peer {
			m.unmap(key)
		}
	}
}
