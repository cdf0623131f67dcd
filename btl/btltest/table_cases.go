package btltest

import (
	"sync"

	"github.com/ferrympi/ferry/btl"
)

// nodeTableShared stores words in one process and loads them in another one. A process of another
// version has no access.
func (w *world) nodeTableShared() {
	const version, words, stores = 1, 100, 1000
	var copiers []btl.Copier
	for _, n := range w.nodes {
		copiers = append(copiers, ability[btl.RMA](w, n.module).Copier())
		if copiers[n.rank] == nil {
			w.Skipf("only the receiver copies")
		}
	}
	a, b, other := w.nodes[0], w.nodes[1], w.nodes[2]
	a.greet(b)
	other.greet(b)
	table := func(n, peer *node, version uint32) (t btl.NodeTable) {
		n.locked(func() { t = copiers[n.rank].NodeTable(peer.peer.Incarnation, version, words) })
		return t
	}
	tables := []btl.NodeTable{table(a, b, version), table(b, a, version)}
	if tables[0] == nil || tables[1] == nil {
		w.Skipf("the processes have no node table, or processors of unknown distance")
	}
	if table(other, b, version+1) != nil {
		w.Errorf("a process of version %d opened the table of version %d", version+1, version)
	}
	for i := range words {
		if word := tables[1].Load(i); word != 0 {
			w.Fatalf("word %d is %#x at the start", i, word)
		}
	}
	var done sync.WaitGroup
	for writer := range 2 {
		done.Go(func() {
			for k := range uint64(stores) {
				tables[writer].Store(words-1, (k+1)*0x100000001)
				tables[writer].Store(writer, k+1)
			}
		})
	}
	torn := 0
	done.Go(func() {
		for range stores {
			if word := tables[0].Load(words - 1); word>>32 != word&0xffffffff {
				torn++
			}
		}
	})
	done.Wait()
	if torn > 0 {
		w.Errorf("%d loads returned parts of two stores", torn)
	}
	for i, table := range tables {
		for word := range tables {
			if got := table.Load(word); got != stores {
				w.Errorf("process %d loads %d from word %d, want %d", i, got, word, stores)
			}
		}
	}
}
