package shm

import (
	"errors"
	"fmt"
	"math"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/shmlayout"
	"github.com/ferrympi/ferry/progress"
)

// Areas (btl.Sharer) are regions to which peers write, too: docs/wire.md.

// NewArea implements btl.Sharer.
func (m *module) NewArea(size int) (*btl.Area, error) {
	seg, mapping, view, number, err := m.newRegion(size)
	if err != nil {
		return nil, fmt.Errorf("btl shm: area: %w", err)
	}
	hide := func() { seg.Close() } // again: does nothing
	return &btl.Area{Number: number, Bytes: view.Bytes(), Hide: hide, Close: func() { hide(); mapping.Close() }}, nil
}

// newRegion makes a region, reserved in full, so that a shortfall is an error here and not
// a fault at the first touch.
func (m *module) newRegion(bytes int) (seg segment.Segment, mapping *segment.Mapping, view shmlayout.Region, number uint32, err error) {
	if bytes < 1 || bytes > math.MaxInt64-shmlayout.RegionHeader-osPage {
		return nil, nil, view, 0, fmt.Errorf("%d bytes: want at least 1", bytes)
	}
	m.memory.mu.Lock()
	if m.memory.last == math.MaxUint32 {
		m.memory.mu.Unlock()
		return nil, nil, view, 0, errors.New("all 2^32 numbers of regions were used; close the session and open it again")
	}
	m.memory.last++
	number = m.memory.last
	m.memory.mu.Unlock()

	size := (int64(bytes) + shmlayout.RegionHeader + osPage - 1) / osPage * osPage
	if seg, err = m.space.Create(m.path(regionName(m.name(), number)), size); err != nil {
		return nil, nil, view, 0, err
	}
	if mapping, err = seg.Map(0, int(size)); err != nil {
		return nil, nil, view, 0, errors.Join(err, seg.Close())
	}
	return seg, mapping, shmlayout.InitRegion(mapping.Bytes, m.env.Self.Nonce, number, bytes), number, nil
}

// OpenArea implements btl.Sharer.
func (m *module) OpenArea(peer framework.Peer, number uint32, size int) (*btl.Area, error) {
	seg, err := m.openPeers(peer, regionName(string(peer.Blob), number))
	if err != nil {
		return nil, err
	}
	defer seg.Close() // the mapping stays
	if want := int64(shmlayout.RegionHeader) + int64(size); seg.Size() < want {
		return nil, fmt.Errorf("btl shm: %s has %d bytes, less than an area of %d", seg.Path(), seg.Size(), size)
	}
	mapping, err := seg.Map(0, int(seg.Size()))
	if err != nil {
		return nil, err
	}
	var view shmlayout.Region
	err = guarded(func() (err error) { view, err = shmlayout.AttachRegion(mapping.Bytes, peer.Nonce, number); return err })
	if err == nil && len(view.Bytes()) != size {
		err = fmt.Errorf("an area of %d bytes, not %d", len(view.Bytes()), size)
	}
	if err != nil {
		mapping.Close()
		return nil, fmt.Errorf("btl shm: %s: %w", seg.Path(), err)
	}
	return &btl.Area{Number: number, Bytes: view.Bytes(), Hide: func() {}, Close: func() { mapping.Close() }}, nil
}

// openPeers opens a segment of a peer's, of that name.
func (m *module) openPeers(peer framework.Peer, name string) (segment.Segment, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	seg, err := m.space.Open(m.path(name))
	if err != nil {
		return nil, fmt.Errorf("btl shm: %v: %w", peer.Proc, err)
	}
	return seg, nil
}

// farBell is the mapping of a peer's inbox in which its bell is. Whoever wants to ring
// shares it.
type farBell struct {
	mapping *segment.Mapping
	bell    progress.RemoteBell
	users   int
}

// BellOf implements btl.Sharer.
func (m *module) BellOf(peer framework.Peer) (progress.RemoteBell, func(), error) {
	e := m.env.Engine
	e.Lock()
	defer e.Unlock()
	b := m.bells[peer.Life]
	if b == nil {
		far, err := m.attach(string(peer.Blob), peer.Nonce)
		if err != nil {
			return progress.RemoteBell{}, nil, fmt.Errorf("btl shm: %v: %w", peer.Proc, err)
		}
		far.segment.Close() // the mapping stays
		b = &farBell{mapping: far.mapping, bell: progress.BellAt(far.box.Bell())}
		m.bells[peer.Life] = b
	}
	b.users++
	return b.bell, func() { m.leaveBell(peer.Life, b) }, nil
}

// leaveBell is called once by each user.
func (m *module) leaveBell(peer framework.Life, b *farBell) {
	e := m.env.Engine
	e.Lock()
	defer e.Unlock()
	if b.users--; b.users == 0 {
		delete(m.bells, peer)
		b.mapping.Close()
	}
}
