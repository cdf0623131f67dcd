package shm

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/framework"
)

func TestRings_NumberOfProcessesChanges_NewRingsFollowIt(t *testing.T) {
	w := newPair(t, nil)
	owner := w.procs[0].module.(*module)
	limit := owner.frameLimit
	size := func(procs int) int {
		owner.env.Engine.SetNodeProcs(procs)
		ep := w.connect(t, 1, 0).(*endpoint)
		frames := w.procs[0].frames
		w.send(t, ep, make([]byte, 100))
		w.poll(t, func() bool { return w.procs[0].frames > frames })
		bytes := len(ep.cells.Bytes)
		ep.Close()
		return bytes
	}
	few, many, again := size(2), size(64), size(2)
	if few != owner.initialRingBytes || many >= few || again != few {
		t.Errorf("rings of %d, %d and %d bytes with 2, 64 and 2 processes; %d when the module opened", few, many, again, owner.initialRingBytes)
	}
	if owner.frameLimit != limit {
		t.Errorf("frames of %d bytes, %d before: peers have that number", owner.frameLimit, limit)
	}
}

func TestInbox_JobMayGrow_HasSlotsForAll(t *testing.T) {
	for _, c := range []struct{ local, size, most, want int }{
		{2, 2, 2, 64}, {2, 2, 0, 64}, {2, 2, 100, 200}, {50, 100, 100, 100}, {50, 100, 120, 140}, {0, 100, 120, 64},
	} {
		id := bootstrap.Identity{Proc: framework.Proc{Namespace: t.Name(), Rank: 1}, Size: c.size, LocalSize: c.local, MaxSize: c.most}
		p := openProc(t, OnHeap(), id, func(*params) {})
		if slots := p.module.(*module).inbox.Slots(); slots != c.want {
			t.Errorf("%d slots with %d of %d processes on the node and at most %d, want %d", slots, c.local, c.size, c.most, c.want)
		}
		p.module.Close()
		p.engine.Close()
	}
}

func TestOpen_ProcessWasAdded_LeavesStaleSegmentsToTheFirst(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, jobPrefix("dead")+"0-1")
	for _, first := range []int{4, 0} {
		if err := os.WriteFile(dead, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		id := bootstrap.Identity{Proc: framework.Proc{Namespace: t.Name(), Rank: uint32(first)}, FirstRank: first, Size: 1, LocalSize: 1}
		p := openProc(t, Component(), id, func(p *params) { p.Dir = dir })
		if _, err := os.Stat(dead); (err == nil) != (first > 0) {
			t.Errorf("rank %d of a process set that begins with rank %d: %v", first, first, err)
		}
		p.module.Close()
		p.engine.Close()
	}
}

// Both RemoveStale of the second engine and the end of its path to the first one close a descriptor
// of the inbox.
func TestOpen_SecondEngineOfTheProcess_LeavesTheMarkOfTheFirst(t *testing.T) {
	dir := t.TempDir()
	open := func(rank uint32) (*testProc, *module) {
		id := bootstrap.Identity{Proc: framework.Proc{Namespace: t.Name(), Rank: rank}, Size: 2, LocalSize: 2}
		p := openProc(t, Component(), id, func(p *params) { p.Dir = dir })
		t.Cleanup(func() { p.module.Close(); p.engine.Close() })
		return p, p.module.(*module)
	}
	first, inboxOf := open(0)
	_, second := open(1)
	peer := framework.Peer{Incarnation: first.incarnation, Proc: framework.Proc{Namespace: t.Name(), Rank: 0}, Blob: first.module.Blob()}
	endpoint, err := second.Connect(peer)
	if err != nil {
		t.Fatal(err)
	}
	endpoint.Close()
	second.Forget(first.incarnation)

	f, err := os.Open(inboxOf.inboxFile.segment.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: markStart(inboxOf.env.Identity.Proc, first.incarnation.Nonce), Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		t.Fatal(err)
	}
	if int(lock.Pid) != os.Getpid() {
		t.Errorf("process %d holds the mark, want %d", lock.Pid, os.Getpid())
	}
}
