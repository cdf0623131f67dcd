package shm

import (
	"errors"
	"os"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// nodeTable is the node table of a job. Each job has one file per node and user, which the first
// process that needs it creates. The creator removes the name when it closes its module. Processes
// that have mapped the table continue to share it, and later ones create another.
//
// The table has a part for each cacheDistance, since the costs of one do not apply to the other.
type nodeTable struct {
	// File of the creator, nil in other processes.
	segment segment.Segment
	mapping *segment.Mapping
	words   shmlayout.NodeTable
	// Whether the table is closed, or another process has truncated the file.
	isLost bool
	parts  [cacheDistances]nodeTablePart
}

// nodeTablePart is a part of a node table.
type nodeTablePart struct {
	table *nodeTable
	first int
}

// cacheDistance is the distance of the processors of two processes.
type cacheDistance uint8

const (
	// sharedCache is one last-level cache for all processors of both.
	sharedCache cacheDistance = iota
	// crossCache is a last-level cache for each process.
	crossCache
	cacheDistances
	// unknownDistance is that of a process that may run in several caches.
	unknownDistance = cacheDistances
)

// distanceTo returns the distance of a peer by the present affinity masks of both main threads, since
// a process may be bound later.
func (m *module) distanceTo(peer framework.Incarnation) cacheDistance {
	s, err := m.peerMemoryOf(peer)
	if err != nil || m.identify(s) != nil {
		return unknownDistance
	}
	own, okOwn := m.cacheDomain(os.Getpid())
	theirs, okTheirs := m.cacheDomain(s.pid)
	return distanceOf(own, okOwn, theirs, okTheirs)
}

// distanceOf compares two results of cpu.CacheDomain.
func distanceOf(own int, okOwn bool, theirs int, okTheirs bool) cacheDistance {
	switch {
	case !okOwn || !okTheirs:
		return unknownDistance
	case own == theirs:
		return sharedCache
	}
	return crossCache
}

// nodeTableName returns the file name of the node table of this process's job.
func (m *module) nodeTableName() string {
	process, _ := m.env.Identity.Proc.Process()
	name := jobPrefix(process.Namespace) + "table"
	if mark := m.env.Identity.NodeLabel(); mark != "" {
		name += "-" + mark
	}
	return name
}

// NodeTable implements btl.Copier.
func (m *module) NodeTable(peer framework.Incarnation, version uint32, words int) btl.NodeTable {
	distance := m.distanceTo(peer)
	if distance == unknownDistance {
		return nil
	}
	if !m.hasOpenedTable {
		m.hasOpenedTable = true
		var err error
		if m.nodeTable, err = m.openNodeTable(version, words); err != nil {
			m.env.Logger.Info("btl shm: this process measures on its own", "error", err)
		}
	}
	if m.nodeTable == nil {
		return nil
	}
	return &m.nodeTable.parts[distance]
}

// openNodeTable creates the table, or opens that of another process. words is the size of a part.
func (m *module) openNodeTable(version uint32, words int) (*nodeTable, error) {
	path := m.path(m.nodeTableName())
	t := &nodeTable{}
	for distance := range cacheDistances {
		t.parts[distance] = nodeTablePart{t, int(distance) * words}
	}
	words *= int(cacheDistances)
	seg, err := m.space.Create(path, (int64(shmlayout.NodeTableSize(words))+osPage-1)/osPage*osPage)
	if err == nil {
		t.segment = seg
	} else if errors.Is(err, os.ErrExist) {
		if seg, err = m.space.Open(path); err == nil {
			defer seg.Close() // The mapping outlives the descriptor.
		}
	}
	if err != nil {
		return nil, err
	}
	if t.mapping, err = seg.Map(0, shmlayout.NodeTableSize(words)); err == nil {
		err = guarded(func() (err error) {
			t.words, err = shmlayout.AttachNodeTable(t.mapping.Bytes, version, words)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// Load implements btl.NodeTable.
func (p *nodeTablePart) Load(i int) (word uint64) {
	p.table.access(func() error { word = p.table.words.Word(p.first + i).Load(); return nil })
	return word
}

// Store implements btl.NodeTable.
func (p *nodeTablePart) Store(i int, word uint64) {
	p.table.access(func() error { p.table.words.Word(p.first + i).Store(word); return nil })
}

// access calls f, which accesses the table, unless an earlier access has failed.
func (t *nodeTable) access(f func() error) {
	if !t.isLost && guarded(f) != nil {
		t.isLost = true
	}
}

// close removes the file of the creator, and unmaps the table.
func (t *nodeTable) close() (err error) {
	if t == nil {
		return nil
	}
	t.isLost = true
	if t.mapping != nil {
		err = t.mapping.Close()
	}
	if t.segment != nil {
		err = errors.Join(err, t.segment.Close())
	}
	return err
}
