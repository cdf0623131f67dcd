package shm

import (
	"errors"
	"os"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/internal/shmlayout"
)

// nodeTable is the node table of a job. Each job has one file per node and user, which the first
// process that needs it creates. The creator removes the name when it closes its module. Processes
// that have mapped the table continue to share it, and later ones create another.
type nodeTable struct {
	// File of the creator, nil in other processes.
	segment segment.Segment
	mapping *segment.Mapping
	words   shmlayout.NodeTable
	// Whether the table is closed, or another process has truncated the file.
	isLost bool
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
func (m *module) NodeTable(version uint32, words int) btl.NodeTable {
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
	return m.nodeTable
}

// openNodeTable creates the table, or opens that of another process.
func (m *module) openNodeTable(version uint32, words int) (*nodeTable, error) {
	path := m.path(m.nodeTableName())
	t := &nodeTable{}
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
func (t *nodeTable) Load(i int) (word uint64) {
	t.access(func() error { word = t.words.Word(i).Load(); return nil })
	return word
}

// Store implements btl.NodeTable.
func (t *nodeTable) Store(i int, word uint64) {
	t.access(func() error { t.words.Word(i).Store(word); return nil })
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
