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

// TestMain is also the other process of tests that need one.
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

// TestContract runs the kit over files, and over Go memory, where the race
// detector sees what happens.
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
			continue // it would see no more than the run without it
		}
		t.Run(c.name, func(t *testing.T) {
			btltest.Cases(btltest.Subject{Component: c.component(), Params: c.params, First: c.first}).Run(t)
		})
	}
}

// TestSmallerRingAtThePeerLimitsTheFrames: a frame that never fits would wait
// for ever.
func TestSmallerRingAtThePeerLimitsTheFrames(t *testing.T) {
	w := newPair(t, func(rank int, p *params) {
		if rank == 1 {
			p.RingSize = 16 << 10
		}
	})
	ep := w.connect(t, 0, 1)
	w.poll(t, func() bool { return w.procs[0].limit > 0 })
	limit := w.procs[0].limit
	if limit >= w.procs[0].module.Caps().FrameLimit || limit != w.procs[1].module.Caps().FrameLimit {
		t.Fatalf("frames up to %d bytes", limit)
	}
	w.send(t, ep, make([]byte, limit))
	w.poll(t, func() bool { return w.procs[1].frames > 0 })
	ep = w.connect(t, 1, 0) // a larger one is no harm
	w.send(t, ep, make([]byte, 100))
	w.poll(t, func() bool { return w.procs[0].frames > 0 })
	if w.procs[1].limit != 0 {
		t.Errorf("limited to %d bytes by a larger ring", w.procs[1].limit)
	}
}

// TestSleeperHearsThatItWasRefused: the sender's keeper sleeps without a limit
// before it connects, and the owner refuses, or closes, some time later.
func TestSleeperHearsThatItWasRefused(t *testing.T) {
	for _, how := range []string{"refuses", "closes"} {
		t.Run(how, func(t *testing.T) {
			w := newPair(t, nil)
			a, b := w.procs[0], w.procs[1]
			if how == "refuses" { // take all that the heap's space has
				for {
					if _, err := b.module.(*module).ringMemory(); err != nil {
						break
					}
				}
			}
			a.engine.Add(a.module)
			defer a.engine.Remove(a.module)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var never progress.Completion
			wait := func(d time.Duration) { // which has the keeper sleep for us
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
			for ctx.Err() == nil { // nobody polls but the keeper
				a.engine.Lock()
				down, gone := len(a.lost) > 0 && errors.Is(a.lost[0], btl.ErrNeverOpened), len(a.gone) > 0
				a.engine.Unlock()
				if down && how == "refuses" || gone && how == "closes" {
					return
				}
				runtime.Gosched()
			}
			t.Error("the sender never learnt of it")
		})
	}
}

// deliver sends the largest message from one to the other, and returns what the sender says of
// the way.
func (w *pair) deliver(t *testing.T, from, to int) btl.Description {
	t.Helper()
	ep := w.connect(t, from, to)
	out := ep.(*endpoint)
	w.poll(t, func() bool { return out.producer != nil })
	w.send(t, ep, make([]byte, ring.FrameLimit(len(out.cells.Bytes)/ring.CellSize)))
	before := w.procs[to].frames
	w.poll(t, func() bool { return w.procs[to].frames > before || len(w.procs[from].lost) > 0 })
	return w.procs[from].module.(btl.Describer).Describe(framework.Peer{Life: w.procs[to].life, Blob: w.procs[to].module.Blob()})
}

// TestRingsShrinkWhereMemoryIsShort: the inboxes fit, and full rings do not.
func TestRingsShrinkWhereMemoryIsShort(t *testing.T) {
	dir := needs.SmallTmpfs(t, 4*segment.PageSize)
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.RingSize = dir, 1<<20 })
	for _, way := range [][2]int{{0, 1}, {1, 0}} {
		d := w.deliver(t, way[0], way[1])
		if want := dir + " is short of room: a ring of 64KiB"; d.Device != dir || !slices.Equal(d.Notes, []string{want}) {
			t.Errorf("it says %+v, want %s", d, want)
		}
		if w.procs[way[0]].limit == 0 {
			t.Error("the protocol was not told that frames are shorter")
		}
	}
}

// TestFileTakesThePlaceOfMemoryThatIsNotThere: one inbox fits and no ring; the other inbox is
// in the fallback directory, and so is the ring beside the first one.
func TestFileTakesThePlaceOfMemoryThatIsNotThere(t *testing.T) {
	dir, fallback := needs.SmallTmpfs(t, segment.PageSize), t.TempDir()
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.Fallback, p.RingSize = dir, fallback, 1<<20 })
	if a, b := w.procs[0].module.Caps().Device, w.procs[1].module.Caps().Device; a != dir || b != fallback {
		t.Fatalf("segments in %s and %s", a, b)
	}
	for _, way := range [][2]int{{0, 1}, {1, 0}, {1, 0}} { // the last one uses memory again
		d := w.deliver(t, way[0], way[1])
		if want := dir + " has no room: a file in " + fallback + " takes its place (btl.shm.fallback_dir)"; d.Device != fallback || !slices.Equal(d.Notes, []string{want}) {
			t.Errorf("it says %+v, want %s", d, want)
		}
	}
	if m := w.procs[0].module.(*module); m.overflow.size != 1<<20 {
		t.Errorf("%d bytes of overflow for one ring at a time", m.overflow.size)
	}
	w.close(t)
	for _, d := range []string{dir, fallback} {
		if left, err := os.ReadDir(d); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v (%v)", d, left, err)
		}
	}
}

// TestRefusalForLackOfRoomSaysWhatToDo: the fallback directory is full too.
func TestRefusalForLackOfRoomSaysWhatToDo(t *testing.T) {
	dir, fallback := needs.SmallTmpfs(t, 2*segment.PageSize), needs.SmallTmpfs(t, 4096)
	w := newPairOf(t, Component(), func(_ int, p *params) { p.Dir, p.Fallback = dir, fallback })
	w.connect(t, 1, 0)
	w.poll(t, func() bool { return len(w.procs[1].lost) > 0 })
	if err := w.procs[1].lost[0].Error(); !strings.Contains(err, `"no space for a segment: need 64 KiB, free 0 KiB; enlarge the file system (docker: --shm-size) or set btl.shm.dir"`) {
		t.Errorf("the sender is told: %s", err)
	}
}

// TestNoSpaceAnywhereNamesBothPlacesAndTheShortfall.
func TestNoSpaceAnywhereNamesBothPlacesAndTheShortfall(t *testing.T) {
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

// TestGrantOfMemoryThatIsNotThereIsAnError: what the owner writes into a slot is
// input.
func TestGrantOfMemoryThatIsNotThereIsAnError(t *testing.T) {
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
		{offset: 0, cells: 64, how: shmlayout.Overflow}, // there is no such file
	} {
		w := newPair(t, nil)
		w.connect(t, 0, 1)
		box := w.procs[1].module.(*module).box
		for i := range box.Slots() {
			if slot := box.Slot(i); slot.State() == shmlayout.Requested {
				slot.Grant(grant.offset, grant.cells, grant.how)
			}
		}
		w.procs[0].module.Poll()
		if lost := w.procs[0].lost; len(lost) != 1 || !errors.Is(lost[0], framework.ErrTransport) || !errors.Is(lost[0], btl.ErrNeverOpened) {
			t.Errorf("%d cells at %d: lost %v", grant.cells, grant.offset, lost)
		}
	}
}

// TestDamagedRequestIsRefused: what a sender writes into a slot is input.
func TestDamagedRequestIsRefused(t *testing.T) {
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
		for i := range p.module.(*module).box.Slots() {
			slot := p.module.(*module).box.Slot(i)
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
		w.poll(t, func() bool { return len(w.procs[0].lost) == 1 })
	}
}

// TestRefusalReachesASenderThatSleeps: the owner may be unable to ring, so the
// sender must not sleep for ever.
func TestRefusalReachesASenderThatSleeps(t *testing.T) {
	w := newPair(t, nil)
	w.connect(t, 0, 1)
	if d := w.procs[0].module.(progress.Timed).Due(); d <= 0 {
		t.Error("an engine would sleep without limit while a request waits for its answer")
	}
	w.poll(t, func() bool { return len(w.procs[0].module.(*module).waiting) == 0 })
	if d := w.procs[0].module.(progress.Timed).Due(); d != 0 {
		t.Errorf("an engine would wake up every %v for nothing", d)
	}
}

// TestOwnerOfARingLooksAgainBeforeItSleeps: a sender who looks at the bell before his frame is
// visible may not see that it is being armed.
func TestOwnerOfARingLooksAgainBeforeItSleeps(t *testing.T) {
	w := newPair(t, nil)
	owner := w.procs[1].module.(progress.Lagging)
	if d := owner.Lag(); d != 0 {
		t.Errorf("it looks again after %v, and nobody sends to it", d)
	}
	ep := w.connect(t, 0, 1)
	w.poll(t, func() bool { return ep.(*endpoint).producer != nil })
	if owner.Lag() <= 0 {
		t.Error("a frame that comes while it falls asleep waits until somebody rings")
	}
}

// TestNothingIsLeftInTheDirectory: the segment goes with its module.
func TestNothingIsLeftInTheDirectory(t *testing.T) {
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
