package pmix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ferrympi/ferry/bootstrap"
	"github.com/ferrympi/ferry/bootstrap/mesh"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/needs"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

func TestMain(m *testing.M) {
	pmixtest.Main(m, map[string]pmixtest.Program{
		"pairs": pairs, "nodes": nodes, "mapped": mapped, "mappedLater": mappedLater, "reopen": reopen, "growth": growth, "dies": dies, "orphan": orphan, "unreachable": unreachable, "watch": watch, "sets": sets, "setOrder": setOrder, "kit": kit,
		"abandoned": abandoned, "adds": adds, "added": added, "addedDeaths": addedDeaths, "nesting": nesting, "nested": nested,
	}, func() error { return goleak.Find() })
}

// installed skips the test without libpmix.
func installed(t *testing.T) {
	t.Helper()
	if _, err := load(t.Context(), pmixc.Soname); err != nil {
		needs.Missing(t, "%v: install libpmix2, and build with cgo", err)
	}
}

// launchers are the command lines for n ranks on a node.
func launchers(t *testing.T, n int) map[string][]string {
	installed(t)
	return map[string][]string{"server": pmixtest.Server(t, "-n", fmt.Sprint(n)), "mpirun": pmixtest.Mpirun(t, n)}
}

// await repeats the lookup of p's entry, as bootstrap/mesh does.
func await(ctx context.Context, l mesh.Launcher, p framework.Proc) ([]byte, error) {
	for {
		e, ok, err := l.Find(ctx, p)
		if ok || err != nil {
			return e, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// entryOf returns the entry of a rank in these tests.
func entryOf(rank uint32) []byte { return bytes.Repeat([]byte{byte(rank + 1), 0}, mesh.MaxEntry/2) }

// publish opens a launcher and publishes.
func publish(ctx context.Context) (mesh.Launcher, error) {
	l, err := openLauncher(ctx, defaults)
	if err == nil {
		err = l.Publish(ctx, entryOf(l.Identity().Proc.Rank))
	}
	return l, err
}

// finds checks that rank has published its entry.
func finds(ctx context.Context, l mesh.Launcher, rank uint32) error {
	p := framework.Proc{Namespace: l.Identity().Proc.Namespace, Rank: rank}
	e, err := await(ctx, l, p)
	if err == nil && !bytes.Equal(e, entryOf(rank)) {
		err = fmt.Errorf("%v has published %d bytes %x", p, len(e), e[:min(8, len(e))])
	}
	return err
}

// pairs lets ranks 1 and 3 find each other, while 0 and 2 wait for their end without a launcher.
// They then open one, because mpirun treats it as a failure if only some processes of a job do.
func pairs(ctx context.Context) error {
	if rank := os.Getenv("PMIX_RANK"); rank == "0" || rank == "2" {
		if err := pmixtest.AwaitFlags(ctx, "done1", "done3"); err != nil {
			return err
		}
		l, err := openLauncher(ctx, defaults)
		if err != nil {
			return err
		}
		return l.Close()
	}
	begin := time.Now()
	l, err := publish(ctx)
	if err != nil {
		return err
	}
	id := l.Identity()
	opened := time.Since(begin)
	if err := finds(ctx, l, 4-id.Proc.Rank); err != nil {
		return err
	}
	fmt.Printf("rank %d: open %v, found after %v, locals %v\n", id.Proc.Rank, opened, time.Since(begin), id.LocalRanks)
	if id.Size != 4 || id.LocalSize != 4 || id.LocalRank != int(id.Proc.Rank) {
		return fmt.Errorf("identity %+v", id)
	}
	const times = 100
	begin = time.Now()
	for range times { // Each lookup of a missing entry is a request.
		if _, ok, err := l.Find(ctx, framework.Proc{Namespace: id.Proc.Namespace, Rank: 0}); ok || err != nil {
			return fmt.Errorf("rank 0 has published: %t, %w", ok, err)
		}
	}
	fmt.Printf("rank %d: nothing found in %v each\n", id.Proc.Rank, time.Since(begin)/times)
	begin = time.Now()
	if err = l.Close(); err != nil {
		return err
	}
	fmt.Printf("rank %d: close %v\n", id.Proc.Rank, time.Since(begin))
	return pmixtest.SetFlag(fmt.Sprint("done", id.Proc.Rank), "")
}

// Calls wait only for the processes that they concern.
func TestFind_OthersWait_TwoRanksFindEachOther(t *testing.T) {
	for name, launcher := range launchers(t, 4) {
		t.Run(name, func(t *testing.T) {
			t.Log(pmixtest.Run(t, launcher, "pairs"))
		})
	}
}

// nodes lets the ranks of two nodes find each other. The last one publishes so late that several
// searches end before.
func nodes(ctx context.Context) error {
	const size = 4
	if os.Getenv("PMIX_RANK") == "3" {
		time.Sleep(2*searchTimeout + searchTimeout/2)
	}
	l, err := publish(ctx)
	if err != nil {
		return err
	}
	id := l.Identity()
	begin := time.Now()
	for rank := range uint32(size) {
		if err := finds(ctx, l, rank); err != nil {
			return err
		}
		fmt.Printf("rank %d: found rank %d after %v\n", id.Proc.Rank, rank, time.Since(begin))
	}
	if id.Size != size || id.LocalSize != 2 || id.LocalRanks[0] != id.Proc.Rank/2*2 {
		return fmt.Errorf("identity %+v", id)
	}
	time.Sleep(searchTimeout) // Others still search.
	return l.Close()
}

// PMIX_IMMEDIATE alone never finds entries of other nodes.
func TestFind_OtherNode_IsFound(t *testing.T) {
	installed(t)
	t.Log(pmixtest.Run(t, pmixtest.Server(t, "-n", "4", "-nodes", "2"), "nodes"))
}

// reopen connects and closes all ranks, and then reopens rank 0. Rank 3 never publishes.
func reopen(ctx context.Context) error {
	l, err := openLauncher(ctx, defaults)
	if err != nil {
		return err
	}
	id := l.Identity()
	me := id.Proc.Rank
	of := func(rank uint32) framework.Proc { return framework.Proc{Namespace: id.Proc.Namespace, Rank: rank} }
	if me == 3 {
		return errors.Join(pmixtest.AwaitFlags(ctx, "done0", "done1"), l.Close())
	}
	if err := l.Publish(ctx, entryOf(me)); err != nil {
		return err
	}
	if me == 2 {
		return errors.Join(pmixtest.SetFlag("published", ""), pmixtest.AwaitFlags(ctx, "done0", "done1"), l.Close())
	}
	if err := finds(ctx, l, 1-me); err != nil {
		return err
	}
	if err := pmixtest.AwaitFlags(ctx, "published"); err != nil { // No process looks up rank 2.
		return err
	}
	second, err := openLauncher(ctx, defaults)
	if err != nil {
		return err
	}
	if err := l.Close(); err != nil {
		return err
	}
	if err := l.Close(); !errors.Is(err, framework.ErrClosed) {
		return fmt.Errorf("closed twice: %w", err)
	}
	if _, _, err := l.Find(ctx, of(1)); !errors.Is(err, framework.ErrClosed) {
		return fmt.Errorf("find after close: %w", err)
	}
	if _, ok, err := second.Find(ctx, of(3)); ok || err != nil { // The other launcher is unaffected.
		return fmt.Errorf("find of rank 3: %t %w", ok, err)
	}
	if err := second.Close(); err != nil {
		return err
	}
	for range 3 {
		again, err := openLauncher(ctx, defaults)
		if err != nil {
			return err
		}
		if got := again.Identity(); got.Proc != id.Proc {
			return fmt.Errorf("now it is %v", got.Proc)
		}
		if err := finds(ctx, again, 1-me); err != nil {
			return err
		}
		for _, rank := range []uint32{2, 3} {
			if _, _, err := again.Find(ctx, of(rank)); !errors.Is(err, framework.ErrTransport) || !errors.Is(err, mesh.ErrLauncherLeft) {
				return fmt.Errorf("find of rank %d, afterwards: %w", rank, err)
			}
		}
		if err := errors.Join(again.Abort(ctx, 1, "not any more"), again.Close()); err != nil {
			return err
		}
	}
	time.Sleep(200 * time.Millisecond) // A launcher may kill the process for it.
	fmt.Printf("rank %d: still here\n", me)
	return pmixtest.SetFlag(fmt.Sprint("done", me), "")
}

// Launchers take the end of a process that has not finalized for a failure, and libpmix finds no
// entries after a second Init.
func TestClose_Finalizes_ProcessContinues(t *testing.T) {
	for name, launcher := range launchers(t, 4) {
		t.Run(name, func(t *testing.T) {
			if out := pmixtest.Run(t, launcher, "reopen"); strings.Count(out, "still here") != 2 {
				t.Error(out)
			}
		})
	}
}

// growth opens and closes many times.
func growth(ctx context.Context) error {
	var before, after int
	for i := range 1000 {
		l, err := openLauncher(ctx, defaults)
		if err != nil {
			return err
		}
		if err := l.Close(); err != nil {
			return err
		}
		if after = resident(); i == 10 {
			before = after
		}
	}
	fmt.Printf("%d KiB after 10, %d KiB after 1000\n", before>>10, after>>10)
	if after-before > 16<<20 {
		return errors.New("it grows")
	}
	return nil
}

// resident returns the process's resident memory.
func resident() int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	var total, pages int
	if _, err := fmt.Sscan(string(text), &total, &pages); err != nil {
		panic(err)
	}
	return pages * os.Getpagesize()
}

// A pair of Init and Finalize would leak 0.15 MiB each time.
func TestReopen_ManyTimes_KeepsMemory(t *testing.T) {
	installed(t)
	t.Log(pmixtest.Run(t, pmixtest.Server(t, "-n", "1"), "growth"))
}

// sets reads process sets, before and after the process has finalized.
func sets(ctx context.Context) error {
	for range 2 {
		l, err := openLauncher(ctx, defaults)
		if err != nil {
			return err
		}
		source := bootstrap.PsetSource(l)
		names, err := source.Psets(ctx)
		if err != nil {
			return err
		}
		_, wrong := source.Pset(ctx, "even")
		if !errors.Is(wrong, framework.ErrPset) || !strings.Contains(wrong.Error(), bootstrap.PsetWorld) {
			return fmt.Errorf("a set that is not there: %w", wrong)
		}
		text := fmt.Sprintf("rank %d: sets %q", l.Identity().Proc.Rank, names)
		if len(names) > 0 {
			odd, err := source.Pset(ctx, "ODD")
			if err != nil {
				return err
			}
			text += fmt.Sprintf(", %s has", odd.Name)
			for _, p := range odd.Members.All() {
				text += fmt.Sprint(" ", p.Rank)
			}
		}
		fmt.Println(text)
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

func TestPsets_AreThoseOfLauncher(t *testing.T) {
	installed(t)
	for want, launcher := range map[string][]string{
		`rank 1: sets ["odd"], odd has 1 3`: pmixtest.Server(t, "-n", "4", "-pset", "odd"),
		`rank 1: sets []`:                   pmixtest.Mpirun(t, 2),
	} {
		if out := pmixtest.Run(t, launcher, "sets"); strings.Count(out, want+"\n") != 2 {
			t.Errorf("want %s twice in\n%s", want, out)
		}
	}
}

// setOrder makes a set of the server's set.
func setOrder(ctx context.Context) error {
	c, err := Component().Open(ctx, bootstrap.Env{Params: defaults})
	if err != nil {
		return err
	}
	source, hasSets := framework.As[bootstrap.PsetSource](c)
	changer, canChange := framework.As[bootstrap.Changer](c)
	if !hasSets || !canChange {
		return fmt.Errorf("the client has sets %t, changes %t", hasSets, canChange)
	}
	if c.Identity().Proc.Rank == 0 {
		if _, err := changer.Operate(ctx, bootstrap.PsetUnion, []string{"odd"}, bootstrap.PsetArgs{Name: "copy"}); err != nil {
			return err
		}
		err = pmixtest.SetFlag("made", "")
	} else {
		err = pmixtest.AwaitFlags(ctx, "made")
	}
	if err != nil {
		return err
	}
	names, err := source.Psets(ctx)
	if err != nil {
		return err
	}
	info, err := source.Pset(ctx, "copy")
	fmt.Printf("rank %d: %q, %d of copy\n", c.Identity().Proc.Rank, names, info.Members.Len())
	// Rank 0 holds the sets.
	err = errors.Join(err, pmixtest.SetFlag(fmt.Sprint("read", c.Identity().Proc.Rank), ""), pmixtest.AwaitFlags(ctx, "read0", "read1", "read2", "read3"))
	return errors.Join(err, c.Close())
}

// Those of the server follow the built-in sets, and precede those of operations.
func TestPsets_OfServer_PrecedeThoseOfOperations(t *testing.T) {
	installed(t)
	out := pmixtest.Run(t, pmixtest.Server(t, "-n", "4", "-pset", "odd"), "setOrder")
	for rank := range 4 {
		if want := fmt.Sprintf(`rank %d: ["odd" "copy"], 2 of copy`, rank); !strings.Contains(out, want) {
			t.Errorf("want %s in\n%s", want, out)
		}
	}
}
