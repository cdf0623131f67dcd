package shmlayout

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// A node table is a segment that all processes of a job on a node read and write. The first word
// identifies the layout of the others. A table of zeros is valid and empty, so that no process has
// to wait for the one that creates it.
const (
	nodeTableMagic = uint64(0x31746e66) << 32 // "fnt1"
	// NodeTableHeader is the size of the header in bytes, one cache line.
	NodeTableHeader = 64
)

// NodeTable is a view of a mapped node table. Values of other processes are unvalidated.
type NodeTable struct{ mem []byte }

// AttachNodeTable returns the table in page-aligned memory. The first process sets the version of
// the contents.
func AttachNodeTable(mem []byte, version uint32, words int) (NodeTable, error) {
	if len(mem) < NodeTableSize(words) {
		return NodeTable{}, fmt.Errorf("node table of %d bytes, want %d", len(mem), NodeTableSize(words))
	}
	header, want := (*atomic.Uint64)(unsafe.Pointer(&mem[0])), nodeTableMagic|uint64(version)
	header.CompareAndSwap(0, want)
	if got := header.Load(); got != want {
		return NodeTable{}, fmt.Errorf("node table begins with %#x, here %#x", got, want)
	}
	return NodeTable{mem[NodeTableHeader:NodeTableSize(words)]}, nil
}

// NodeTableSize returns the size of a table in bytes.
func NodeTableSize(words int) int { return NodeTableHeader + 8*words }

// Word returns word i.
func (t NodeTable) Word(i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&t.mem[8*i : 8*i+8][0]))
}
