package shm

import (
	"errors"
	"os"
	"testing"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
)

func (w *pair) peer(rank int) framework.Peer {
	return framework.Peer{Incarnation: w.procs[rank].incarnation, Proc: framework.Proc{Namespace: w.namespace, Rank: uint32(rank)}, Blob: w.procs[rank].module.Blob()}
}

func TestSharedRegion_BothWriteThenHide_LeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.Fallback = dir, "" })
	var s [2]btl.Sharer
	for rank, p := range w.procs {
		s[rank] = p.module.(btl.Sharer)
	}
	const size = 100_000
	mine, err := s[0].NewArea(size)
	if err != nil {
		t.Fatal(err)
	}
	for what, of := range map[string]struct {
		number uint32
		size   int
		peer   framework.Peer
	}{
		"another number":      {mine.Number + 1, size, w.peer(0)},
		"another size":        {mine.Number, size - 1, w.peer(0)},
		"too large":           {mine.Number, size * 2, w.peer(0)},
		"another peer":        {mine.Number, size, w.peer(1)},
		"a name":              {mine.Number, size, framework.Peer{Incarnation: w.procs[0].incarnation, Blob: []byte("../" + string(w.peer(0).Blob))}},
		"another incarnation": {mine.Number, size, framework.Peer{Incarnation: incarnation(1), Blob: w.peer(0).Blob}},
	} {
		if a, err := s[1].OpenArea(of.peer, of.number, of.size); err == nil {
			t.Errorf("%s: no error", what)
			a.Close()
		}
	}
	its, err := s[1].OpenArea(w.peer(0), mine.Number, size)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	mine.Hide()
	its.Hide() // A mapping does not hide the file of its owner.
	after, err := os.ReadDir(dir)
	if err != nil || len(before) != 3 || len(after) != 2 {
		t.Errorf("%d files before Hide, %d after: %v", len(before), len(after), err)
	}
	if len(mine.Bytes) != size || len(its.Bytes) != size {
		t.Fatalf("%d and %d bytes", len(mine.Bytes), len(its.Bytes))
	}
	mine.Bytes[size-1] = 5
	its.Bytes[0] = 6
	if its.Bytes[size-1] != 5 || mine.Bytes[0] != 6 {
		t.Error("the mappings differ")
	}
	w.close(t) // Areas outlive the module of their owner.
	if its.Bytes[size-1] != 5 {
		t.Error("the region ended with the module")
	}
	mine.Close()
	its.Close()
}

// The error comes from the call, not from a fault at the first access.
func TestSharedRegion_FileSystemTooSmall_ReturnsError(t *testing.T) {
	dir := needs.SmallTmpfs(t, 512<<10)
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.Fallback = dir, "" })
	_, err := w.procs[0].module.(btl.Sharer).NewArea(1 << 20)
	var space *segment.SpaceError
	if !errors.As(err, &space) {
		t.Errorf("%v", err)
	}
	w.close(t)
}

func TestBellOf_TwoUsers_MappedOnce(t *testing.T) {
	w := newPair(t, nil)
	m := w.procs[1].module.(*module)
	var all []func()
	for range 3 {
		bell, release, err := m.BellOf(w.peer(0))
		if err != nil {
			t.Fatal(err)
		}
		bell.Ring()
		all = append(all, release)
	}
	if len(m.peerBells) != 1 {
		t.Errorf("%d mappings", len(m.peerBells))
	}
	for _, release := range all {
		release()
	}
	if len(m.peerBells) != 0 {
		t.Errorf("%d mappings are left", len(m.peerBells))
	}
	if _, _, err := m.BellOf(framework.Peer{Incarnation: incarnation(0), Blob: []byte("nobody")}); err == nil {
		t.Error("BellOf of an unknown peer: no error")
	}
}
