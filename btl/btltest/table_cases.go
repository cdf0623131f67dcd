package btltest

import (
	"sync"

	"github.com/ferrympi/ferry/btl"
)

// nodeTableShared stores words in one process and loads them in the others. A process of another
// version has no access.
func (w *world) nodeTableShared() {
	const version, words, stores = 1, 100, 1000
	tables := make([]btl.NodeTable, len(w.nodes))
	for i, n := range w.nodes {
		copier := ability[btl.RMA](w, n.module).Copier()
		if copier == nil {
			w.Skipf("only the receiver copies")
		}
		n.locked(func() { tables[i] = copier.NodeTable(version+uint32(i/2), words) })
		if tables[i] == nil && i < 2 {
			w.Skipf("process %d has no node table", i)
		}
	}
	if tables[2] != nil {
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
	for i, n := range w.nodes[:2] {
		for word := range 2 {
			if got := tables[i].Load(word); got != stores {
				w.Errorf("rank %d loads %d from word %d, want %d", n.rank, got, word, stores)
			}
		}
	}
}
