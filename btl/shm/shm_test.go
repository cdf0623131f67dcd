package shm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/btl"
	"github.com/ferrympi/ferry/btl/btltest"
	"github.com/ferrympi/ferry/btl/segment"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/framework/kittest"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/ring"
	"github.com/ferrympi/ferry/internal/shmlayout"
	"github.com/ferrympi/ferry/progress"
)

// TestMain also runs the child processes of tests.
func TestMain(m *testing.M) {
	if namespace := os.Getenv("SHM_TEST_NAMESPACE"); namespace != "" {
		if err := ownerInChild(namespace); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// TestContract runs the kit over files, and over Go memory for the race detector.
func TestContract(t *testing.T) {
	smallest := func(_ int, p any) { p.(*params).RingSize, p.(*params).EagerLimit = 16<<10, 64 }
	for _, c := range []struct {
		name      string
		component func() btl.Component
		params    func(int, any)
		first     int
	}{
		{"files", Component, nil, 0},
		{"files, smallest rings", Component, smallest, 0},
		{"heap", OnHeap, nil, 0},
		{"heap, smallest rings, added processes", OnHeap, smallest, kittest.AddedFirst},
	} {
		if underRace && strings.HasPrefix(c.name, "files") {
			continue // The race detector observes Go memory only.
		}
		t.Run(c.name, func(t *testing.T) {
			btltest.Cases(btltest.Subject{Component: c.component(), Params: c.params, First: c.first}).Run(t)
		})
	}
}

// A frame that never fits would wait forever.
func TestConnect_PeerRingSmaller_LimitsFrames(t *testing.T) {
	w := newPair(t, func(rank int, p *params) {
		if rank == 1 {
			p.RingSize = 16 << 10
		}
	})
	ep := w.connect(t, 0, 1)
	w.poll(t, func() bool { return w.procs[0].frameLimit > 0 })
	limit := w.procs[0].frameLimit
	if limit >= w.procs[0].module.Caps().FrameLimit || limit != w.procs[1].module.Caps().FrameLimit {
		t.Fatalf("frames up to %d bytes", limit)
	}
	w.send(t, ep, make([]byte, limit))
	w.poll(t, func() bool { return w.procs[1].frames > 0 })
	ep = w.connect(t, 1, 0) // A larger ring changes no limit.
	w.send(t, ep, make([]byte, 100))
	w.poll(t, func() bool { return w.procs[0].frames > 0 })
	if w.procs[1].frameLimit != 0 {
		t.Errorf("limited to %d bytes by a larger ring", w.procs[1].frameLimit)
	}
}

// The sender's progress goroutine sleeps without a limit before it connects. The owner refuses or
// closes some time later.
func TestConnect_ProgressGoroutineSleeps_NoticesRefusal(t *testing.T) {
	for _, how := range []string{"refuses", "closes"} {
		t.Run(how, func(t *testing.T) {
			w := newPair(t, nil)
			a, b := w.procs[0], w.procs[1]
			if how == "refuses" { // Exhaust the space of the heap.
				for {
					if _, err := b.module.(*module).allocateRing(); err != nil {
						break
					}
				}
			}
			a.engine.Add(a.module)
			defer a.engine.Remove(a.module)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var never progress.Completion
			wait := func(d time.Duration) { // The progress goroutine sleeps afterwards.
				ctx, cancel := context.WithTimeout(ctx, d)
				defer cancel()
				a.engine.Lock()
				a.engine.Wait(ctx, &never, nil)
				a.engine.Unlock()
			}
			wait(20 * time.Millisecond)
			a.engine.Lock()
			w.connect(t, 0, 1)
			a.engine.Unlock()
			if how == "refuses" {
				b.engine.Lock()
				b.module.Poll()
				b.engine.Unlock()
			} else {
				w.procs[1] = nil
				if err := b.module.Close(); err != nil {
					t.Error(err)
				}
				b.engine.Close()
			}
			for ctx.Err() == nil { // Only the progress goroutine polls.
				a.engine.Lock()
				down, gone := len(a.pathDownErrors) > 0 && errors.Is(a.pathDownErrors[0], btl.ErrNeverOpened), len(a.peerEndedErrors) > 0
				a.engine.Unlock()
				if down && how == "refuses" || gone && how == "closes" {
					return
				}
				runtime.Gosched()
			}
			t.Error("the sender got no event")
		})
	}
}

// deliver sends the largest frame and returns the sender's description of the path.
func (w *pair) deliver(t *testing.T, from, to int) btl.Description {
	t.Helper()
	ep := w.connect(t, from, to)
	out := ep.(*endpoint)
	w.poll(t, func() bool { return out.producer != nil })
	w.send(t, ep, make([]byte, ring.FrameLimit(len(out.cells.Bytes)/ring.CellSize)))
	before := w.procs[to].frames
	w.poll(t, func() bool { return w.procs[to].frames > before || len(w.procs[from].pathDownErrors) > 0 })
	return w.procs[from].module.(btl.Describer).Describe(framework.Peer{Incarnation: w.procs[to].incarnation, Blob: w.procs[to].module.Blob()})
}

// The inboxes fit, and full rings do not.
func TestRings_MemoryShort_AreSmaller(t *testing.T) {
	dir := needs.SmallTmpfs(t, 4*segment.PageSize)
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.RingSize = dir, 1<<20 })
	for _, way := range [][2]int{{0, 1}, {1, 0}} {
		d := w.deliver(t, way[0], way[1])
		if want := dir + " is short of space: reduced the ring to 64KiB"; d.Device != dir || !slices.Equal(d.Notes, []string{want}) {
			t.Errorf("got %+v, want %s", d, want)
		}
		if w.procs[way[0]].frameLimit == 0 {
			t.Error("the protocol was not told that frames are shorter")
		}
	}
}

// One inbox fits without any ring. The other inbox and the ring for the first one are in the
// fallback directory.
func TestRings_NoMemory_UseFallbackDirectory(t *testing.T) {
	dir, fallback := needs.SmallTmpfs(t, segment.PageSize), t.TempDir()
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.Fallback, p.RingSize = dir, fallback, 1<<20 })
	if a, b := w.procs[0].module.Caps().Device, w.procs[1].module.Caps().Device; a != dir || b != fallback {
		t.Fatalf("segments in %s and %s", a, b)
	}
	for _, way := range [][2]int{{0, 1}, {1, 0}, {1, 0}} { // The last path reuses memory.
		d := w.deliver(t, way[0], way[1])
		if want := dir + " has no space: using a file in " + fallback + " (btl.shm.fallback_dir)"; d.Device != fallback || !slices.Equal(d.Notes, []string{want}) {
			t.Errorf("got %+v, want %s", d, want)
		}
	}
	if m := w.procs[0].module.(*module); m.overflowFile.size != 1<<20 {
		t.Errorf("%d bytes of overflow for one ring at a time", m.overflowFile.size)
	}
	w.close(t)
	for _, d := range []string{dir, fallback} {
		if left, err := os.ReadDir(d); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v (%v)", d, left, err)
		}
	}
}

// The fallback directory is full, too.
func TestConnect_NoSpaceAtPeer_RefusalNamesRemedy(t *testing.T) {
	dir, fallback := needs.SmallTmpfs(t, 2*segment.PageSize), needs.SmallTmpfs(t, 4096)
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.Fallback = dir, fallback })
	w.connect(t, 1, 0)
	w.poll(t, func() bool { return len(w.procs[1].pathDownErrors) > 0 })
	if err := w.procs[1].pathDownErrors[0].Error(); !strings.Contains(err, `"no space for a segment: need 64 KiB, free 0 KiB; enlarge the file system (docker: --shm-size) or set btl.shm.dir"`) {
		t.Errorf("error reported to the sender: %s", err)
	}
}

func TestOpen_NoSpaceInBothDirectories_ErrorNamesBoth(t *testing.T) {
	dir, fallback := needs.SmallTmpfs(t, 4096), needs.SmallTmpfs(t, 8192)
	p := new(params)
	framework.FillDefaults(p)
	p.Dir, p.Fallback = dir, fallback
	engine := progress.New(progress.Options{})
	defer engine.Close()
	_, err := Component().Open(t.Context(), btl.Env{Env: progress.Env{Engine: engine, Logger: slog.New(slog.DiscardHandler)}, Params: p})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fallback) || !strings.Contains(err.Error(), "need 64 KiB, free 4 KiB; ") || !strings.Contains(err.Error(), "btl.shm.dir") {
		t.Fatal(err)
	}
}

// The owner's words in a slot are untrusted input.
func TestConnect_GrantOutsideFile_ReportsPathDown(t *testing.T) {
	for _, grant := range []struct {
		offset int64
		cells  int
		how    shmlayout.RingFlags
	}{
		{offset: -segment.PageSize, cells: 2048},
		{offset: math.MaxInt64 &^ (segment.PageSize - 1), cells: 2048},
		{offset: 1 << 40, cells: 2048},
		{offset: segment.PageSize, cells: 1 << 24},
		{offset: segment.PageSize, cells: 3000},
		{offset: segment.PageSize, cells: 0},
		{offset: segment.PageSize, cells: 1<<32 - 1},
		{offset: 8, cells: 2048},
		{offset: 0, cells: 64, how: shmlayout.Overflow}, // The file does not exist.
	} {
		w := newPair(t, nil)
		w.connect(t, 0, 1)
		box := w.procs[1].module.(*module).inbox
		for i := range box.Slots() {
			if slot := box.Slot(i); slot.State() == shmlayout.Requested {
				slot.Grant(grant.offset, grant.cells, grant.how)
			}
		}
		w.procs[0].module.Poll()
		if lost := w.procs[0].pathDownErrors; len(lost) != 1 || !errors.Is(lost[0], framework.ErrTransport) || !errors.Is(lost[0], btl.ErrNeverOpened) {
			t.Errorf("%d cells at %d: lost %v", grant.cells, grant.offset, lost)
		}
	}
}

// A sender's words in a slot are untrusted input.
func TestRequest_Damaged_IsRefused(t *testing.T) {
	for _, from := range []shmlayout.Sender{
		{Name: ""},
		{Name: "nobody"},
		{Name: "."},
		{Name: "../x"},
		{Rank: 7, World: 1, Name: "nobody"},
	} {
		w := newPair(t, nil)
		w.connect(t, 0, 1)
		p := w.procs[1]
		for i := range p.module.(*module).inbox.Slots() {
			slot := p.module.(*module).inbox.Slot(i)
			if slot.State() != shmlayout.Requested {
				continue
			}
			if from.World == 0 {
				from.World = framework.NamespaceHash(w.namespace)
			}
			slot.RequestRing(from)
			p.module.Poll()
			if slot.State() != shmlayout.Refused {
				t.Errorf("%+v: state %d, want %d", from, slot.State(), shmlayout.Refused)
			}
		}
		w.poll(t, func() bool { return len(w.procs[0].pathDownErrors) == 1 })
	}
}

// The owner may be unable to ring the bell, so the sender must not sleep without a limit.
func TestDue_WaitingForRing_IsConnectTick(t *testing.T) {
	w := newPair(t, nil)
	w.connect(t, 0, 1)
	if d := w.procs[0].module.(progress.Timed).Due(); d <= 0 {
		t.Error("no poll interval while a request is pending")
	}
	w.poll(t, func() bool { return len(w.procs[0].module.(*module).waitingEndpoints) == 0 })
	if d := w.procs[0].module.(progress.Timed).Due(); d != 0 {
		t.Errorf("an engine would wake up every %v for nothing", d)
	}
}

// A sender that loads the bell before its frame is visible may miss that the owner is arming the
// bell.
func TestLag_OpenRing_IsStoreLag(t *testing.T) {
	w := newPair(t, nil)
	owner := w.procs[1].module.(progress.Lagging)
	if d := owner.Lag(); d != 0 {
		t.Errorf("Lag is %v without a path, want 0", d)
	}
	ep := w.connect(t, 0, 1)
	w.poll(t, func() bool { return ep.(*endpoint).producer != nil })
	if owner.Lag() <= 0 {
		t.Error("Lag is 0 with a path: a frame that arrives while the owner falls asleep is missed")
	}
}

func TestClose_LeavesNoFiles(t *testing.T) {
	dir := t.TempDir()
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir = dir })
	ep := w.connect(t, 0, 1)
	w.send(t, ep, []byte("x"))
	w.poll(t, func() bool { return w.procs[1].frames == 1 })
	w.close(t)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
}

func TestProbe_EmptyDirectory_IsNamed(t *testing.T) {
	if v := Component().Probe(t.Context(), &params{}); v.Status == framework.StatusUsable || v.Reason != "btl.shm.dir is empty" {
		t.Errorf("verdict %+v", v)
	}
}
