package shm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
)

const (
	tableVersion = 7
	tableWords   = 40
)

// filePair returns two processes with segments in a directory of the test.
func filePair(t *testing.T) (w *pair, dir string) {
	t.Helper()
	dir = t.TempDir()
	return newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.Fallback = dir, "" }), dir
}

// openTable returns the table of a process for pairs with a shared cache.
func openTable(p *testProc, version uint32) btl.NodeTable {
	m := p.module.(*module)
	peer := framework.Incarnation{Nonce: 1 << 40}
	m.lastPeerMemory = &peerMemory{peer: peer, pid: os.Getpid()}
	setDistance(m, sharedCache)
	return m.NodeTable(peer, version, tableWords)
}

// setDistance sets the distance of the process to all peers.
func setDistance(m *module, d cacheDistance) {
	isPeer := true // The process itself is asked about first.
	m.cacheDomain = func(int) (int, bool) {
		isPeer = !isPeer
		return map[bool]int{true: int(d)}[isPeer], d != unknownDistance
	}
}

func (w *pair) nodeTable(rank int) btl.NodeTable { return openTable(w.procs[rank], tableVersion) }

// tableFiles returns the names of node tables in a directory.
func tableFiles(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*-table*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestNodeTable_CreatorCloses_OthersContinue(t *testing.T) {
	w, dir := filePair(t)
	first, second := w.nodeTable(0), w.nodeTable(1)
	first.Store(tableWords-1, 5)
	if n := len(tableFiles(t, dir)); n != 1 || second.Load(tableWords-1) != 5 {
		t.Errorf("%d files, word %d", n, second.Load(tableWords-1))
	}
	if err := w.procs[0].module.Close(); err != nil {
		t.Error(err)
	}
	w.procs[0].engine.Close()
	w.procs[0] = nil
	second.Store(0, 6)
	if first.Store(0, 7); first.Load(0) != 0 || second.Load(0) != 6 || second.Load(tableWords-1) != 5 {
		t.Errorf("words of the closed module %d, of the other one %d and %d", first.Load(0), second.Load(0), second.Load(tableWords-1))
	}
	if names := tableFiles(t, dir); len(names) != 0 {
		t.Errorf("files after the close: %v", names)
	}
}

// The file of a killed creator stays until the launcher or the next job removes it. Its locks and
// contents bind no other process.
func TestNodeTable_CreatorKilled_OthersContinue(t *testing.T) {
	t.Setenv("SHM_TEST_TABLE", "1")
	dir := t.TempDir()
	c := startChild(t, "off", dir, nil)
	table := openTable(&testProc{module: c.reader}, tableVersion)
	if table == nil {
		t.Fatal("no table")
	}
	before := table.Load(0)
	c.cmd.Process.Kill()
	c.cmd.Process.Wait()
	last := table.Load(0)
	if last == 0 || last < before || last != table.Load(0) {
		t.Errorf("words of the child: %d, then %d and %d", before, last, table.Load(0))
	}
	table.Store(0, 1)
	if table.Load(0) != 1 {
		t.Error("the store had no effect")
	}
	if removed, err := RemoveJobSegments(dir, "", t.Name()); err != nil || len(removed) != 3 || len(tableFiles(t, dir)) != 0 {
		t.Errorf("removed %v (%v), want inbox, region and table of the dead", removed, err)
	}
}

func TestNodeTable_FileTruncated_LoadsZero(t *testing.T) {
	w, dir := filePair(t)
	table := w.nodeTable(1)
	table.Store(3, 5)
	if err := os.Truncate(tableFiles(t, dir)[0], 0); err != nil {
		t.Fatal(err)
	}
	if word := table.Load(3); word != 0 {
		t.Errorf("word %d", word)
	}
	table.Store(3, 5)
	if later := w.nodeTable(0); later != nil {
		t.Error("a process opened the truncated table")
	}
}

func TestNodeTable_UnusableFile_ReturnsNil(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"short":     func(path string) error { return os.WriteFile(path, make([]byte, 8*tableWords), 0o600) },
		"other":     func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 4096)), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"link":      func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		w, _ := filePair(t)
		m := w.procs[0].module.(*module)
		if err := create(m.path(m.nodeTableName())); err != nil {
			t.Fatal(err)
		}
		if w.nodeTable(0) != nil {
			t.Errorf("%s: the table was used", name)
		}
	}
	w, _ := filePair(t)
	if w.nodeTable(0) == nil || openTable(w.procs[1], tableVersion+1) != nil {
		t.Error("a process uses the table of another version")
	}
}

func TestNodeTable_FileSystemFull_ReturnsNil(t *testing.T) {
	dir := needs.SmallTmpfs(t, 512<<10)
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.Fallback = dir, "" })
	for size := int64(64 << 10); size > 1<<10; size /= 2 {
		for i := 0; ; i++ {
			seg, err := segment.Files{}.Create(filepath.Join(dir, fmt.Sprint(size, "-", i)), size)
			if err != nil {
				break
			}
			defer seg.Close()
		}
	}
	if w.nodeTable(0) != nil {
		t.Error("a table in a full file system")
	}
}

func TestNodeTable_DividedMachine_OnePerNode(t *testing.T) {
	dir := t.TempDir()
	nodes, err := bootstrap.MakeNodeMap(0, 4, []bootstrap.NodeRun{{First: 0, Count: 2, Node: 0}, {First: 2, Count: 2, Node: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var tables []btl.NodeTable
	for rank := range 4 {
		p := openProc(t, Component(), bootstrap.Identity{
			Proc: framework.Proc{Namespace: t.Name(), Rank: uint32(rank)}, Size: 4, LocalRank: rank % 2, LocalSize: 2,
			IsDivided: true, Nodes: nodes,
		}, func(p *params) { p.Dir, p.Fallback = dir, "" })
		defer func() {
			p.module.Close()
			p.engine.Close()
		}()
		tables = append(tables, openTable(p, tableVersion))
	}
	tables[0].Store(0, 5)
	if tables[1].Load(0) != 5 || tables[2].Load(0) != 0 || len(tableFiles(t, dir)) != 2 {
		t.Errorf("words %d and %d, files %v", tables[1].Load(0), tables[2].Load(0), tableFiles(t, dir))
	}
}

func TestNodeTable_OtherDistance_HasItsOwnWords(t *testing.T) {
	w, _ := filePair(t)
	m := w.procs[0].module.(*module)
	near := w.nodeTable(0)
	setDistance(m, crossCache)
	cross := m.NodeTable(m.lastPeerMemory.peer, tableVersion, tableWords)
	for i := range tableWords {
		near.Store(i, 1)
		cross.Store(i, 2)
	}
	for i := range tableWords {
		if near.Load(i) != 1 || cross.Load(i) != 2 {
			t.Fatalf("word %d: %d and %d", i, near.Load(i), cross.Load(i))
		}
	}
	setDistance(m, unknownDistance)
	if m.NodeTable(m.lastPeerMemory.peer, tableVersion, tableWords) != nil {
		t.Error("a table for an unknown distance")
	}
	if m.NodeTable(incarnation(7), tableVersion, tableWords) != nil {
		t.Error("a table for a peer without a path")
	}
}

func TestDistanceOf_CacheDomains_AreCompared(t *testing.T) {
	for _, c := range []struct {
		own, theirs     int
		okOwn, okTheirs bool
		want            cacheDistance
	}{
		{0, 0, true, true, sharedCache},
		{0, 8, true, true, crossCache},
		{0, 0, false, true, unknownDistance},
		{0, 0, true, false, unknownDistance},
	} {
		if got := distanceOf(c.own, c.okOwn, c.theirs, c.okTheirs); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
