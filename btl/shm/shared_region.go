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

// Shared regions (btl.Sharer) are regions that peers may also write to. docs/wire.md has the
// layout.

// NewArea implements btl.Sharer.
func (m *module) NewArea(size int) (*btl.Area, error) {
	seg, mapping, view, number, err := m.newRegion(size)
	if err != nil {
		return nil, fmt.Errorf("btl shm: area: %w", err)
	}
	hide := func() { seg.Close() } // Closing twice is a no-op.
	return &btl.Area{Number: number, Bytes: view.Bytes(), Hide: hide, Close: func() { hide(); mapping.Close() }}, nil
}

// newRegion creates a region and reserves all of its memory, so that a shortage is an error here
// and not a fault at the first access.
func (m *module) newRegion(bytes int) (seg segment.Segment, mapping *segment.Mapping, view shmlayout.Region, number uint32, err error) {
	if bytes < 1 || bytes > math.MaxInt64-shmlayout.RegionHeader-osPage {
		return nil, nil, view, 0, fmt.Errorf("invalid size of %d bytes: want at least 1", bytes)
	}
	m.regions.mu.Lock()
	if m.regions.lastNumber == math.MaxUint32 {
		m.regions.mu.Unlock()
		return nil, nil, view, 0, errors.New("all 2^32 region numbers are used; close the session and open it again")
	}
	m.regions.lastNumber++
	number = m.regions.lastNumber
	m.regions.mu.Unlock()

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
	seg, err := m.openPeerSegment(peer, regionName(string(peer.Blob), number))
	if err != nil {
		return nil, err
	}
	defer seg.Close() // The mapping outlives the descriptor.
	if want := int64(shmlayout.RegionHeader) + int64(size); seg.Size() < want {
		return nil, fmt.Errorf("btl shm: %s has %d bytes, too few for a shared region of %d", seg.Path(), seg.Size(), size)
	}
	mapping, err := seg.Map(0, int(seg.Size()))
	if err != nil {
		return nil, err
	}
	var view shmlayout.Region
	err = guarded(func() (err error) { view, err = shmlayout.AttachRegion(mapping.Bytes, peer.Nonce, number); return err })
	if err == nil && len(view.Bytes()) != size {
		err = fmt.Errorf("shared region of %d bytes, want %d", len(view.Bytes()), size)
	}
	if err != nil {
		mapping.Close()
		return nil, fmt.Errorf("btl shm: %s: %w", seg.Path(), err)
	}
	return &btl.Area{Number: number, Bytes: view.Bytes(), Hide: func() {}, Close: func() { mapping.Close() }}, nil
}

// openPeerSegment opens the segment called name of a peer.
func (m *module) openPeerSegment(peer framework.Peer, name string) (segment.Segment, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	seg, err := m.space.Open(m.path(name))
	if err != nil {
		return nil, fmt.Errorf("btl shm: %v: %w", peer.Proc, err)
	}
	return seg, nil
}

// sharedBell is the mapping of a peer's inbox for its doorbell, shared by all users in this
// process. The engine's lock guards it.
type sharedBell struct {
	mapping *segment.Mapping
	bell    progress.RemoteBell
	refs    int
}

// BellOf implements btl.Sharer.
func (m *module) BellOf(peer framework.Peer) (progress.RemoteBell, func(), error) {
	e := m.env.Engine
	e.Lock()
	defer e.Unlock()
	b := m.peerBells[peer.Incarnation]
	if b == nil {
		far, err := m.attachInbox(string(peer.Blob), peer.Nonce)
		if err != nil {
			return progress.RemoteBell{}, nil, fmt.Errorf("btl shm: %v: %w", peer.Proc, err)
		}
		far.segment.Close() // The mapping outlives the descriptor.
		b = &sharedBell{mapping: far.mapping, bell: progress.BellAt(far.inbox.Bell())}
		m.peerBells[peer.Incarnation] = b
	}
	b.refs++
	return b.bell, func() { m.releaseSharedBell(peer.Incarnation, b) }, nil
}

// releaseSharedBell drops the reference of one user and unmaps the bell with the last one.
func (m *module) releaseSharedBell(peer framework.Incarnation, b *sharedBell) {
	e := m.env.Engine
	e.Lock()
	defer e.Unlock()
	if b.refs--; b.refs == 0 {
		delete(m.peerBells, peer)
		b.mapping.Close()
	}
}
