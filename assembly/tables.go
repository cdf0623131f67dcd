package assembly

import (
	"iter"
	"runtime"
	"weak"

	"github.com/ferrympi/ferry/assembly/wireup"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/pml"
)

// nodeTable is the members of a communicator that was created in levels. Its memory, which the processes of the node share, has the nonces
// and the cards. It is freed after the last reference, so that all communicators with members from it keep it. It implements pml.Members.
type nodeTable struct {
	// Each reader keeps the nodeTable alive until it has read.
	offHeapTable *wireup.Table
	worldIndex   uint32
	group        framework.Procs
	rankOf       func(framework.Proc) int
	// The memory is the node's.
	isShared bool
}

// newNodeTable returns the members of the table of a group. world is the number of the group's namespace. It takes ownership of area, which is
// nil if the bytes of the table are in the garbage-collected heap.
func newNodeTable(t *wireup.Table, world uint32, group framework.Procs, area *btl.Area) *nodeTable {
	n := &nodeTable{offHeapTable: t, worldIndex: world, group: group, rankOf: group.Finder(), isShared: area != nil}
	if area != nil {
		runtime.AddCleanup(n, func(unmap func()) { unmap() }, area.Close)
	}
	return n
}

// Len implements pml.Members.
func (n *nodeTable) Len() int { return n.group.Len() }

// Member implements pml.Members.
func (n *nodeTable) Member(rank int) pml.Member {
	defer runtime.KeepAlive(n)
	return pml.Member{Incarnation: framework.Incarnation{ID: framework.MakeProcID(n.worldIndex, n.group.At(rank).Rank), Nonce: n.offHeapTable.Nonce(rank)}}
}

// Rank implements pml.Members.
func (n *nodeTable) Rank(m pml.Member) int {
	if rank := n.First(m.ID); rank >= 0 && n.Member(rank) == m {
		return rank
	}
	return -1
}

// First implements pml.Members.
func (n *nodeTable) First(id framework.ProcID) int {
	if id.World() != n.worldIndex {
		return -1
	}
	return n.rankOf(framework.Proc{Namespace: n.group.At(0).Namespace, Rank: id.Rank()})
}

// find returns the incarnation with a nonce.
func (n *nodeTable) find(nonce uint64) (incarnation framework.Incarnation, ok bool) {
	defer runtime.KeepAlive(n)
	rank := n.offHeapTable.Find(nonce)
	if rank < 0 {
		return framework.Incarnation{}, false
	}
	return n.Member(rank).Incarnation, true
}

// record returns the record of a rank, with the card appended to card. A record that has become invalid has no card.
func (n *nodeTable) record(rank int, card []byte) wireup.Record {
	defer runtime.KeepAlive(n)
	r, err := n.offHeapTable.Record(rank, card)
	if err != nil {
		return wireup.Record{Nonce: n.offHeapTable.Nonce(rank)}
	}
	return r
}

// maxBytesSinceGC is the number of bytes of shared tables after which the garbage collector is due. It does not count this memory itself, and
// does not run at intervals with GOGC=off.
const maxBytesSinceGC = 64 << 20

// nodeTables are the tables in use.
type nodeTables struct {
	// The newest one last.
	weakTables []weak.Pointer[nodeTable]
	// Of shared tables, since the garbage collector was due.
	bytesSinceGC int
}

// add adds a table, and removes those that are no longer in use. It reports whether the garbage collector is due.
func (s *nodeTables) add(n *nodeTable) (isDue bool) {
	kept := s.weakTables[:0]
	for _, p := range s.weakTables {
		if p.Value() != nil {
			kept = append(kept, p)
		}
	}
	s.weakTables = append(kept, weak.Make(n))
	if n.isShared {
		s.bytesSinceGC += len(n.offHeapTable.Bytes())
	}
	if isDue = s.bytesSinceGC > maxBytesSinceGC; isDue {
		s.bytesSinceGC = 0
	}
	return isDue
}

// all returns the tables in use, the newest one first.
func (s nodeTables) all() iter.Seq[*nodeTable] {
	return func(yield func(*nodeTable) bool) {
		for i := len(s.weakTables) - 1; i >= 0; i-- {
			if n := s.weakTables[i].Value(); n != nil && !yield(n) {
				return
			}
		}
	}
}

// of returns the newest table with a process, and its rank there, or nil.
func (s nodeTables) of(id framework.ProcID) (n *nodeTable, rank int) {
	for n := range s.all() {
		if rank := n.First(id); rank >= 0 {
			return n, rank
		}
	}
	return nil, -1
}
