package pmix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ferrympi/ferry/bootstrap/meet"
	"github.com/ferrympi/ferry/framework"
	"github.com/ferrympi/ferry/internal/pmixc"
	"github.com/ferrympi/ferry/internal/pmixc/pmixtest"
)

func TestMain(m *testing.M) {
	pmixtest.Main(m, map[string]pmixtest.Program{
		"pairs": pairs, "nodes": nodes, "reopen": reopen, "growth": growth, "dies": dies, "orphan": orphan, "unreachable": unreachable,
	}, func() error { return goleak.Find() })
}

// installed skips where libpmix is missing.
func installed(t *testing.T) {
	t.Helper()
	if _, err := load(pmixc.Soname); err != nil {
		pmixtest.Missing(t, "%v: install libpmix2, and build with cgo", err)
	}
}

// launchers are the ones that a test of n ranks on a node runs under.
func launchers(t *testing.T, n int) map[string][]string {
	installed(t)
	return map[string][]string{"server": pmixtest.Server(t, "-n", fmt.Sprint(n)), "mpirun": pmixtest.Mpirun(t, n)}
}

// await finds p's entry, as meet does.
func await(ctx context.Context, l meet.Launcher, p framework.Proc) ([]byte, error) {
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

// entryOf is what a rank publishes in these tests.
func entryOf(rank uint32) []byte { return bytes.Repeat([]byte{byte(rank + 1), 0}, meet.MaxEntry/2) }

// publish opens a launcher and publishes.
func publish(ctx context.Context) (meet.Launcher, error) {
	l, err := attach(ctx, defaults)
	if err == nil {
		err = l.Publish(ctx, entryOf(l.Identity().Proc.Rank))
	}
	return l, err
}

// finds wants rank to have published its entry.
func finds(ctx context.Context, l meet.Launcher, rank uint32) error {
	p := framework.Proc{Namespace: l.Identity().Proc.Namespace, Rank: rank}
	e, err := await(ctx, l, p)
	if err == nil && !bytes.Equal(e, entryOf(rank)) {
		err = fmt.Errorf("%v has published %d bytes %x", p, len(e), e[:min(8, len(e))])
	}
	return err
}

// pairs has ranks 1 and 3 find one another, while 0 and 2 wait for their end without a
// launcher. They open one then: mpirun takes it for a failure if some processes of a job
// never do, and others did.
func pairs(ctx context.Context) error {
	if rank := os.Getenv("PMIX_RANK"); rank == "0" || rank == "2" {
		if err := pmixtest.Await(ctx, "done1", "done3"); err != nil {
			return err
		}
		l, err := attach(ctx, defaults)
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
	fmt.Printf("rank %d: open %v, found after %v, locals %v\n", id.Proc.Rank, opened, time.Since(begin), id.Locals)
	if id.Size != 4 || id.LocalSize != 4 || id.LocalRank != int(id.Proc.Rank) {
		return fmt.Errorf("identity %+v", id)
	}
	const times = 100
	begin = time.Now()
	for range times { // what nobody has published is asked for each time
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
	return pmixtest.Set(fmt.Sprint("done", id.Proc.Rank), "")
}

// TestTwoFindOneAnotherWhileOthersWait: no call waits for a process that it is not about.
func TestTwoFindOneAnotherWhileOthersWait(t *testing.T) {
	for name, launcher := range launchers(t, 4) {
		t.Run(name, func(t *testing.T) {
			t.Log(pmixtest.Run(t, launcher, "pairs"))
		})
	}
}

// nodes has the ranks of two nodes find one another. The last one publishes so late that
// several searches end before.
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
	if id.Size != size || id.LocalSize != 2 || id.Locals[0] != id.Proc.Rank/2*2 {
		return fmt.Errorf("identity %+v", id)
	}
	time.Sleep(searchTimeout) // others still look
	return l.Close()
}

// TestEntriesOfOtherNodesAreFound: with PMIX_IMMEDIATE alone none ever is.
func TestEntriesOfOtherNodesAreFound(t *testing.T) {
	installed(t)
	t.Log(pmixtest.Run(t, pmixtest.Server(t, "-n", "4", "-nodes", "2"), "nodes"))
}

// reopen has all meet, and close; then rank 0 opens again. Rank 3 never publishes.
func reopen(ctx context.Context) error {
	l, err := attach(ctx, defaults)
	if err != nil {
		return err
	}
	id := l.Identity()
	me := id.Proc.Rank
	of := func(rank uint32) framework.Proc { return framework.Proc{Namespace: id.Proc.Namespace, Rank: rank} }
	if me == 3 {
		return errors.Join(pmixtest.Await(ctx, "done0", "done1"), l.Close())
	}
	if err := l.Publish(ctx, entryOf(me)); err != nil {
		return err
	}
	if me == 2 {
		return errors.Join(pmixtest.Set("published", ""), pmixtest.Await(ctx, "done0", "done1"), l.Close())
	}
	if err := finds(ctx, l, 1-me); err != nil {
		return err
	}
	if err := pmixtest.Await(ctx, "published"); err != nil { // and nobody asks for rank 2
		return err
	}
	second, err := attach(ctx, defaults)
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
	if _, ok, err := second.Find(ctx, of(3)); ok || err != nil { // the other launcher is as before
		return fmt.Errorf("find of rank 3: %t %w", ok, err)
	}
	if err := second.Close(); err != nil {
		return err
	}
	for range 3 {
		again, err := attach(ctx, defaults)
		if err != nil {
			return err
		}
		if got := again.Identity(); got.Proc != id.Proc {
			return fmt.Errorf("now it is %v", got.Proc)
		}
		for _, rank := range []uint32{1 - me, 2} {
			if err := finds(ctx, again, rank); err != nil {
				return err
			}
		}
		if _, _, err := again.Find(ctx, of(3)); !errors.Is(err, framework.ErrTransport) || !strings.Contains(err.Error(), "whom it found before") {
			return fmt.Errorf("find of rank 3, afterwards: %w", err)
		}
		if err := errors.Join(again.Abort(ctx, 1, "not any more"), again.Close()); err != nil {
			return err
		}
	}
	time.Sleep(200 * time.Millisecond) // for a launcher that takes it ill
	fmt.Printf("rank %d: still here\n", me)
	return pmixtest.Set(fmt.Sprint("done", me), "")
}

// TestProcessFinalizesOnceAndLivesOn: launchers take the end of a process that has not
// finalized for a failure, and libpmix finds nothing after a second Init.
func TestProcessFinalizesOnceAndLivesOn(t *testing.T) {
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
		l, err := attach(ctx, defaults)
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

// resident is the process's memory.
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

// TestReopeningDoesNotGrow: a pair of Init and Finalize would leave 0.15 MiB each time.
func TestReopeningDoesNotGrow(t *testing.T) {
	installed(t)
	t.Log(pmixtest.Run(t, pmixtest.Server(t, "-n", "1"), "growth"))
}

// dies has rank 1 die without an entry.
func dies(ctx context.Context) error {
	l, err := attach(ctx, defaults)
	if err != nil {
		return err
	}
	id := l.Identity()
	if id.Proc.Rank == 1 {
		time.Sleep(200 * time.Millisecond)
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	_, err = await(ctx, l, framework.Proc{Namespace: id.Proc.Namespace, Rank: 1})
	fmt.Printf("rank 0: %v\n", err)
	if !errors.Is(err, framework.ErrProcFailed) {
		return errors.New("want ErrProcFailed")
	}
	return l.Close()
}

// TestWhoDiedWithoutAnEntryIsNotWaitedFor: where the launcher says so.
func TestWhoDiedWithoutAnEntryIsNotWaitedFor(t *testing.T) {
	installed(t)
	out, _ := pmixtest.RunAny(t, pmixtest.Server(t, "-n", "2"), "dies")
	if !strings.Contains(out, "rank 0: exit 0") {
		t.Error(out)
	}
	t.Log(out)
}

// orphan looks for an entry until the launcher is gone. Nobody reads what it prints then.
func orphan(ctx context.Context) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0); err != nil {
		return err
	}
	l, err := publish(ctx)
	if err != nil {
		return err
	}
	id := l.Identity()
	if err := finds(ctx, l, 1-id.Proc.Rank); err != nil {
		return err
	}
	if err := pmixtest.Set(fmt.Sprint("ready", id.Proc.Rank), ""); err != nil {
		return err
	}
	_, err = await(ctx, l, framework.Proc{Namespace: id.Proc.Namespace, Rank: 99})
	begin := time.Now()
	text := fmt.Sprintf("%t %v; close %v", errors.Is(err, framework.ErrTransport), err, l.Close())
	_, known, err := l.Find(ctx, id.Proc)
	text += fmt.Sprintf(" after %v; %t %v", time.Since(begin), known, err)
	return pmixtest.Set(fmt.Sprint("result", id.Proc.Rank), text)
}

// TestLauncherThatIsKilledLeavesNobodyBlocked: neither in a call of libpmix, nor looking
// for somebody without end.
func TestLauncherThatIsKilledLeavesNobodyBlocked(t *testing.T) {
	for name, launcher := range launchers(t, 2) {
		t.Run(name, func(t *testing.T) {
			job := pmixtest.Start(t, launcher, "orphan")
			for _, rank := range []string{"0", "1"} {
				job.Await(t, "ready"+rank)
			}
			begin := time.Now()
			if err := job.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for _, rank := range []string{"0", "1"} {
				text := job.Await(t, "result"+rank)
				t.Logf("rank %s, %v after the kill: %s", rank, time.Since(begin), text)
				if !strings.HasPrefix(text, "true") {
					t.Error("want ErrTransport")
				}
			}
			if _, err := job.Wait(); err == nil {
				t.Error("the launcher has ended well")
			}
		})
	}
}

// unreachable says what becomes of opening without a server.
func unreachable(ctx context.Context) error {
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	l, err := attach(limited, defaults)
	fmt.Printf("%t %v after %v\n", l == nil && (errors.Is(err, framework.ErrTransport) || errors.Is(err, limited.Err())), err, time.Since(begin))
	if limited.Err() != nil {
		os.Exit(0) // with a thread in PMIx_Init, which does not return
	}
	return nil
}

// TestServerThatIsNotThereIsAnError: one that is gone, at once; one that is silent, when
// the caller has waited enough.
func TestServerThatIsNotThereIsAnError(t *testing.T) {
	installed(t)
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, addr := range map[string]string{"gone": "127.0.0.1:9", "silent": silent.Addr().String(), "garbage": "what is this"} {
		env := []string{"PMIX_NAMESPACE=job", "PMIX_RANK=0", "PMIX_VERSION=4.2.2"}
		for _, v := range []string{"41", "4", "3"} {
			env = append(env, "PMIX_SERVER_URI"+v+"=pmix-server.1;tcp4://"+addr)
		}
		out, err := pmixtest.RunAny(t, []string{"/usr/bin/env"}, "unreachable", env...)
		if err != nil || !strings.Contains(out, "true bootstrap pmix: connect with ") || !strings.Contains(out, addr) {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		t.Logf("%s: %s", name, out)
	}
}
